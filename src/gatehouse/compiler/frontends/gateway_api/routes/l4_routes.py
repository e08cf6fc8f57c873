"""TLSRoutes, TCPRoutes and UDPRoutes: precedence and backends."""

from __future__ import annotations

import msgspec

from gatehouse.apis import routes
from gatehouse.compiler.frontends.gateway_api.cluster_key import ClusterKey
from gatehouse.compiler.frontends.gateway_api.findings import Finding
from gatehouse.compiler.frontends.gateway_api.inputs import GatewayObject
from gatehouse.compiler.frontends.gateway_api.routes.backend_refs import (
    resolve_backend,
    tls_resolved,
)
from gatehouse.compiler.ir.gateway import L4Backend
from gatehouse.incremental.query import Ask, Key


class Targets(msgspec.Struct, frozen=True):
    """Backends of an L4 route."""

    backends: tuple[L4Backend, ...] = ()
    rejected: int = 0
    """Weight of the backends that are invalid."""
    clusters: tuple[ClusterKey, ...] = ()
    findings: tuple[Finding, ...] = ()
    services: tuple[tuple[str, str], ...] = ()


def l4_backends(ask: Ask, place: GatewayObject) -> Targets:
    """Return the backends of a route's first rule. ``place``: Gateway and route."""
    gateway, key = place
    route = ask.read(key)
    if not isinstance(route, routes.TLSRoute | routes.TCPRoute | routes.UDPRoute):
        return Targets()
    backends: list[L4Backend] = []
    rejected = 0
    clusters: list[ClusterKey] = []
    findings: list[Finding] = []
    for number, rule in enumerate(route.spec.rules[:1]):
        for index, reference in enumerate(rule.backend_refs):
            backend = resolve_backend(
                ask, place, reference, f"rules[{number}].backendRefs[{index}]"
            )
            if isinstance(backend, Finding):
                findings.append(backend)
            else:
                clusters.append(backend)
            if isinstance(backend, Finding) or not ask(tls_resolved, (gateway, backend)):
                rejected += reference.weight
            elif reference.weight:
                backends.append(L4Backend(backend.name, reference.weight))
    return Targets(
        tuple(backends),
        rejected,
        tuple(sorted({cluster for cluster in clusters if ask(tls_resolved, (gateway, cluster))})),
        tuple(findings),
        tuple(sorted({(cluster.namespace, cluster.service) for cluster in clusters})),
    )


def oldest(ask: Ask, keys: tuple[Key, ...]) -> Key:
    """Return the route that takes precedence: the oldest, then the first by namespace and name.

    A TLSRoute precedes TCPRoutes, which attach to every TLS listener that terminates TLS.
    """

    def rank(key: Key) -> tuple[bool, str, tuple[str, ...]]:
        return key[0] == "TCPRoute", ask.read(key).metadata.creation_timestamp, key[1:]

    return min(keys, key=rank)
