"""No change around a hosted kube-apiserver ends a watch, or keeps a Pod away for long."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from fakes import patience
from fakes.dns_server import serving
from fakes.durations import last, pace
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
    NAMES,
    ONE,
    TWO,
    gateway,
    is_reachable,
    is_rejected,
    programmed,
    served,
)
from fakes.hosting import NODE, NODE_BALANCER, POOL, SERVICE_NAME, Cluster, Estate, NodeProxy, Place
from fakes.installation import Installation, apply
from fakes.loopback import free_port
from fakes.machines import Machine
from fakes.patience import until
from fakes.watch_connections import Watch, answers, watch
from gatehouse.apis import resources
from gatehouse.kube import client as kube

__all__ = ["address", "clusters", "estate", "options", "node_proxy"]

pytestmark = MARKS

SECONDS = float(os.environ.get("CHURN_SECONDS", "20"))
HELD = 200
"""Watches that live through all changes, half of them through the node proxy."""
GOING = 10
"""Watches of a cluster that goes."""


async def _ticking(cluster: Cluster) -> None:
    """Change a ConfigMap of the cluster each second, past the gateway."""
    tick: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "tick", "namespace": "default"},
    }
    async with cluster.client() as client:
        with contextlib.suppress(kube.AlreadyExists):
            await client.create(resources.CONFIG_MAPS, tick)
        number = 0
        while True:
            number += 1
            more = {"data": {"number": f"{time.monotonic()}"}}
            await client.patch(resources.CONFIG_MAPS, "tick", more, "default")
            await pace(1)


async def _change(client: kube.Client, number: int, kube_clusters: list[Cluster]) -> None:
    """Do the next of: a name more, endpoints that move, a list, names that rotate, a name less."""
    turn, cluster = number // 5, kube_clusters[number % len(kube_clusters)]
    added = Place(f"churn-{turn}", cluster.port, (f"10.9.{turn // 250}.{turn % 250 + 1}",))
    match number % 5:
        case 0:
            await apply(client, served(added))
        case 1:
            await apply(client, served(cluster, address=f"127.0.0.{turn % 3 + 1}")[1:2])
        case 2:
            lists = {"allowedSources": ["192.0.2.0/24"]} if turn % 2 else {}
            await apply(client, served(added, address="127.0.0.9", **lists)[1:])
        case 3:
            names = [f"api.{cluster.name}.test", f"turn-{turn}.{cluster.name}.test"]
            await apply(client, served(cluster, hosts=names)[2:])
        case _ if turn > 5:
            await _remove(client, f"churn-{turn - 5}")


async def _remove(client: kube.Client, name: str) -> None:
    for resource in (resources.HOSTED_API_SERVERS, resources.SERVICES, resources.ENDPOINT_SLICES):
        await client.delete(resource, name, "default")


@pytest.mark.parametrize("proxy", PROXIES)
async def test_watches_survive_all_changes_except_removal_of_their_cluster(
    estate: Estate, clusters: list[Cluster], client: kube.Client, address: str,
    node_proxy: NodeProxy, tmp_path: Path, proxy: str,
) -> None:  # fmt: skip
    start = functools.partial(node_proxy.start, f"{address}:{INSIDE}", ONE[:1], "--proxy", proxy)
    await asyncio.to_thread(start)
    going = Cluster(tmp_path, f"going-{proxy}", "10.1.2.9")
    await asyncio.to_thread(going.start)
    await apply(client, served(going))
    await programmed(client, "apis", going)
    ticking = [asyncio.create_task(_ticking(cluster)) for cluster in clusters]
    held: list[Watch] = []
    leaving: list[Watch] = []
    outside = (address, NAMES)
    try:
        for number in range(HELD // 2):
            held.append(await watch(estate.pod, (ONE[0], 443), clusters[0], SERVICE_NAME))
            by = clusters[number % 2]
            held.append(await watch(estate.outside, outside, by, f"api.{by.name}.test"))
        for _ in range(GOING):
            leaving.append(await watch(estate.outside, outside, going, f"api.going-{proxy}.test"))
        changes, begun = 0, time.monotonic()
        late: list[float] = []
        gone = False
        while (passed := time.monotonic() - begun) < SECONDS:
            await _change(client, changes, clusters)
            changes += 1
            if not gone and passed > SECONDS / 2:
                gone = True
                await _remove(client, going.name)
            late.append(time.monotonic() - begun - changes * 0.1)
            await asyncio.sleep(max(0.0, -late[-1]))
        # Without its name a cluster gets no new clients; its connections end with the cluster.
        name = f"api.{going.name}.test"
        await until(lambda: _not(answers(estate.outside, outside, going, sni=name)))
        assert not [open_watch.ended for open_watch in leaving if open_watch.ended]
        await asyncio.to_thread(going.stop)
        await until(lambda: _all_ended(leaving))
        before = [open_watch.events for open_watch in held]
        after = before

        async def go_on() -> bool:
            nonlocal after
            after = [open_watch.events for open_watch in held]
            return all(then < now for then, now in zip(before, after, strict=True)) or any(
                open_watch.ended for open_watch in held
            )

        await until(go_on)
    finally:
        for task in ticking:
            task.cancel()
        await asyncio.gather(*ticking, return_exceptions=True)
        for open_watch in (*held, *leaving):
            open_watch.close()
        await asyncio.to_thread(going.stop)
    print(
        f"{changes} changes in {SECONDS:.0f} s, at most {max(late):.2f} s late; "
        f"{HELD} watches, {sum(after)} events"
    )
    assert changes > 5 * SECONDS
    assert not [
        (open_watch.cluster.name, open_watch.ended) for open_watch in held if open_watch.ended
    ]
    assert all(then < now for then, now in zip(before, after, strict=True))


async def _all_ended(watches: list[Watch]) -> bool:
    return all(open_watch.ended for open_watch in watches)


async def _not(condition: Any) -> bool:
    return not await condition


@pytest.mark.parametrize("proxy", PROXIES)
async def test_restarted_or_recreated_gateway_is_reachable_from_the_node(
    estate: Estate, clusters: list[Cluster], client: kube.Client, address: str,
    node_proxy: NodeProxy, installation: Installation, proxy: str,
) -> None:  # fmt: skip
    start = functools.partial(node_proxy.start, f"{address}:{INSIDE}", ONE[:1], "--proxy", proxy)
    await asyncio.to_thread(start)
    ask = functools.partial(clusters[0].user_seen, estate.pod, f"https://{ONE[0]}")
    assert await is_reachable(ask)
    os.kill(await until(lambda: _envoy(estate.hosting)), signal.SIGKILL)
    begun = time.monotonic()
    await until(lambda: is_reachable(ask))
    print(f"measured: {time.monotonic() - begun:.1f} s after Envoy's death ({proxy})")
    await client.delete(resources.GATEWAYS, "apis", "default")
    await until(lambda: is_rejected(ask))
    assert node_proxy.probe_response("/readyz") == "ok\n"
    await apply(client, [gateway()])
    assert await programmed(client, "apis", *clusters) == address
    begun = time.monotonic()
    await until(lambda: is_reachable(ask))
    print(f"measured: {time.monotonic() - begun:.1f} s after the Gateway is back ({proxy})")


async def _envoy(hosting: Machine) -> int:
    """Return the pid of the only Envoy on a machine; 0 if there is not exactly one."""
    pids = hosting.run("ip", "netns", "pids", hosting.name).split()
    result = [int(pid) for pid in pids if _command(pid) == "envoy"]
    return result[0] if len(result) == 1 else 0


def _command(pid: str) -> str:
    """Return the name of a process; empty if it ended."""
    with contextlib.suppress(OSError):
        return Path("/proc", pid, "comm").read_text().strip()
    return ""


@pytest.mark.parametrize("proxy", PROXIES)
async def test_node_proxy_follows_address_changes_of_the_gateway_hostname(
    estate: Estate, clusters: list[Cluster], client: kube.Client, address: str,
    node_proxy: NodeProxy, proxy: str,
) -> None:  # fmt: skip
    await apply(client, [gateway("others")])
    await apply(client, served(clusters[0], "apis", "others"))
    other = await programmed(client, "others", clusters[0])
    with serving(estate.node, "gateway.test") as dns:
        dns.answers(address)
        start = functools.partial(
            node_proxy.start, f"gateway.test:{INSIDE}", ONE[:1], "--proxy", proxy,
            resolv_conf=dns.file,
        )  # fmt: skip
        await asyncio.to_thread(start)
        ask = functools.partial(clusters[0].user_seen, estate.pod, f"https://{ONE[0]}")
        await until(lambda: is_reachable(ask))
        held = await watch(estate.pod, (ONE[0], 443), clusters[0], SERVICE_NAME)
        with contextlib.closing(held):
            await apply(client, served(clusters[0], "others"))
            # From here on the former address leads nowhere.
            await until(lambda: is_rejected(ask))
            dns.answers(other)
            begun = time.monotonic()
            # Ask until no client is led to the former address.
            await until(lambda: _always(ask))
            print(f"measured: {time.monotonic() - begun:.1f} s after the DNS ({proxy})")
            assert not held.ended
    await client.delete(resources.GATEWAYS, "others", "default")


async def _always(ask: Any) -> bool:
    return all([await is_reachable(ask) for _ in range(3)])


@pytest.mark.skipif(not shutil.which("haproxy"), reason="no haproxy")
async def test_haproxy_keeps_the_gateway_address_while_dns_is_unavailable(
    estate: Estate, clusters: list[Cluster], address: str, node_proxy: NodeProxy
) -> None:
    """NGINX does not: it drops the addresses when their time to live is over."""
    with serving(estate.node, "gateway.test") as dns:
        dns.answers(address)
        start = functools.partial(
            node_proxy.start, f"gateway.test:{INSIDE}", ONE[:1], "--proxy", "haproxy",
            resolv_conf=dns.file,
        )  # fmt: skip
        await asyncio.to_thread(start)
        ask = functools.partial(clusters[0].user_seen, estate.pod, f"https://{ONE[0]}")
        await until(lambda: is_reachable(ask))
        dns.close()
        # HAProxy's own patience is 30 s.
        await last(50)
        assert ask() == "one-admin"


BALANCER = """
defaults
    mode tcp
    timeout connect 5s
    timeout client 1m
    timeout server 1m
