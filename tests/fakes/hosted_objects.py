"""Objects of hosted kube-apiservers, and access to them by kubectl."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from fakes.hosting import NODE, Cluster, Place
from fakes.installation import holds
from gatehouse.kube import client as kube

Object = dict[str, Any]

NAMES, INSIDE, TUNNELS = 443, 8443, 8444
ONE, TWO = ("10.1.2.3", "fd00:1::3"), ("10.1.2.4", "fd00:1::4")


def gateway(name: str = "apis", trusted: str = f"{NODE}/32") -> Object:
    every = {"allowedRoutes": {"namespaces": {"from": "All"}}}
    names = {"name": "names", "port": NAMES, "protocol": "TLS", "tls": {"mode": "Passthrough"}}
    inside = {"name": "inside", "port": INSIDE, "protocol": "gatehouse.dev/ProxyProtocol"}
    tunnels = {"name": "tunnels", "port": TUNNELS, "protocol": "gatehouse.dev/HTTPConnect"}
    annotations = {"gatehouse.dev/trusted-proxies": trusted} if trusted else {}
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": {
            "gatewayClassName": "gatehouse-envoy",
            "listeners": [names | every, inside | every, tunnels | every],
        },
    }


def served(
    cluster: Cluster | Place, *gateways: str, address: str = "127.0.0.1", **spec: Any
) -> list[Object]:
    """Return the Service of a cluster's kube-apiserver, its endpoints, and the HostedAPIServer."""
    name, port = cluster.name, {"name": "https", "protocol": "TCP"}
    meta: Object = {"name": name, "namespace": "default"}
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": meta,
            "spec": {"ports": [port | {"port": 443}]},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": meta | {"labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4",
            "ports": [port | {"port": cluster.port}],
            "endpoints": [{"addresses": [address]}],
        },
        {
            "apiVersion": "gatehouse.dev/v1alpha1",
            "kind": "HostedAPIServer",
            "metadata": meta,
            "spec": {
                "parentRefs": [{"name": gateway_name} for gateway_name in gateways or ("apis",)],
                "hosts": [f"api.{name}.test"],
                "service": {"name": name},
                "advertiseAddress": cluster.advertised[0],
                "allowedSources": [],
                **spec,
            },
        },
    ]


async def programmed(client: kube.Client, name: str, *behind: Cluster | Place) -> str:
    """Wait for a Gateway and its backends. Return its address."""
    for hosted_cluster in behind:
        await holds(client, "HostedAPIServer", hosted_cluster.name, "Programmed")
    condition = await holds(client, "Gateway", name, "Programmed")
    return str(condition["addresses"][0]["value"])


async def is_rejected(ask: Callable[[], str]) -> bool:
    """Return whether kubectl fails."""
    return not await is_reachable(ask)


async def is_reachable(ask: Callable[[], str]) -> bool:
    """Return whether kubectl gets a response."""
    return "failed" not in await asyncio.to_thread(ask)
