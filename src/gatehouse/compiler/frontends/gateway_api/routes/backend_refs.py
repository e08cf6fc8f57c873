"""backendRefs: from a reference to a cluster, or why requests of its share get status 500."""

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
from gatehouse.dataplane.origin import Origin
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
"""Protocol of HTTPRoute backends by ``appProtocol``; others are not supported.

TLS is configured by BackendTLSPolicies only.
"""

_FIXED: dict[str, Protocol] = {
    "GRPCRoute": "grpc",
    "TLSRoute": "tcp",
    "TCPRoute": "tcp",
    "UDPRoute": "udp",
}

BackendReference = routes.BackendRef | routes.BackendObject


class ClusterKey(msgspec.Struct, frozen=True, order=True):
    """A port of a Service and the protocol used to connect to it."""

    namespace: str
    service: str
    port: int
    protocol: Protocol

    @property
    def name(self) -> str:
        """Name of the cluster: readable, and unique by its hash."""
        whole = f"{self.namespace}/{self.service}/{self.port}/{self.protocol}"
        digest = hashlib.sha256(whole.encode()).hexdigest()[:12]
        readable = re.sub(r"[^a-z0-9]+", "-", f"{self.namespace}-{self.service}-{self.port}")
        return f"c-{readable[:46].strip('-')}-{digest}"

    @property
    def transport(self) -> str:
        """Transport protocol as in Services."""
        return "UDP" if self.protocol == "udp" else "TCP"


def service_port(ask: Ask, which: tuple[str, str, int, str]) -> core.ServicePort | str:
    """Return a port of a Service, or the problem.

    A query of its own, so that callers do not depend on the whole Service.
    """
    namespace, name, port, transport = which
    service = ask.read(("Service", namespace, name))
    if service is None:
        return f"Service {namespace}/{name} not found"
    if not isinstance(service, core.Service):
        return f"Service {namespace}/{name} is invalid"
    number = (port, transport)
    found = next((e for e in service.spec.ports if (e.port, e.protocol) == number), None)
    return found or f"{transport} port {port} not found in Service {namespace}/{name}"


def resolve(ask: Ask, route: Key, reference: BackendReference, where: str) -> ClusterKey | Finding:
    """Return the cluster that a route refers to, or a finding."""
    target = reference.namespace or route[1]
    if (reference.group, reference.kind) != ("", "Service"):
        kind = f"{reference.group}/{reference.kind}".lstrip("/")
        return Finding(
            Reason.INVALID_KIND, f"{where}: kind {kind} is not supported: must be Service"
        )
    name = reference.name
    across = Reference(gateway.GROUP, route[0], route[1], "", "Service", target, name)
    if not ask(permitted, across):
        message = f"{where}: Service {target}/{name} not allowed by any ReferenceGrant"
        return Finding(Reason.REF_NOT_PERMITTED, message)
    if reference.port is None:
        return Finding(Reason.BACKEND_NOT_FOUND, f"{where}.port: must be set")
    transport = "UDP" if route[0] == "UDPRoute" else "TCP"
    found = ask(service_port, (target, name, reference.port, transport))
    if isinstance(found, str):
        return Finding(Reason.BACKEND_NOT_FOUND, f"{where}: {found}")
    protocol = _FIXED.get(route[0]) or APP_PROTOCOLS.get(found.app_protocol.lower())
    if protocol is None:
        message = f"{where}: appProtocol {found.app_protocol} is not supported"
        return Finding(Reason.UNSUPPORTED_BACKEND_PROTOCOL, message)
    return ClusterKey(target, name, reference.port, protocol)


def backend_tls_policy(ask: Ask, key: ClusterKey) -> Key | None:
    """Return the effective BackendTLSPolicy of a cluster; None if there is none."""
    if key.protocol == "udp":
        return None
    port = ask(service_port, (key.namespace, key.service, key.port, key.transport))
    if not isinstance(port, core.ServicePort):
        return None
    return ask(backend_tls.effective, (key.namespace, key.service, port.name))


def tls_resolved(ask: Ask, key: ClusterKey) -> bool:
    """Return whether a cluster has no BackendTLSPolicy, or a valid one."""
    policy = ask(backend_tls_policy, key)
    return policy is None or ask(backend_tls.resolve, policy).tls is not None


def cluster(ask: Ask, key: ClusterKey) -> ir.Cluster:
    """Return a cluster with its ready endpoints."""
    port = ask(service_port, (key.namespace, key.service, key.port, key.transport))
    endpoints: set[ir.Endpoint] = set()
    if isinstance(port, core.ServicePort):
        for slice_key in ask.read(("@slices", key.namespace, key.service)):
            endpoints |= ask(slice_endpoints, (slice_key, port.name, key.transport))
    policy = ask(backend_tls_policy, key)
    tls = ask(backend_tls.resolve, policy).tls if policy is not None else None
    upstream = ask(effective.upstream_policy, (key.namespace, key.service))
    origin = Origin("Service", key.namespace, key.service)
    result = ir.Cluster(
        key.name, tuple(sorted(endpoints)), key.protocol, tls, upstream.settings, origin
    )
    return _by_service_address(ask, key, result) if upstream.service_address else result


def cluster_ip_backend(ask: Ask, key: ClusterKey) -> ir.Cluster:
    """Return a cluster with the Service's cluster IP as its only endpoint, if it has one."""
    return _by_service_address(ask, key, ask(cluster, key))


def _by_service_address(ask: Ask, key: ClusterKey, base: ir.Cluster) -> ir.Cluster:
    own = ask(service_address, (key.namespace, key.service))
    if not own or key.protocol in ("tcp", "udp"):
        return base
    return msgspec.structs.replace(base, endpoints=(ir.Endpoint(own, key.port),))


def service_address(ask: Ask, name: tuple[str, str]) -> str:
    """Return the cluster IP of a Service; empty if it has none."""
    found = ask.read(("Service", *name))
    address = found.spec.cluster_ip if isinstance(found, core.Service) else ""
    return "" if address == "None" else address


def slice_endpoints(ask: Ask, which: tuple[Key, str, str]) -> frozenset[ir.Endpoint]:
    """Return the ready endpoints of an EndpointSlice for the Service port with a name."""
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
