"""NetworkPolicy of a Gateway's data plane: allowed clients and servers. No I/O."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

import msgspec

from gatehouse.apis.data_plane_workload import NetworkOptions
from gatehouse.controller.provisioner.service import Ports
from kube_base.types.objects import Object

DNS_PORT = 53

IN_CLUSTER: tuple[Object, ...] = ({"namespaceSelector": {}},)
"""All Pods of the cluster; no addresses outside it."""


class ReachableServer(msgspec.Struct, frozen=True):
    """A server that every data plane must reach."""

    host: str
    """DNS name of a Service, an IP address, or any other name."""
    ports: tuple[int, ...]
    """Ports of the Service and of its Pods. Implementations differ in which of them they match."""


def network_policy_spec(
    listening: Ports,
    health: int,
    selector: Mapping[str, str],
    options: NetworkOptions,
    servers: tuple[ReachableServer, ...],
) -> Object:
    """Return the ``spec`` of the NetworkPolicy.

    All clients reach the ports of listeners. The node of a Pod always reaches all ports, so that
    probes need no rule. Backends are only known as endpoints, and a policy takes effect later than
    a configuration. Therefore egress is unrestricted unless ``options`` restricts it.
    """
    ingress: list[Object] = []
    if listening:
        ports = [{"port": port, "protocol": protocol} for port, protocol in listening]
        ingress.append({"ports": ports})
    metrics_clients = IN_CLUSTER if options.metrics_from is None else options.metrics_from
    if metrics_clients:
        ingress.append({"ports": [_tcp(health)], "from": [*metrics_clients]})
    dns = [{"port": DNS_PORT, "protocol": protocol} for protocol in ("UDP", "TCP")]
    egress: list[Object] = [{"ports": dns}, *map(_to, servers)]
    if options.egress_to is None:
        egress.append({})
    elif options.egress_to:
        egress.append({"to": [*options.egress_to]})
    return {
        "podSelector": {"matchLabels": dict(selector)},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": ingress,
        "egress": egress,
    }


def _to(server: ReachableServer) -> Object:
    rule: Object = {"ports": [_tcp(port) for port in dict.fromkeys(server.ports)]}
    peers = peers_of(server.host)
    return rule | {"to": peers} if peers else rule


def peers_of(host: str) -> list[Object]:
    """Return policy peers for a host: a Service's namespace or an address; none for other names."""
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        labels = host.split(".")
        if len(labels) < 3 or labels[2] != "svc":
            return []
        return [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": labels[1]}}}]
    return [{"ipBlock": {"cidr": f"{address}/{address.max_prefixlen}"}}]


def _tcp(port: int) -> Object:
    return {"port": port, "protocol": "TCP"}
