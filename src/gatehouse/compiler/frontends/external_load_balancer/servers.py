"""Servers of a Service port: Nodes, endpoints, or addresses of another load balancer."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from gatehouse.apis import external_services
from gatehouse.apis.external_load_balancers import LoadBalancerSpec
from gatehouse.compiler.frontends.external_load_balancer.addresses import placed_address
from gatehouse.compiler.frontends.external_load_balancer.findings import (
    LoadBalancerFinding,
    LoadBalancerReason,
)
from gatehouse.compiler.frontends.external_load_balancer.nodes import pool
from gatehouse.compiler.frontends.external_load_balancer.sources import spec_of
from gatehouse.compiler.ir.load_balancing import UpstreamServer
from gatehouse.incremental.query import Ask, Key


class ServersResult(msgspec.Struct, frozen=True):
    """The servers of a port, or a finding if there are none."""

    servers: tuple[UpstreamServer, ...] = ()
    finding: LoadBalancerFinding | None = None


def upstream_servers(ask: Ask, balancer: Key, key: Key, name: str) -> ServersResult:
    """Return the servers of a Service port, as configured for a load balancer."""
    spec, service = ask(spec_of, balancer), ask.read(key)
    if isinstance(spec, LoadBalancerFinding) or not isinstance(
        service, external_services.ExternalService
    ):
        return ServersResult()
    port = next((candidate for candidate in service.spec.ports if candidate.name == name), None)
    if port is None:
        return ServersResult()
    where = f"Service {key[1]}/{key[2]}: port {name!r}"
    by_ingress = spec.services.load_balancer_servers == "Ingress" or not port.node_port
    match service.spec.type:
        case "ClusterIP":
            addresses, why = _by_endpoints(ask, key, port), "no ready endpoint found"
        case "LoadBalancer" if by_ingress:
            addresses, why = (
                _by_ingress(service, port),
                "no IP address found in status.loadBalancer",
            )
        case "NodePort" | "LoadBalancer" if port.node_port:
            addresses, why = (
                _by_nodes(ask, balancer, key, service, port, spec),
                "no suitable Node found",
            )
        case "NodePort":
            addresses, why = (), "nodePort not found"
        case other:
            message = f"{where}: Service type {other} is not supported"
            return ServersResult(
                finding=LoadBalancerFinding(LoadBalancerReason.INVALID_PORT, message)
            )
    if not addresses:
        return ServersResult(
            finding=LoadBalancerFinding(LoadBalancerReason.NO_SERVERS, f"{where}: {why}")
        )
    return ServersResult(addresses)


def _by_nodes(
    ask: Ask,
    balancer: Key,
    key: Key,
    service: external_services.ExternalService,
    port: external_services.ExternalServicePort,
    spec: LoadBalancerSpec,
) -> tuple[UpstreamServer, ...]:
    members = ask(pool, balancer)
    if service.spec.external_traffic_policy == "Local" or spec.nodes.only_with_endpoints:
        # With externalTrafficPolicy Local, a Node without an endpoint drops connections.
        serving = ask(_serving_nodes, key)
        members = tuple(member for member in members if member.node in serving)
    families = service.spec.ip_families
    suffix = f":{port.node_port}"
    result: dict[str, bool] = {}
    for member in members:
        if not families or member.family in families:
            # Two Nodes with one address are one server: a machine's old Node and its new one.
            address = member.host + suffix
            result[address] = result.get(address, True) and member.draining
    return tuple(UpstreamServer(address, draining) for address, draining in result.items())


def _serving_nodes(ask: Ask, service: Key) -> frozenset[str]:
    slices = (ask.read(key) for key in ask.read(("@slices", *service[1:])))
    return frozenset(
        endpoint.node_name
        for piece in slices
        if isinstance(piece, external_services.ExternalEndpointSlice)
        for endpoint in piece.endpoints
        if endpoint.conditions.ready and endpoint.node_name
    )


def _by_endpoints(
    ask: Ask, service: Key, port: external_services.ExternalServicePort
) -> tuple[UpstreamServer, ...]:
    result: dict[str, bool] = {}
    for key in ask.read(("@slices", *service[1:])):
        for address, draining in _slice_addresses(ask.read(key), port):
            # An address may be in two slices while endpoints move; it is ready if one says so.
            result[address] = result.get(address, True) and draining
    return tuple(UpstreamServer(address, result[address]) for address in sorted(result))


def _slice_addresses(
    endpoint_slice: object, port: external_services.ExternalServicePort
) -> Iterator[tuple[str, bool]]:
    """Yield the addresses of an EndpointSlice, each with whether it is draining."""
    if not isinstance(endpoint_slice, external_services.ExternalEndpointSlice):
        return
    numbers = [
        candidate.port
        for candidate in endpoint_slice.ports
        if candidate.name == port.name and candidate.port
    ]
    for endpoint in endpoint_slice.endpoints:
        says = endpoint.conditions
        leaving = not says.ready and says.terminating and says.serving is True
        if not numbers or not endpoint.addresses or not (says.ready or leaving):
            continue
        # All addresses of an endpoint are fungible: the first one is used (EndpointSlice API).
        placed = placed_address(endpoint.addresses[0])
        if placed is not None:
            yield f"{placed[0]}:{numbers[0]}", leaving


def _by_ingress(
    service: external_services.ExternalService, port: external_services.ExternalServicePort
) -> tuple[UpstreamServer, ...]:
    addresses = (
        placed_address(ingress.ip) for ingress in service.status.load_balancer.ingress if ingress.ip
    )
    hosts = dict.fromkeys(placed[0] for placed in addresses if placed is not None)
    return tuple(UpstreamServer(f"{host}:{port.port}") for host in hosts)
