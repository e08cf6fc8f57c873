"""Addresses of Services of type LoadBalancer, routed to a node with a ready endpoint.

An address moves to another node when its node has no ready endpoint left. As with the load
balancers of clouds, connections stay at the node where they began.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Iterable, Iterator

import aiohttp

from cluster import layout, networks
from cluster.certificates import kubeconfig
from gatehouse.apis import resources
from gatehouse.kube import client as kube
from kube_base.types.objects import Object

POLL_SECONDS = 0.5
_SERVICE_LABEL = "kubernetes.io/service-name"


async def main() -> None:
    """Assign and route addresses until the process ends."""
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    routes: dict[str, str] = {}
    while True:
        try:
            async with kube.Client.from_kubeconfig(kubeconfig("load-balancers")) as client:
                while True:
                    await _assign(client, routes)
                    await asyncio.sleep(POLL_SECONDS)
        except (kube.ApiError, aiohttp.ClientError, OSError) as error:
            logging.info("%r", error)
            await asyncio.sleep(POLL_SECONDS)


async def _assign(client: kube.Client, routes: dict[str, str]) -> None:
    listed = (await client.list(resources.SERVICES)).items
    services = [item for item in listed if item["spec"].get("type") == "LoadBalancer"]
    slices = (await client.list(resources.ENDPOINT_SLICES)).items if services else []
    used = {address for service in services if (address := _assigned(service))}
    for service in services:
        address = _assigned(service)
        if not address:
            address = _requested(service) or next(_free_addresses(used))
            if ipaddress.ip_address(address) not in ipaddress.ip_network(layout.LOAD_BALANCERS):
                continue
            used.add(address)
            await _report(client, service, address)
        _route(address, _nodes_with_endpoints(service, slices), routes)


def _assigned(service: Object) -> str:
    ingress = service.get("status", {}).get("loadBalancer", {}).get("ingress") or [{}]
    return str(ingress[0].get("ip", ""))


def _requested(service: Object) -> str:
    return str(service["spec"].get("loadBalancerIP", ""))


def _free_addresses(used: set[str]) -> Iterator[str]:
    hosts = map(str, list(ipaddress.ip_network(layout.LOAD_BALANCERS).hosts())[9:])
    return (host for host in hosts if host not in used)


async def _report(client: kube.Client, service: Object, address: str) -> None:
    status = {"loadBalancer": {"ingress": [{"ip": address}]}}
    metadata = service["metadata"]
    await client.patch(
        resources.SERVICES,
        metadata["name"],
        {"status": status},
        metadata["namespace"],
        subresource="status",
    )


def _nodes_with_endpoints(service: Object, slices: Iterable[Object]) -> list[str]:
    metadata = service["metadata"]
    names = {
        endpoint.get("nodeName")
        for item in slices
        if item["metadata"]["namespace"] == metadata["namespace"]
        and item["metadata"].get("labels", {}).get(_SERVICE_LABEL) == metadata["name"]
        for endpoint in item.get("endpoints") or ()
        if endpoint.get("conditions", {}).get("ready", True)
    }
    return [node.address for node in layout.NODES if node.name in names]


def _route(address: str, nodes: list[str], routes: dict[str, str]) -> None:
    current = routes.get(address)
    if current in nodes or (current and not nodes):
        return
    target = nodes[0] if nodes else layout.CONTROL_PLANE.address
    networks.route("", f"{address}/32", target)
    networks.send_new_connections(layout.CLIENT, address, current, target)
    routes[address] = target
    logging.info("%s: %s", address, target)


if __name__ == "__main__":
    asyncio.run(main())
