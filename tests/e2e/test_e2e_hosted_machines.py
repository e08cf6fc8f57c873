"""Hosted kube-apiservers as a whole, over machines: kubectl outside, Pods behind a node proxy.

Real embedded API servers, `gatehouse up` with Envoy, `gatehouse node-proxy`, HAProxy and NGINX.
"""

from __future__ import annotations

import asyncio
import functools
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from dns_serving import serving
from hosting import NODE, POOL, Cluster, Estate, NodeProxy
from installation import Installation, apply, holds, until
from machines import CUT, POSSIBLE

from gatehouse.kube import client as kube

Object = dict[str, Any]

pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
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
    cluster: Cluster, *gateways: str, address: str = "127.0.0.1", **spec: Any
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
        await holds(client, "HostedAPIServer", each.name, "Programmed")
    found = await holds(client, "Gateway", "apis", "Programmed")
    return str(found["addresses"][0]["value"])


@pytest.mark.parametrize("proxy", PROXIES)
async def test_kubectl_of_a_pod_reaches_its_own_cluster_and_no_other(
    estate: Estate, clusters: list[Cluster], address: str, node_proxy: NodeProxy, proxy: str
) -> None:
    one, two = clusters
    start = functools.partial(node_proxy.start, f"{address}:{INSIDE}", ONE, "--proxy", proxy)
    await asyncio.to_thread(start)
    assert one.user_seen(estate.pod, f"https://{ONE[0]}") == "one-admin"
    # The certificate of another cluster's client is nobody's here.
    assert "failed" in one.user_seen(estate.pod, f"https://{ONE[0]}", files=two.files)
    # The node has no way to the other cluster's address.
    assert "failed" in two.user_seen(estate.pod, f"https://{TWO[0]}")
    # Its own address of the other family is not registered with the gateway.
    assert "failed" in one.user_seen(estate.pod, f"https://[{ONE[1]}]")


async def test_kubectl_outside_chooses_its_cluster_by_name(
    estate: Estate, clusters: list[Cluster], client: kube.Client, address: str, tmp_path: Path
) -> None:
    one, two = clusters
    with serving(estate.outside, "api.one.test", "api.two.test", "api.three.test") as dns:
        dns.answers(address)
        for cluster in clusters:
            url = f"https://api.{cluster.name}.test"
            assert cluster.user_seen(estate.outside, url, dns.file) == cluster.user
        assert "failed" in one.user_seen(estate.outside, "https://api.three.test", dns.file)
        # An address is no name: nothing is chosen.
        assert "failed" in one.user_seen(estate.outside, f"https://{address}")
        # Who comes from elsewhere than the list says meets nobody; the other way is open still.
        await apply(client, served(two, allowedSources=["192.0.2.128/25"]))
        ask = functools.partial(two.user_seen, estate.outside, "https://api.two.test", dns.file)
        await until(lambda: _refused(ask))
        await apply(client, served(two, allowedSources=["192.0.2.0/25"]))
        await until(lambda: _reached(ask))
        await apply(client, served(two, allowedSources=[]))


async def _refused(ask: Callable[[], str]) -> bool:
    return "failed" in await asyncio.to_thread(ask)


async def _reached(ask: Callable[[], str]) -> bool:
    return "failed" not in await asyncio.to_thread(ask)
