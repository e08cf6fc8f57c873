"""Claims: ports of Services that request upstreams."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from gatehouse.apis import external_services
from gatehouse.apis.external_load_balancers import Services, Spec
from gatehouse.apis.selectors import selects
from gatehouse.compiler.frontends.external_load_balancer.findings import Finding, Reason
from gatehouse.compiler.frontends.external_load_balancer.inputs import SERVICES
from gatehouse.compiler.frontends.external_load_balancer.sources import followed_namespaces, spec_of
from gatehouse.dataplane.upstream_name import Context, UpstreamName
from gatehouse.incremental.query import Ask, Key

CONTEXT = "nginxinc.io/"
"""Annotation of a Service, followed by the name of a port: context of the port's upstream, ``http``
(default) or ``stream``.
"""

UPSTREAM = "gatehouse.dev/upstream."
"""Annotation of a Service, followed by the name of a port: name of the port's upstream. Default:
the name of the port without ``spec.services.portPrefix``.
"""

CONTEXTS: tuple[Context, ...] = ("http", "stream")


class Claim(msgspec.Struct, frozen=True):
    """A port of a Service that requests an upstream."""

    balancer: Key
    service: Key
    port: str
    created: str
    """Creation time of the Service. The oldest claim gets the upstream."""
    name: UpstreamName
    protocol: str = "TCP"
    problem: str = ""
    """Why the claim is invalid; ``name`` is then undefined. Empty if it is valid."""

    @property
    def order(self) -> tuple[str, Key, Key, str]:
        """Sort key: the first claim of an upstream gets it."""
        return (self.created, self.service, self.balancer, self.port)

    @property
    def finding(self) -> Finding:
        """Finding about an invalid claim."""
        return Finding(Reason.INVALID_PORT, self.problem)


def balancer_claims(ask: Ask, balancer: Key) -> tuple[Claim, ...]:
    """Return the claims of all Services on a load balancer."""
    spec = ask(spec_of, balancer)
    if isinstance(spec, Finding):
        return ()
    namespaces = followed_namespaces(balancer, spec)
    buckets = [SERVICES] if "*" in namespaces else [(*SERVICES, each) for each in namespaces]
    keys = dict.fromkeys(key for bucket in buckets for key in ask.read(bucket))
    return tuple(claim for key in keys for claim in ask(service_claims, (balancer, key)))


def service_claims(ask: Ask, which: tuple[Key, Key]) -> tuple[Claim, ...]:
    """Return the claims of a Service on a load balancer."""
    balancer, key = which
    spec, service = ask(spec_of, balancer), ask.read(key)
    if isinstance(spec, Finding) or not isinstance(service, external_services.Service):
        return ()
    if service.metadata.deletion_timestamp or not _selected(spec.services, service):
        return ()
    return tuple(_claims(balancer, key, spec, service))


def _selected(services: Services, service: external_services.Service) -> bool:
    annotation = services.annotation
    if annotation is not None:
        value = service.metadata.annotations.get(annotation.name)
        if value is None or annotation.value not in (None, value):
            return False
    return selects(services.selector, service.metadata.labels)


def _claims(
    balancer: Key, key: Key, spec: Spec, service: external_services.Service
) -> Iterator[Claim]:
    prefix, annotations = spec.services.port_prefix, service.metadata.annotations
    for port in service.spec.ports:
        if not port.name.startswith(prefix):
            continue
        where = f"Service {key[1]}/{key[2]}: port {port.name!r}"
        name = annotations.get(UPSTREAM + port.name, port.name.removeprefix(prefix)).strip()
        context = annotations.get(CONTEXT + port.name, "http")
        known = next((each for each in CONTEXTS if each == context), None)
        problem = ""
        if known is None:
            problem = (
                f"{where}: annotation {CONTEXT}{port.name}: {context!r} must be http or stream"
            )
        elif not name or "/" in name or not name.isprintable():
            problem = f"{where}: {name!r} must be a valid upstream name"
        elif port.protocol != "TCP" and context == "http":
            problem = f"{where}: annotation {CONTEXT}{port.name} must be stream for {port.protocol}"
        elif port.protocol not in ("TCP", "UDP"):
            problem = f"{where}: protocol {port.protocol} is not supported"
        created = service.metadata.creation_timestamp
        yield Claim(
            balancer,
            key,
            port.name,
            created,
            UpstreamName(known or "http", name),
            port.protocol,
            problem,
        )
