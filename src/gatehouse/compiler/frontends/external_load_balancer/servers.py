"""Servers of a Service port: Nodes, endpoints, or addresses of another load balancer."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from gatehouse.apis import external_services
from gatehouse.apis.external_load_balancers import Spec
from gatehouse.compiler.frontends.external_load_balancer.addresses import placed_address
from gatehouse.compiler.frontends.external_load_balancer.findings import Finding, Reason
from gatehouse.compiler.frontends.external_load_balancer.nodes import pool
from gatehouse.compiler.frontends.external_load_balancer.sources import spec_of
from gatehouse.compiler.ir.load_balancing import Server
from gatehouse.incremental.query import Ask, Key


class ServersResult(msgspec.Struct, frozen=True):
    """The servers of a port, or a finding if there are none."""

    servers: tuple[Server, ...] = ()
    finding: Finding | None = None


def servers(ask: Ask, which: tuple[Key, Key, str]) -> ServersResult:
    """Return the servers of a Service port, as configured for a load balancer."""
    balancer, key, name = which
    spec, service = ask(spec_of, balancer), ask.read(key)
    if isinstance(spec, Finding) or not isinstance(service, external_services.Service):
        return ServersResult()
    port = next((each for each in service.spec.ports if each.name == name), None)
    if port is None:
        return ServersResult()
    where = f"Service {key[1]}/{key[2]}: port {name!r}"
    by_ingress = spec.services.load_balancer_servers == "Ingress" or not port.node_port
    match service.spec.type:
        case "ClusterIP":
            found, why = _by_endpoints(ask, key, port), "no ready endpoint found"
        case "LoadBalancer" if by_ingress:
            found, why = _by_ingress(service, port), "no IP address found in status.loadBalancer"
        case "NodePort" | "LoadBalancer" if port.node_port:
            found, why = (
                _by_nodes(ask, balancer, key, service, port, spec),
                "no suitable Node found",
            )
        case "NodePort":
            found, why = (), "nodePort not found"
        case other:
            message = f"{where}: Service type {other} is not supported"
            return ServersResult(finding=Finding(Reason.INVALID_PORT, message))
    if not found:
        return ServersResult(finding=Finding(Reason.NO_SERVERS, f"{where}: {why}"))
    return ServersResult(found)


def _by_nodes(
    ask: Ask,
    balancer: Key,
    key: Key,
    service: external_services.Service,
    port: external_services.ServicePort,
    spec: Spec,
) -> tuple[Server, ...]:
    members = ask(pool, balancer)
    if service.spec.external_traffic_policy == "Local" or spec.nodes.only_with_endpoints:
        # With externalTrafficPolicy Local, a Node without an endpoint drops connections.
        serving = ask(_serving_nodes, key)
        members = tuple(member for member in members if member.node in serving)
    families = service.spec.ip_families
    suffix = f":{port.node_port}"
    found: dict[str, bool] = {}
    for member in members:
        if not families or member.family in families:
            # Two Nodes with one address are one server: a machine's old Node and its new one.
            address = member.host + suffix
            found[address] = found.get(address, True) and member.draining
    return tuple(Server(address, draining) for address, draining in found.items())


def _serving_nodes(ask: Ask, service: Key) -> frozenset[str]:
    slices = (ask.read(key) for key in ask.read(("@slices", *service[1:])))
    return frozenset(
        endpoint.node_name
        for each in slices
        if isinstance(each, external_services.EndpointSlice)
        for endpoint in each.endpoints
        if endpoint.conditions.ready and endpoint.node_name
    )


def _by_endpoints(
    ask: Ask, service: Key, port: external_services.ServicePort
) -> tuple[Server, ...]:
    found: dict[str, bool] = {}
    for key in ask.read(("@slices", *service[1:])):
        for address, draining in _slice_addresses(ask.read(key), port):
            # An address may be in two slices while endpoints move; it is ready if one says so.
            found[address] = found.get(address, True) and draining
    return tuple(Server(address, found[address]) for address in sorted(found))


def _slice_addresses(
    found: object, port: external_services.ServicePort
) -> Iterator[tuple[str, bool]]:
    """Yield the addresses of an EndpointSlice, each with whether it is draining."""
    if not isinstance(found, external_services.EndpointSlice):
        return
    numbers = [each.port for each in found.ports if each.name == port.name and each.port]
    for endpoint in found.endpoints:
        says = endpoint.conditions
        leaving = not says.ready and says.terminating and says.serving is True
        if not numbers or not endpoint.addresses or not (says.ready or leaving):
            continue
        # All addresses of an endpoint are fungible: the first one is used (EndpointSlice API).
        placed = placed_address(endpoint.addresses[0])
        if placed is not None:
            yield f"{placed[0]}:{numbers[0]}", leaving


def _by_ingress(
    service: external_services.Service, port: external_services.ServicePort
) -> tuple[Server, ...]:
    found = (placed_address(each.ip) for each in service.status.load_balancer.ingress if each.ip)
    hosts = dict.fromkeys(placed[0] for placed in found if placed is not None)
    return tuple(Server(f"{host}:{port.port}") for host in hosts)
