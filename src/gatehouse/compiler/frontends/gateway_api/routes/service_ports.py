"""Ports of backends: their endpoints, and the objects with their TLS settings."""

from __future__ import annotations

from collections.abc import Callable

from gatehouse.apis import backends, core
from gatehouse.compiler.frontends.gateway_api.cluster_key import (
    INFERENCE_POOL,
    SERVICE,
    X_BACKEND,
    ClusterKey,
)
from gatehouse.compiler.frontends.gateway_api.inputs import slices_by_service, slices_with_names
from gatehouse.compiler.frontends.gateway_api.routes import backend_tls
from gatehouse.compiler.frontends.gateway_api.routes.pod_selections import selecting_service
from gatehouse.compiler.ir import http as ir
from gatehouse.incremental.query import Ask, Key

ALL_PORTS = "*"
"""In the place of a port's name: all ports of the EndpointSlices."""


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


def cluster_port(ask: Ask, key: ClusterKey) -> core.ServicePort | str:
    """Return the Service port with the endpoints of a cluster, or the problem. The Service of an
    XBackend has one port, without a name. All ports of that of an InferencePool are used."""
    if key.kind == INFERENCE_POOL:
        return core.ServicePort(key.port, name=ALL_PORTS)
    if key.kind == X_BACKEND:
        return core.ServicePort(key.port)
    result: core.ServicePort | str = ask(
        service_port, key.namespace, key.service, key.port, key.transport
    )
    return result


def backend_slices(ask: Ask, kind: str, namespace: str, name: str) -> tuple[Key, ...]:
    """Return the EndpointSlices of a backend."""
    if kind != SERVICE:
        selection = ask(selecting_service, (kind, namespace, name))
        if selection is None:
            return ()
        name = selection.name
    slices: tuple[Key, ...] = ask.read(slices_by_service(namespace, name))
    return slices


def names_problem(ask: Ask, namespace: str, service: str) -> str:
    """Return the problem of a Service that has only names as endpoints; empty for others."""
    names = ask.read(slices_with_names(namespace, service))
    if not names or len(names) < len(ask.read(slices_by_service(namespace, service))):
        return ""
    message = f"Service {namespace}/{service}: EndpointSlices with addressType FQDN"
    return f"{message} are not supported: must be IPv4 or IPv6"


def backend_tls_policy(ask: Ask, key: ClusterKey) -> Key | None:
    """Return the object with the TLS settings of a cluster: the effective BackendTLSPolicy of a
    Service, or an XBackend itself. None if there is none."""
    if key.protocol == "udp" or key.kind == INFERENCE_POOL:
        return None
    if key.kind == X_BACKEND:
        holder = (X_BACKEND, key.namespace, key.service)
        return holder if ask.read(holder).spec.tls.mode != backends.NO_TLS else None
    port = cluster_port(ask, key)
    if not isinstance(port, core.ServicePort):
        return None
    return ask(backend_tls.effective, (key.namespace, key.service, port.name))


def used_endpoints(ask: Ask, key: ClusterKey, port: core.ServicePort) -> set[ir.Endpoint]:
    """Return the ready endpoints of a Service port; those that terminate and still serve if none
    is ready, as kube-proxy does (KEP-1669)."""
    endpoints: set[ir.Endpoint] = set()
    slices = backend_slices(ask, key.kind, key.namespace, key.service)
    for slice_key in slices:
        endpoints |= ask(slice_endpoints, slice_key, port.name, key.transport)
    for slice_key in slices if not endpoints else ():
        endpoints |= ask(terminating_endpoints, slice_key, port.name, key.transport)
    return endpoints


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
        if port[0] in (entry.name, ALL_PORTS) and entry.port and entry.protocol == port[1]
    ]
    return frozenset(
        ir.Endpoint(address, number)
        for endpoint in endpoint_slice.endpoints
        if is_used(endpoint.conditions)
        for address in endpoint.addresses[:1]
        for number in numbers
    )
