"""Hosted kube-apiservers as a whole, over machines: the fixtures, and what is applied.

Real embedded API servers, `gatehouse up` with Envoy, `gatehouse node-proxy`, HAProxy and NGINX.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hosting import NODE, POOL, Cluster, Estate, NodeProxy, Place
from installation import Installation, apply, holds
from machines import CUT, POSSIBLE

from gatehouse.kube import client as kube

Object = dict[str, Any]

MARKS = [
    pytest.mark.process,
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not POSSIBLE, reason=CUT),
    pytest.mark.skipif(not shutil.which("kubectl"), reason="needs kubectl"),
]

NAMES, INSIDE = 443, 8443
ONE, TWO = ("10.1.2.3", "fd00:1::3"), ("10.1.2.4", "fd00:1::4")
PROXIES = [
    "nginx",
    pytest.param(
        "haproxy", marks=pytest.mark.skipif(not shutil.which("haproxy"), reason="no haproxy")
    ),
]


@pytest.fixture(scope="module")
def estate() -> Iterator[Estate]:
    made = Estate()
    # This process is on the hosting machine from here on.
    with made.hosting.entered():
        yield made
    made.close()


@pytest.fixture(scope="module")
def installation(estate: Estate) -> Iterator[Installation]:
    with tempfile.TemporaryDirectory(prefix="gh-") as directory:
        made = Installation(Path(directory), "--address-pool", POOL)
        made.start()
        yield made
        made.stop()


@pytest.fixture(scope="module")
def clusters(estate: Estate, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Cluster]]:
    directory = tmp_path_factory.mktemp("clusters")
    made = [Cluster(directory, "one", *ONE), Cluster(directory, "two", *TWO)]
    for each in made:
        each.start(each.directory / "log")
    yield made
    for each in made:
        each.stop()


@pytest.fixture
def node_proxy(estate: Estate, tmp_path: Path) -> Iterator[NodeProxy]:
    made = NodeProxy(estate.node, tmp_path)
    yield made
    made.stop()


def gateway(name: str = "apis", trusted: str = f"{NODE}/32") -> Object:
    every = {"allowedRoutes": {"namespaces": {"from": "All"}}}
    names = {"name": "names", "port": NAMES, "protocol": "TLS", "tls": {"mode": "Passthrough"}}
    inside = {"name": "inside", "port": INSIDE, "protocol": "gatehouse.dev/ProxyProtocol"}
    annotations = {"gatehouse.dev/trusted-proxies": trusted} if trusted else {}
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": {
            "gatewayClassName": "gatehouse-envoy",
            "listeners": [names | every, inside | every],
        },
    }


def served(
    cluster: Cluster | Place, *gateways: str, address: str = "127.0.0.1", **spec: Any
) -> list[Object]:
    """Give the Service of a cluster's kube-apiserver, its endpoints, and the HostedAPIServer."""
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
                "parentRefs": [{"name": each} for each in gateways or ("apis",)],
                "hosts": [f"api.{name}.test"],
                "service": {"name": name},
                "advertised": {"address": cluster.advertised[0]},
                "allowedSources": [],
                **spec,
            },
        },
    ]


@pytest.fixture
async def address(client: kube.Client, clusters: list[Cluster]) -> str:
    """The address of a Gateway before two clusters."""
    await apply(client, [gateway()])
    for each in clusters:
        await apply(client, served(each))
    return await programmed(client, "apis", *clusters)


async def programmed(client: kube.Client, name: str, *behind: Cluster | Place) -> str:
    """Wait for a Gateway, and what is behind it; gives its address."""
    for each in behind:
        await holds(client, "HostedAPIServer", each.name, "Programmed")
    found = await holds(client, "Gateway", name, "Programmed")
    return str(found["addresses"][0]["value"])


async def refused(ask: Callable[[], str]) -> bool:
    """Whether kubectl fails."""
    return not await reached(ask)


async def reached(ask: Callable[[], str]) -> bool:
    """Whether kubectl gets an answer."""
    return "failed" not in await asyncio.to_thread(ask)
