"""backendRefs: from a reference to a cluster, or why requests of its share get status 500."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gatehouse.apis import core, routes
from gatehouse.apis.gateway import GATEWAY_API_GROUP
from gatehouse.compiler.frontends.gateway_api.cluster_key import ClusterKey, Protocol
from gatehouse.compiler.frontends.gateway_api.extensions import effective
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.inputs import (
    GatewayObject,
    slices_by_service,
    slices_with_names,
)
from gatehouse.compiler.frontends.gateway_api.reference_grants import Reference, permitted
from gatehouse.compiler.frontends.gateway_api.routes import backend_tls
from gatehouse.compiler.frontends.gateway_api.routes.external_names import (
    external_name,
    name_finding,
    name_resolution,
)
from gatehouse.compiler.ir import http as ir
from gatehouse.dataplane.origin import Origin
from gatehouse.incremental.query import Ask, Key

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

_TLS_PROTOCOLS = frozenset({"https", "kubernetes.io/wss"})

_FIXED: dict[str, Protocol] = {
    "GRPCRoute": "grpc",
    "TLSRoute": "tcp",
    "TCPRoute": "tcp",
    "UDPRoute": "udp",
}

BackendReference = routes.BackendRef | routes.BackendObject


def service_port(
    ask: Ask, namespace: str, name: str, port: int, transport: str
) -> core.ServicePort | str:
    """Return a port of a Service, or the problem.

    A query of its own, so that callers do not depend on the whole Service.
    """
    service = ask.read(("Service", namespace, name))
    if service is None:
        return f"Service {namespace}/{name} not found"
    if not isinstance(service, core.Service):
        return f"Service {namespace}/{name} is invalid"
    number = (port, transport)
    match = next((e for e in service.spec.ports if (e.port, e.protocol) == number), None)
    return match or f"{transport} port {port} not found in Service {namespace}/{name}"


def resolve_backend(
    ask: Ask,
    at: GatewayObject,
    reference: BackendReference,
    where: str,
    fixed: Protocol | None = None,
) -> ClusterKey | Finding:
    """Return the cluster that a route refers to at a Gateway, or a finding.

    ``fixed``: the protocol, whatever ``appProtocol`` is.
    """
    gateway, route = at
    target = reference.namespace or route[1]
    if (reference.group, reference.kind) != ("", "Service"):
        kind = f"{reference.group}/{reference.kind}".lstrip("/")
        return Finding(
            Reason.INVALID_KIND, f"{where}: kind {kind} is not supported: must be Service"
        )
    name = reference.name
    across = Reference(GATEWAY_API_GROUP, route[0], route[1], "", "Service", target, name)
    if not ask(permitted, across):
        message = f"{where}: Service {target}/{name} not allowed by any ReferenceGrant"
        return Finding(Reason.REF_NOT_PERMITTED, message)
    if reference.port is None:
        return Finding(Reason.BACKEND_NOT_FOUND, f"{where}.port: must be set")
    transport = "UDP" if route[0] == "UDPRoute" else "TCP"
    port = ask(service_port, target, name, reference.port, transport)
    if isinstance(port, str):
        return Finding(Reason.BACKEND_NOT_FOUND, f"{where}: {port}")
    if refused := name_finding(ask, gateway, (target, name), where):
        return refused
    if problem := names_problem(ask, target, name):
        return Finding(Reason.FQDN_ENDPOINTS, f"{where}: {problem}")
    protocol = fixed or _FIXED.get(route[0]) or APP_PROTOCOLS.get(port.app_protocol.lower())
    if protocol is None:
        message = f"{where}: appProtocol {port.app_protocol} is not supported"
        return Finding(Reason.UNSUPPORTED_BACKEND_PROTOCOL, message)
    key = ClusterKey(target, name, reference.port, protocol)
    needs_tls = protocol == "http" and port.app_protocol.lower() in _TLS_PROTOCOLS
    if needs_tls and ask(backend_tls_policy, key) is None:
        message = f"{where}: appProtocol {port.app_protocol} needs a BackendTLSPolicy"
        return Finding(Reason.UNSUPPORTED_BACKEND_PROTOCOL, message)
    return key


def names_problem(ask: Ask, namespace: str, service: str) -> str:
    """Return the problem of a Service that has only names as endpoints; empty for others."""
    names = ask.read(slices_with_names(namespace, service))
    if not names or len(names) < len(ask.read(slices_by_service(namespace, service))):
        return ""
    message = f"Service {namespace}/{service}: EndpointSlices with addressType FQDN"
    return f"{message} are not supported: must be IPv4 or IPv6"


def backend_tls_policy(ask: Ask, key: ClusterKey) -> Key | None:
    """Return the effective BackendTLSPolicy of a cluster; None if there is none."""
    if key.protocol == "udp":
        return None
    port = ask(service_port, key.namespace, key.service, key.port, key.transport)
    if not isinstance(port, core.ServicePort):
        return None
    return ask(backend_tls.effective, (key.namespace, key.service, port.name))


GatewayCluster = tuple[Key, ClusterKey]
"""A Gateway and one of its clusters."""


def tls_resolved(ask: Ask, gateway: Key, key: ClusterKey) -> bool:
    """Return whether a cluster has no BackendTLSPolicy, or a valid one."""
    policy = ask(backend_tls_policy, key)
    return policy is None or ask(backend_tls.backend_tls_at, gateway, policy).tls is not None


def service_cluster(ask: Ask, gateway: Key, key: ClusterKey) -> ir.Cluster:
    """Return a cluster with its ready endpoints."""
    port = ask(service_port, key.namespace, key.service, key.port, key.transport)
    endpoints: set[ir.Endpoint] = set()
    external = ask(external_name, (key.namespace, key.service))
    if external:
        endpoints.add(ir.Endpoint(external, key.port))
    elif isinstance(port, core.ServicePort):
        endpoints = used_endpoints(ask, key, port)
    policy = ask(backend_tls_policy, key)
    tls = ask(backend_tls.backend_tls_at, gateway, policy).tls if policy is not None else None
    upstream = ask(effective.upstream_policy, gateway, ("Service", key.namespace, key.service))
    origin = Origin("Service", key.namespace, key.service)
    result = ir.Cluster(
        key.name,
        tuple(sorted(endpoints)),
        key.protocol,
        tls,
        upstream.settings,
        ask(name_resolution, gateway) if external else None,
        origin,
    )
    return _by_service_address(ask, key, result) if upstream.service_address else result


def used_endpoints(ask: Ask, key: ClusterKey, port: core.ServicePort) -> set[ir.Endpoint]:
    """Return the ready endpoints of a Service port; those that terminate and still serve if none
    is ready, as kube-proxy does (KEP-1669)."""
    endpoints: set[ir.Endpoint] = set()
    slices = ask.read(slices_by_service(key.namespace, key.service))
    for slice_key in slices:
        endpoints |= ask(slice_endpoints, slice_key, port.name, key.transport)
    for slice_key in slices if not endpoints else ():
        endpoints |= ask(terminating_endpoints, slice_key, port.name, key.transport)
    return endpoints


def cluster_ip_backend(ask: Ask, gateway: Key, key: ClusterKey) -> ir.Cluster:
    """Return a cluster with the Service's cluster IP as its only endpoint, if it has one."""
    return _by_service_address(ask, key, ask(service_cluster, gateway, key))


