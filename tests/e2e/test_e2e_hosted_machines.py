"""Access to hosted kube-apiservers: kubectl outside, Pods behind a node proxy."""

from __future__ import annotations

import asyncio
import functools
import shutil
import sys
from collections.abc import Awaitable
from pathlib import Path

import pytest
import yaml

from fakes import watch_connections
from fakes.apiservers import version_2
from fakes.dns_server import serving
from fakes.envoys import ENVOY
from fakes.hosted_fixtures import (
    MARKS,
    PROXIES,
    address,
    clusters,
    estate,
    node_proxy,
    options,
)
from fakes.hosted_objects import (
    INSIDE,
    ONE,
    TUNNELS,
    TWO,
    gateway,
    is_reachable,
    is_rejected,
    programmed,
    served,
)
from fakes.hosting import NODE, SERVICE_NAME, Cluster, Estate, NodeProxy
from fakes.installation import apply
from fakes.patience import until
from gatehouse.kube import client as kube

__all__ = ["address", "clusters", "estate", "options", "node_proxy"]

pytestmark = MARKS


@pytest.mark.parametrize("proxy", PROXIES)
async def test_kubectl_in_a_pod_reaches_its_own_cluster_only(
    estate: Estate, clusters: list[Cluster], address: str, node_proxy: NodeProxy, proxy: str
) -> None:
    one, two = clusters
    start = functools.partial(node_proxy.start, f"{address}:{INSIDE}", ONE, "--proxy", proxy)
    await asyncio.to_thread(start)
    assert one.user_seen(estate.pod, f"https://{ONE[0]}") == "one-admin"
    # A client certificate of another cluster is not valid here.
    assert "failed" in one.user_seen(estate.pod, f"https://{ONE[0]}", files=two.files)
    # The node has no way to the other cluster's address.
    assert "failed" in two.user_seen(estate.pod, f"https://{TWO[0]}")
    # Its own address of the other family is not registered with the gateway.
    assert "failed" in one.user_seen(estate.pod, f"https://[{ONE[1]}]")


async def test_kubectl_in_a_pod_reaches_its_own_cluster_by_tunnel(
    estate: Estate, clusters: list[Cluster], address: str, node_proxy: NodeProxy
) -> None:
    one, two = clusters
    flags = ("--transport", "connect", "--proxy-path", str(ENVOY))
    await asyncio.to_thread(node_proxy.start, f"{address}:{TUNNELS}", ONE, *flags)
    assert one.user_seen(estate.pod, f"https://{ONE[0]}") == "one-admin"
    assert "failed" in one.user_seen(estate.pod, f"https://{ONE[0]}", files=two.files)
    assert "failed" in one.user_seen(estate.pod, f"https://[{ONE[1]}]")


async def test_kubectl_outside_selects_its_cluster_by_hostname(
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
        # Clients outside allowedSources reach no cluster.
        await apply(client, served(two, allowedSources=["192.0.2.128/25"]))
        ask = functools.partial(two.user_seen, estate.outside, "https://api.two.test", dns.file)
        await until(lambda: is_rejected(ask))
        await apply(client, served(two, allowedSources=["192.0.2.0/25"]))
        await until(lambda: is_reachable(ask))


@pytest.mark.parametrize("proxy", PROXIES)
async def test_master_service_hostname_leads_to_the_own_cluster(
    estate: Estate, clusters: list[Cluster], address: str, node_proxy: NodeProxy, proxy: str
) -> None:
    flags = ["--gateway", f"{address}:{INSIDE}", "--address", ONE[0], "--image", "some"]
    printed = estate.node.run(
        *(sys.executable, "-m", "gatehouse", "node-proxy", "manifests", *flags),
        *("--kubernetes-service-mode", "names"),
    )
    (zone,) = (
        document["data"]["kubernetes.zone"]
        for document in yaml.safe_load_all(printed)
        if document["kind"] == "ConfigMap"
    )
    start = functools.partial(node_proxy.start, f"{address}:{INSIDE}", ONE[:1], "--proxy", proxy)
    await asyncio.to_thread(start)
    with serving(estate.pod) as dns:
        dns.serve(zone)
        for name in ("kubernetes.default.svc", SERVICE_NAME):
            words = clusters[0].user_seen(estate.pod, f"https://{name}", dns.file)
            assert words == "one-admin"
        # The shortest name is resolved as well, and no name of the certificate.
        words = clusters[0].user_seen(estate.pod, "https://kubernetes", dns.file)
        assert "not kubernetes" in words


@pytest.mark.skipif(
    not (shutil.which("nft") and shutil.which("conntrack")), reason="needs nft and conntrack"
)
async def test_connections_of_pods_are_not_tracked(
    estate: Estate, clusters: list[Cluster], address: str, node_proxy: NodeProxy
) -> None:
    # With a rule that needs tracking, the kernel tracks all connections without a notrack rule.
    for words in (
        "add table inet other",
        "add chain inet other seen { type filter hook input priority 10 ; policy accept ; }",
        "add rule inet other seen ct state established accept",
    ):
        estate.node.run("nft", *words.split())
    await asyncio.to_thread(node_proxy.start, f"{address}:{INSIDE}", ONE[:1])
    held = await watch_connections.watch(estate.pod, (ONE[0], 443), clusters[0], SERVICE_NAME)
    tracked = estate.node.run("conntrack", "-L", "-f", "ipv4", check=False).splitlines()
    held.close()
    estate.node.run("nft", "delete", "table", "inet", "other")
    assert any(address in line for line in tracked), "nothing is tracked at all"
    assert not [line for line in tracked if ONE[0] in line]


async def test_proxy_protocol_destination_is_accepted_from_trusted_proxy_only(
    estate: Estate, clusters: list[Cluster], client: kube.Client, address: str
) -> None:
    """A proxy that is trusted is believed all it says; without trust its own address counts."""
    two = clusters[1]
    inside = (address, INSIDE)

    async def claimed(source: str, destination: str = TWO[0], port: int = 443) -> bool:
        header = version_2(source, destination, port)
        return await watch_connections.answers(estate.node, inside, two, header)

    assert await claimed(NODE)
    assert not await claimed(NODE, "10.1.2.9")
    assert not await claimed(NODE, port=6443)
    outside = watch_connections.answers(estate.outside, inside, two, version_2(NODE, TWO[0], 443))
    assert not await outside
    # A list does not bind a trusted proxy that lies about where a connection is from.
    await apply(client, served(two, allowedSources=["198.51.100.128/25"]))
    await until(lambda: _not(claimed(NODE)))
    assert await claimed("198.51.100.200")
    # Without trusted proxies, allowedSources applies to the proxies: other nodes reach no cluster.
    await apply(client, [gateway("untrusting", trusted="")])
    await apply(client, served(two, "untrusting", allowedSources=["198.51.100.128/25"]))
    inside = (await programmed(client, "untrusting"), INSIDE)
    await until(lambda: _not(claimed(NODE)))
    assert not await claimed("198.51.100.200")
    await apply(client, served(two, "untrusting", allowedSources=[f"{NODE}/32"]))
    await until(lambda: claimed("192.0.2.77"))


async def _not(condition: Awaitable[bool]) -> bool:
    return not await condition
