"""backendRefs: from a reference to a cluster, or why requests of its share get status 500."""

from __future__ import annotations

import msgspec

from gatehouse.apis import core, resources, routes
from gatehouse.apis.gateway import GATEWAY_API_GROUP
from gatehouse.compiler.frontends.gateway_api.cluster_key import (
    INFERENCE_POOL,
    SERVICE,
    X_BACKEND,
    ClusterKey,
    Protocol,
)
from gatehouse.compiler.frontends.gateway_api.extensions import effective
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.inputs import GatewayObject
from gatehouse.compiler.frontends.gateway_api.reference_grants import Reference, permitted
from gatehouse.compiler.frontends.gateway_api.routes import backend_tls, x_backends
from gatehouse.compiler.frontends.gateway_api.routes.external_names import (
    external_name,
    name_finding,
    name_resolution,
)
from gatehouse.compiler.frontends.gateway_api.routes.inference_pools import (
    endpoint_picker,
    is_pool_reference,
    picker_of,
    resolve_pool,
    unverified_tls,
)
from gatehouse.compiler.frontends.gateway_api.routes.service_ports import (
    backend_tls_policy,
    cluster_port,
    names_problem,
    service_address,
    service_port,
    used_endpoints,
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

_GROUPS = {
    SERVICE: resources.SERVICES.group,
    X_BACKEND: resources.X_BACKENDS.group,
}
"""Groups of the kinds of backends."""

_FROM = {resources.SECURITY_POLICIES.kind: resources.SECURITY_POLICIES.group}
"""Groups of the kinds of objects that refer to backends, if they are not of Gateway API."""

_WITH_POOLS = ("HTTPRoute", "GRPCRoute")
"""Kinds of routes that may refer to InferencePools."""

BackendReference = routes.BackendRef | routes.BackendObject


def resolve_backend(
    ask: Ask,
    at: GatewayObject,
    reference: BackendReference,
    where: str,
    fixed: Protocol | None = None,
) -> ClusterKey | Finding:
    """Return the cluster that a route or policy refers to at a Gateway, or a finding.

    ``fixed``: the protocol, whatever ``appProtocol`` is.
    """
    gateway, route = at
    target = reference.namespace or route[1]
    group, kind, name = reference.group, reference.kind, reference.name
    if kind == INFERENCE_POOL and route[0] in _WITH_POOLS and is_pool_reference(reference):
        return resolve_pool(ask, at, reference, where)
    if _GROUPS.get(kind) != group:
        message = f"{where}: kind {f'{group}/{kind}'.lstrip('/')} is not supported: "
        return Finding(Reason.INVALID_KIND, f"{message}must be Service or XBackend")
    group_of_source = _FROM.get(route[0], GATEWAY_API_GROUP)
    across = Reference(group_of_source, route[0], route[1], group, kind, target, name)
    if not ask(permitted, across):
        message = f"{where}: {kind} {target}/{name} not allowed by any ReferenceGrant"
        return Finding(Reason.REF_NOT_PERMITTED, message)
    if kind == X_BACKEND:
        return _x_backend(ask, at, reference, where, fixed)
    if reference.port is None:
        return Finding(Reason.BACKEND_NOT_FOUND, f"{where}.port: must be set")
    transport = "UDP" if route[0] == "UDPRoute" else "TCP"
    port = ask(service_port, target, name, reference.port, transport)
    if isinstance(port, str):
        return Finding(Reason.BACKEND_NOT_FOUND, f"{where}: {port}")
    if refused := name_finding(ask, gateway, (SERVICE, target, name)):
        return Finding(refused.reason, f"{where}: {refused.message}")
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


def _x_backend(
    ask: Ask, at: GatewayObject, reference: BackendReference, where: str, fixed: Protocol | None
) -> ClusterKey | Finding:
    """Return the cluster of an XBackend, or a finding."""
    gateway, route = at
    key = (X_BACKEND, reference.namespace or route[1], reference.name)
    if refused := ask(x_backends.x_backend_problem, gateway, key):
        return Finding(refused.reason, f"{where}: {refused.message}")
    if reference.port is not None:
        message = f"{where}.port: must not be set: XBackend {key[1]}/{key[2]} has the port"
        return Finding(Reason.BACKEND_NOT_FOUND, message)
    backend = ask.read(key)
    # An authorization server that speaks HTTP is a backend like that of an HTTPRoute.
    kind = "GRPCRoute" if fixed == "grpc" else "HTTPRoute" if route[0] in _FROM else route[0]
    protocol = x_backends.protocol_of(backend, kind)
    if protocol is None:
        own = f"spec.protocol {backend.spec.protocol or '(not set)'}"
        message = f"{where}: XBackend {key[1]}/{key[2]}: {own} is not supported by {kind}"
        return Finding(Reason.UNSUPPORTED_BACKEND_PROTOCOL, message)
    return ClusterKey(*key[1:], backend.spec.port.number, protocol, X_BACKEND)


GatewayCluster = tuple[Key, ClusterKey]
"""A Gateway and one of its clusters."""


def tls_resolved(ask: Ask, gateway: Key, key: ClusterKey) -> bool:
    """Return whether a cluster and its endpoint picker have no TLS settings, or valid ones."""
    if key.kind == INFERENCE_POOL:
        picker = ask(picker_of, key.namespace, key.service).cluster
        return picker is None or ask(tls_resolved, gateway, picker)
    policy = ask(backend_tls_policy, key)
    return policy is None or ask(backend_tls.backend_tls_at, gateway, policy).tls is not None


def service_cluster(ask: Ask, gateway: Key, key: ClusterKey) -> ir.Cluster:
    """Return a cluster with its ready endpoints."""
    port = cluster_port(ask, key)
    endpoints: set[ir.Endpoint] = set()
    backend = (key.kind, key.namespace, key.service)
    external = ask(external_name, backend)
    if external:
        endpoints.add(ir.Endpoint(external, key.port))
    elif isinstance(port, core.ServicePort):
        endpoints = used_endpoints(ask, key, port)
    policy = ask(backend_tls_policy, key)
    tls = ask(backend_tls.backend_tls_at, gateway, policy).tls if policy is not None else None
    if policy is None and key.is_picker:
        tls = unverified_tls(ask, key)
    upstream = ask(effective.upstream_policy, gateway, backend)
    origin = Origin(*backend)
    result = ir.Cluster(
        key.name,
        tuple(sorted(endpoints)),
        key.protocol,
        tls,
        upstream.upstream,
        ask(name_resolution, gateway) if external else None,
        origin,
        endpoint_picker(ask, key) if key.kind == INFERENCE_POOL else None,
        key.is_picker,
    )
    return _by_service_address(ask, key, result) if upstream.service_address else result


def cluster_ip_backend(ask: Ask, gateway: Key, key: ClusterKey) -> ir.Cluster:
    """Return a cluster with the Service's cluster IP as its only endpoint, if it has one."""
    return _by_service_address(ask, key, ask(service_cluster, gateway, key))


def _by_service_address(ask: Ask, key: ClusterKey, base: ir.Cluster) -> ir.Cluster:
    if key.kind != SERVICE:
        return base
    own = ask(service_address, (key.namespace, key.service))
    if not own or key.protocol in ("tcp", "udp") or base.resolution is not None:
        return base
    return msgspec.structs.replace(base, endpoints=(ir.Endpoint(own, key.port),))
