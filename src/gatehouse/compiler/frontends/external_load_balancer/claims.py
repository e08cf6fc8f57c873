"""Claims: ports of Services that request upstreams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from gatehouse.apis import external_services
from gatehouse.apis.external_load_balancers import LoadBalancerSpec, ServiceSelection
from gatehouse.apis.selectors import selector_matches
from gatehouse.compiler.frontends.external_load_balancer.findings import (
    LoadBalancerFinding,
    LoadBalancerReason,
)
from gatehouse.compiler.frontends.external_load_balancer.inputs import SERVICES_KEY
from gatehouse.compiler.frontends.external_load_balancer.sources import followed_namespaces, spec_of
from gatehouse.dataplane.upstream_name import UpstreamContext, UpstreamName
from gatehouse.incremental.query import Ask, Key

CONTEXT = "nginxinc.io/"
"""Annotation of a Service, followed by the name of a port: context of the port's upstream, ``http``
(default) or ``stream``.
"""

UPSTREAM_ANNOTATION_PREFIX = "gatehouse.dev/upstream."
"""Annotation of a Service, followed by the name of a port: name of the port's upstream. Default:
the name of the port without ``spec.services.portPrefix``.
"""

CONTEXTS: tuple[UpstreamContext, ...] = ("http", "stream")


class PortClaim(msgspec.Struct, frozen=True):
    """A port of a Service that requests an upstream."""

    balancer: Key
    service: Key
    port: str
    created: str
    """Creation time of the Service."""
    name: UpstreamName
    protocol: str = "TCP"
    problem: str = ""
    """Why the claim is invalid; ``name`` is then undefined. Empty if it is valid."""

    @property
    def order(self) -> tuple[str, Key, Key, str]:
        """Sort key among claims of Services that do not have the upstream."""
        return (self.created, self.service, self.balancer, self.port)

    @property
    def finding(self) -> LoadBalancerFinding:
        """Finding about an invalid claim."""
        return LoadBalancerFinding(LoadBalancerReason.INVALID_PORT, self.problem)


def balancer_claims(ask: Ask, balancer: Key) -> tuple[PortClaim, ...]:
    """Return the claims of all Services on a load balancer."""
    spec = ask(spec_of, balancer)
    if isinstance(spec, LoadBalancerFinding):
        return ()
    namespaces = followed_namespaces(balancer, spec)
    buckets = (
        [SERVICES_KEY]
        if "*" in namespaces
        else [(*SERVICES_KEY, namespace) for namespace in namespaces]
    )
    keys = dict.fromkeys(key for bucket in buckets for key in ask.read(bucket))
    return tuple(claim for key in keys for claim in ask(service_claims, balancer, key))


def service_claims(ask: Ask, balancer: Key, key: Key) -> tuple[PortClaim, ...]:
    """Return the claims of a Service on a load balancer."""
    spec, service = ask(spec_of, balancer), ask.read(key)
    if isinstance(spec, LoadBalancerFinding) or not isinstance(
        service, external_services.ExternalService
    ):
        return ()
    if service.metadata.deletion_timestamp or not _selected(spec.services, service):
        return ()
    return tuple(_claims(balancer, key, spec, service))


def _selected(services: ServiceSelection, service: external_services.ExternalService) -> bool:
    annotation = services.annotation
    if annotation is not None:
        value = service.metadata.annotations.get(annotation.name)
        if value is None or annotation.value not in (None, value):
            return False
    return selector_matches(services.selector, service.metadata.labels)


def _context_and_name(
    services: ServiceSelection, annotations: Mapping[str, str], port: str
) -> tuple[str, str] | None:
    """Return context and name of a port's upstream; None if the port is not selected."""
    if services.port_names == "Context":
        context, dash, name = port.partition("-")
        return (context, name) if dash and context in CONTEXTS else None
    if not port.startswith(services.port_prefix):
        return None
    return annotations.get(CONTEXT + port, "http"), port.removeprefix(services.port_prefix)


def _claims(
    balancer: Key, key: Key, spec: LoadBalancerSpec, service: external_services.ExternalService
) -> Iterator[PortClaim]:
    annotations = service.metadata.annotations
    for port in service.spec.ports:
        upstream = _context_and_name(spec.services, annotations, port.name)
        if upstream is None:
            continue
        where = f"Service {key[1]}/{key[2]}: port {port.name!r}"
        context, name = upstream
        name = annotations.get(UPSTREAM_ANNOTATION_PREFIX + port.name, name).strip()
        known = next((candidate for candidate in CONTEXTS if candidate == context), None)
        problem = ""
        if known is None:
            problem = (
                f"{where}: annotation {CONTEXT}{port.name}: {context!r} must be http or stream"
            )
        elif not name or "/" in name or not name.isprintable():
            problem = f"{where}: {name!r} must be a valid upstream name"
        elif port.protocol != "TCP" and context == "http":
            field = (
                "name must begin with stream-"
                if spec.services.port_names == "Context"
                else f"annotation {CONTEXT}{port.name} must be stream"
            )
            problem = f"{where}: {field} for {port.protocol}"
        elif port.protocol not in ("TCP", "UDP"):
            problem = f"{where}: protocol {port.protocol} is not supported"
        created = service.metadata.creation_timestamp
        yield PortClaim(
            balancer,
            key,
            port.name,
            created,
            UpstreamName(known or "http", name),
            port.protocol,
            problem,
        )