def _by_service_address(ask: Ask, key: ClusterKey, base: ir.Cluster) -> ir.Cluster:
    own = ask(service_address, (key.namespace, key.service))
    if not own or key.protocol in ("tcp", "udp") or base.resolution is not None:
        return base
    return msgspec.structs.replace(base, endpoints=(ir.Endpoint(own, key.port),))


def service_address(ask: Ask, name: tuple[str, str]) -> str:
    """Return the cluster IP of a Service; empty if it has none."""
    service = ask.read(("Service", *name))
    address = service.spec.cluster_ip if isinstance(service, core.Service) else ""
    return "" if address == "None" else address


def slice_endpoints(ask: Ask, key: Key, port: str, transport: str) -> frozenset[ir.Endpoint]:
    """Return the ready endpoints of an EndpointSlice for the Service port with a name."""
    return endpoints_of(ask.read(key), (port, transport), lambda conditions: conditions.ready)


def terminating_endpoints(ask: Ask, key: Key, port: str, transport: str) -> frozenset[ir.Endpoint]:
    """Return the endpoints of an EndpointSlice that terminate and still serve."""
    return endpoints_of(
        ask.read(key),
        (port, transport),
        lambda conditions: conditions.serving and conditions.terminating,
    )


def endpoints_of(
    endpoint_slice: object,
    port: tuple[str, str],
    is_used: Callable[[core.EndpointConditions], bool],
) -> frozenset[ir.Endpoint]:
    """Return the endpoints of an EndpointSlice with some conditions. ``port``: name and transport.

    A slice of names has none.
    """
    if not isinstance(endpoint_slice, core.EndpointSlice) or endpoint_slice.has_names:
        return frozenset()
    numbers = [
        entry.port
        for entry in endpoint_slice.ports
        if entry.name == port[0] and entry.port and entry.protocol == port[1]
    ]
    return frozenset(
        ir.Endpoint(address, number)
        for endpoint in endpoint_slice.endpoints
        if is_used(endpoint.conditions)
        for address in endpoint.addresses[:1]
        for number in numbers
    )
