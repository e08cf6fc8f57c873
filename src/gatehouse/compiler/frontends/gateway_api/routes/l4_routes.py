"""TLSRoutes, TCPRoutes and UDPRoutes: precedence and backends."""

from __future__ import annotations

import msgspec

from gatehouse.apis import routes
from gatehouse.compiler.frontends.gateway_api import hostnames
from gatehouse.compiler.frontends.gateway_api.cluster_key import ClusterKey
from gatehouse.compiler.frontends.gateway_api.findings import Finding
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
    services: tuple[Key, ...] = ()


def l4_backends(ask: Ask, gateway: Key, key: Key) -> Targets:
    """Return the backends of a route's first rule."""
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
                ask, (gateway, key), reference, f"rules[{number}].backendRefs[{index}]"
            )
            if isinstance(backend, Finding):
                findings.append(backend)
            else:
                clusters.append(backend)
            if isinstance(backend, Finding) or not ask(tls_resolved, gateway, backend):
                rejected += reference.weight
            elif reference.weight:
                backends.append(L4Backend(backend.name, reference.weight))
    return Targets(
        tuple(backends),
        rejected,
        tuple(sorted({cluster for cluster in clusters if ask(tls_resolved, gateway, cluster)})),
        tuple(findings),
        tuple(sorted({(entry.kind, entry.namespace, entry.service) for entry in clusters})),
    )


def preferred(ask: Ask, hostname: str, keys: tuple[Key, ...]) -> Key:
    """Return the route that takes precedence at a hostname.

    It has the most specific hostname of its own, then is the oldest, then the first by namespace
    and name. A TLSRoute precedes TCPRoutes, which attach to every TLS listener that terminates TLS.
    """

    def rank(key: Key) -> tuple[bool, bool, int, str, tuple[str, ...]]:
        is_exact, length = ask(own_hostname, key, hostname)
        created = ask.read(key).metadata.creation_timestamp
        return key[0] == "TCPRoute", not is_exact, -length, created, key[1:]

    return min(keys, key=rank)


def own_hostname(ask: Ask, key: Key, hostname: str) -> tuple[bool, int]:
    """Return the specificity of the route's hostname that matches the virtual host's hostname."""
    route = ask.read(key)
    names = [name.lower() for name in route.spec.hostnames] or [""]
    covering = [name for name in names if hostnames.hostname_covers(name, hostname)]
    return max(hostnames.specificity(name) for name in covering or [""])
