"""backendRefs: from a reference to a cluster, or why its share answers 500."""

from __future__ import annotations

import hashlib
import re
from typing import Literal

import msgspec

from gatehouse.apis import core, gateway, routes
from gatehouse.compiler.frontends.gateway_api.extensions import effective
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.reference_grants import Reference, permitted
from gatehouse.compiler.frontends.gateway_api.routes import backend_tls
from gatehouse.compiler.ir import http as ir
from gatehouse.incremental.query import Ask, Key

Protocol = Literal["http", "h2c", "grpc", "tcp", "udp"]

APP_PROTOCOLS: dict[str, Protocol] = {
    "": "http",
    "http": "http",
    "https": "http",
    "kubernetes.io/h2c": "h2c",
    "kubernetes.io/ws": "http",
    "kubernetes.io/wss": "http",
}
"""How each ``appProtocol`` is spoken for an HTTPRoute; others are not. TLS is a policy's matter."""

_FIXED: dict[str, Protocol] = {
    "GRPCRoute": "grpc",
    "TLSRoute": "tcp",
    "TCPRoute": "tcp",
    "UDPRoute": "udp",
}

BackendReference = routes.BackendRef | routes.BackendObject


class ClusterKey(msgspec.Struct, frozen=True, order=True):
    """A port of a Service, spoken to in one way."""

    namespace: str
    service: str
    port: int
    protocol: Protocol

    @property
    def name(self) -> str:
        """Readable, and distinct by its hash."""
        whole = f"{self.namespace}/{self.service}/{self.port}/{self.protocol}"
        digest = hashlib.sha256(whole.encode()).hexdigest()[:12]
        readable = re.sub(r"[^a-z0-9]+", "-", f"{self.namespace}-{self.service}-{self.port}")
        return f"c-{readable[:46].strip('-')}-{digest}"

    @property
    def transport(self) -> str:
        """The protocol as Services write it."""
        return "UDP" if self.protocol == "udp" else "TCP"


def service_port(ask: Ask, which: tuple[str, str, int, str]) -> core.ServicePort | str:
    """Give a Service's port, or what is missing. Small, so that little depends on the Service."""
    namespace, name, port, transport = which
    service = ask.read(("Service", namespace, name))
    if service is None:
        return f"Service {namespace}/{name} does not exist"
    if not isinstance(service, core.Service):
        return f"Service {namespace}/{name} cannot be read"
    wanted = (port, transport)
    found = next((e for e in service.spec.ports if (e.port, e.protocol) == wanted), None)
    return found or f"Service {namespace}/{name} has no {transport} port {port}"


def resolve(ask: Ask, route: Key, reference: BackendReference, where: str) -> ClusterKey | Finding:
    """Give the cluster that a route refers to, or why there is none."""
    target = reference.namespace or route[1]
    if (reference.group, reference.kind) != ("", "Service"):
        kind = f"{reference.group}/{reference.kind}".lstrip("/")
        return Finding(Reason.INVALID_KIND, f"{where}: kind {kind} is no Service")
    name = reference.name
    across = Reference(gateway.GROUP, route[0], route[1], "", "Service", target, name)
    if not ask(permitted, across):
        message = f"{where}: no ReferenceGrant in namespace {target} allows Service {name}"
        return Finding(Reason.REF_NOT_PERMITTED, message)
    if reference.port is None:
        return Finding(Reason.BACKEND_NOT_FOUND, f"{where}: port is not set")
    transport = "UDP" if route[0] == "UDPRoute" else "TCP"
    found = ask(service_port, (target, name, reference.port, transport))
    if isinstance(found, str):
        return Finding(Reason.BACKEND_NOT_FOUND, f"{where}: {found}")
    protocol = _FIXED.get(route[0]) or APP_PROTOCOLS.get(found.app_protocol.lower())
    if protocol is None:
        message = f"{where}: appProtocol {found.app_protocol} is not spoken"
        return Finding(Reason.UNSUPPORTED_BACKEND_PROTOCOL, message)
    return ClusterKey(target, name, reference.port, protocol)


def backend_tls_policy(ask: Ask, key: ClusterKey) -> Key | None:
    """Give the BackendTLSPolicy that holds for a cluster."""
    if key.protocol == "udp":
        return None
    port = ask(service_port, (key.namespace, key.service, key.port, key.transport))
    if not isinstance(port, core.ServicePort):
        return None
    return ask(backend_tls.effective, (key.namespace, key.service, port.name))


def tls_resolved(ask: Ask, key: ClusterKey) -> bool:
    """Whether a cluster can be spoken to as its policy asks."""
    policy = ask(backend_tls_policy, key)
    return policy is None or ask(backend_tls.resolve, policy).tls is not None


def cluster(ask: Ask, key: ClusterKey) -> ir.Cluster:
    """Give a cluster with its ready endpoints."""
    port = ask(service_port, (key.namespace, key.service, key.port, key.transport))
    endpoints: set[ir.Endpoint] = set()
    if isinstance(port, core.ServicePort):
        for slice_key in ask.read(("@slices", key.namespace, key.service)):
            endpoints |= ask(slice_endpoints, (slice_key, port.name, key.transport))
    policy = ask(backend_tls_policy, key)
    tls = ask(backend_tls.resolve, policy).tls if policy is not None else None
    wanted = ask(effective.upstream_policy, (key.namespace, key.service))
    made = ir.Cluster(key.name, tuple(sorted(endpoints)), key.protocol, tls, wanted.settings)
    return _by_service_address(ask, key, made) if wanted.service_address else made


def cluster_ip_backend(ask: Ask, key: ClusterKey) -> ir.Cluster:
    """Give a cluster whose only endpoint is the Service's own address, if it has one."""
    return _by_service_address(ask, key, ask(cluster, key))


def _by_service_address(ask: Ask, key: ClusterKey, made: ir.Cluster) -> ir.Cluster:
    own = ask(service_address, (key.namespace, key.service))
    if not own or key.protocol in ("tcp", "udp"):
        return made
    return msgspec.structs.replace(made, endpoints=(ir.Endpoint(own, key.port),))


def service_address(ask: Ask, name: tuple[str, str]) -> str:
    """Give a Service's own address; empty for one that has none."""
    found = ask.read(("Service", *name))
    address = found.spec.cluster_ip if isinstance(found, core.Service) else ""
    return "" if address == "None" else address


def slice_endpoints(ask: Ask, which: tuple[Key, str, str]) -> frozenset[ir.Endpoint]:
    """Give the ready endpoints that a slice has for the Service port of a name."""
    found = ask.read(which[0])
    if not isinstance(found, core.EndpointSlice) or found.address_type not in ("IPv4", "IPv6"):
        return frozenset()
    numbers = [
        port.port
        for port in found.ports
        if port.name == which[1] and port.port and port.protocol == which[2]
    ]
    return frozenset(
        ir.Endpoint(address, number)
        for endpoint in found.endpoints
        if endpoint.conditions.ready
        for address in endpoint.addresses[:1]
        for number in numbers
    )
