"""backendRefs: from a reference to a cluster, or why requests of its share get status 500."""

from __future__ import annotations

import msgspec

from gatehouse.apis import core, routes
from gatehouse.apis.gateway import GATEWAY_API_GROUP
from gatehouse.compiler.frontends.gateway_api.cluster_key import ClusterKey, Protocol
from gatehouse.compiler.frontends.gateway_api.extensions import effective
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.inputs import GatewayObject
from gatehouse.compiler.frontends.gateway_api.reference_grants import Reference, permitted
from gatehouse.compiler.frontends.gateway_api.routes import backend_tls
from gatehouse.compiler.frontends.gateway_api.routes.external_names import (
    external_name,
    name_finding,
    name_resolution,
)
from gatehouse.compiler.frontends.gateway_api.routes.service_ports import (
    backend_tls_policy,
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

BackendReference = routes.BackendRef | routes.BackendObject


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


def cluster_ip_backend(ask: Ask, gateway: Key, key: ClusterKey) -> ir.Cluster:
    """Return a cluster with the Service's cluster IP as its only endpoint, if it has one."""
    return _by_service_address(ask, key, ask(service_cluster, gateway, key))


def _by_service_address(ask: Ask, key: ClusterKey, base: ir.Cluster) -> ir.Cluster:
    own = ask(service_address, (key.namespace, key.service))
    if not own or key.protocol in ("tcp", "udp") or base.resolution is not None:
        return base
    return msgspec.structs.replace(base, endpoints=(ir.Endpoint(own, key.port),))