listen inside
    bind [{}]:{} v6only
    server gateway {}:{}
"""


@pytest.mark.skipif(not shutil.which("haproxy"), reason="no haproxy")
@pytest.mark.parametrize("proxy", PROXIES)
async def test_pods_reach_an_ipv6_address_through_an_ipv6_gateway(
    estate: Estate, clusters: list[Cluster], client: kube.Client, address: str,
    node_proxy: NodeProxy, tmp_path: Path, proxy: str,
) -> None:  # fmt: skip
    """A plain TCP balancer stands before the Gateway, whose own addresses here are IPv4."""
    one = Place("one", clusters[0].port, (ONE[1],))
    await apply(client, [gateway(trusted=f"{POOL}, {NODE}/32"), *served(one)])
    await programmed(client, "apis", one)
    port = free_port()
    file = tmp_path / "balancer.cfg"
    file.write_text(BALANCER.format(NODE_BALANCER, port, address, INSIDE))
    balancer = estate.hosting.start(["haproxy", "-db", "-f", str(file)], tmp_path / "balancer.log")
    start = functools.partial(node_proxy.start, f"[{NODE_BALANCER}]:{port}", ONE, "--proxy", proxy)
    await asyncio.to_thread(start)
    ask = functools.partial(clusters[0].user_seen, estate.pod, f"https://[{ONE[1]}]")
    await until(lambda: is_reachable(ask))
    assert ask() == "one-admin"
    assert "failed" in clusters[1].user_seen(estate.pod, f"https://[{TWO[1]}]")
    balancer.terminate()
    balancer.wait(patience.SECONDS)
