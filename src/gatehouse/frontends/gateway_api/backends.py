"""backendRefs: from a reference to a cluster, or why its share answers 500."""

from __future__ import annotations

import hashlib
import re
from typing import Literal

import msgspec

from gatehouse.apis import core, gateway
from gatehouse.frontends.gateway_api.findings import Finding, Reason
from gatehouse.frontends.gateway_api.grants import Reference, permitted
from gatehouse.ir import http as ir
from gatehouse.query import Ask

PROTOCOLS = {"": "http", "http": "http", "kubernetes.io/h2c": "h2c", "kubernetes.io/ws": "http"}
"""How each ``appProtocol`` is spoken; others are not."""

__all__ = ["ClusterKey", "cluster", "resolve"]


class ClusterKey(msgspec.Struct, frozen=True, order=True):
    """A port of a Service, spoken to in one way."""

    namespace: str
    service: str
    port: int
    protocol: str

    @property
    def name(self) -> str:
        """Readable, and distinct by its hash."""
        whole = f"{self.namespace}/{self.service}/{self.port}/{self.protocol}"
        digest = hashlib.sha256(whole.encode()).hexdigest()[:12]
        readable = re.sub(r"[^a-z0-9]+", "-", f"{self.namespace}-{self.service}-{self.port}")
        return f"c-{readable[:46].strip('-')}-{digest}"


def service_port(ask: Ask, which: tuple[str, str, int]) -> core.ServicePort | str:
    """Give a Service's port, or what is missing. Small, so that little depends on the Service."""
    namespace, name, port = which
    service = ask.read(("Service", namespace, name))
    if service is None:
        return f"Service {namespace}/{name} does not exist"
    if not isinstance(service, core.Service):
        return f"Service {namespace}/{name} cannot be read"
    found = next(
        (entry for entry in service.spec.ports if (entry.port, entry.protocol) == (port, "TCP")),
        None,
    )
    return found or f"Service {namespace}/{name} has no port {port}"


def resolve(
    ask: Ask, namespace: str, reference: gateway.BackendRef, where: str
) -> ClusterKey | Finding:
    """Give the cluster that a route in ``namespace`` refers to, or why there is none."""
    target = reference.namespace or namespace
    if (reference.group, reference.kind) != ("", "Service"):
        kind = f"{reference.group}/{reference.kind}".lstrip("/")
        return Finding(Reason.INVALID_KIND, f"{where}: kind {kind} is no Service")
    across = Reference(gateway.GROUP, "HTTPRoute", namespace, "", "Service", target, reference.name)
    if not ask(permitted, across):
        message = (
            f"{where}: no ReferenceGrant in namespace {target} allows Service {reference.name}"
        )
        return Finding(Reason.REF_NOT_PERMITTED, message)
    if reference.port is None:
        return Finding(Reason.BACKEND_NOT_FOUND, f"{where}: port is not set")
    found = ask(service_port, (target, reference.name, reference.port))
    if isinstance(found, str):
        return Finding(Reason.BACKEND_NOT_FOUND, f"{where}: {found}")
    protocol = PROTOCOLS.get(found.app_protocol.lower())
    if protocol is None:
        message = f"{where}: appProtocol {found.app_protocol} is not spoken"
        return Finding(Reason.UNSUPPORTED_BACKEND_PROTOCOL, message)
    return ClusterKey(target, reference.name, reference.port, protocol)


def cluster(ask: Ask, key: ClusterKey) -> ir.Cluster:
    """Give a cluster with its ready endpoints."""
    port = ask(service_port, (key.namespace, key.service, key.port))
    endpoints: set[ir.Endpoint] = set()
    if isinstance(port, core.ServicePort):
        for slice_key in ask.read(("@slices", key.namespace, key.service)):
            endpoints |= ask(slice_endpoints, (slice_key, port.name))
    protocol: Literal["http", "h2c"] = "h2c" if key.protocol == "h2c" else "http"
    return ir.Cluster(key.name, tuple(sorted(endpoints)), protocol)


def slice_endpoints(ask: Ask, which: tuple[tuple[str, ...], str]) -> frozenset[ir.Endpoint]:
    """Give the ready endpoints that a slice has for the Service port of a name."""
    found = ask.read(which[0])
    if not isinstance(found, core.EndpointSlice) or found.address_type not in ("IPv4", "IPv6"):
        return frozenset()
    numbers = [
        port.port
        for port in found.ports
        if port.name == which[1] and port.port and port.protocol == "TCP"
    ]
    return frozenset(
        ir.Endpoint(address, number)
        for endpoint in found.endpoints
        if endpoint.conditions.ready
        for address in endpoint.addresses[:1]
        for number in numbers
    )
