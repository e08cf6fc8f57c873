"""The NetworkPolicy of a Gateway's data planes: who reaches them, and whom they reach. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

import msgspec

from gatehouse.apis.data_plane_workload import NetworkOptions
from gatehouse.controller.provisioner.service import Ports

Object = dict[str, Any]

DNS_PORT = 53

IN_CLUSTER: tuple[Object, ...] = ({"namespaceSelector": {}},)
"""All Pods of the cluster, and nobody outside of it."""


class Server(msgspec.Struct, frozen=True):
    """What every data plane must reach."""

    host: str
    """A Service's name in the DNS, an address, or any other name."""
    ports: tuple[int, ...]
    """Of the Service and of its Pods: it is not laid down which of them a policy sees."""


def spec(
    listening: Ports,
    health: int,
    selector: Mapping[str, str],
    options: NetworkOptions,
    servers: tuple[Server, ...],
) -> Object:
    """Give the ``spec``.

    Everybody reaches the listeners' ports. The node of a Pod reaches all of them whatever is said
    here, so that probes need no rule. Where backends are is known only endpoint by endpoint, and a
    policy takes effect later than a configuration: they are anywhere unless ``options`` says where.
    """
    ingress: list[Object] = []
    if listening:
        ports = [{"port": port, "protocol": protocol} for port, protocol in listening]
        ingress.append({"ports": ports})
    readers = IN_CLUSTER if options.metrics_from is None else options.metrics_from
    if readers:
        ingress.append({"ports": [_tcp(health)], "from": [*readers]})
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


def _to(server: Server) -> Object:
    rule: Object = {"ports": [_tcp(port) for port in dict.fromkeys(server.ports)]}
    peers = peers_of(server.host)
    return rule | {"to": peers} if peers else rule


def peers_of(host: str) -> list[Object]:
    """Give who is meant by a host: a Service's namespace, an address; nothing for other names."""
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
