"""Commands and forwarded ports by a gateway, as kubectl speaks: SPDY/3.1 and WebSockets."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.x509 import DNSName

from fakes import kube_estate, kube_streaming
from fakes.installation import apply
from fakes.kube_estate import Estate
from fakes.kubectls import Kubectl
from fakes.patience import limit
from gatehouse.apis import resources
from gatehouse.kube import client as kube
from gatehouse.standalone import pki

pytestmark = [pytest.mark.process, pytest.mark.long, pytest.mark.slow, pytest.mark.timeout(300)]

A, NAME = "a.kube", "pods.kube"
SWITCHES = ("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "KUBECTL_PORT_FORWARD_WEBSOCKETS")
PROTOCOLS = {"SPDY/3.1": "false", "websocket": "true"}


class Pods:
    """A cluster with a Pod, behind the gateway."""

    def __init__(self, alice: Kubectl, log: Path) -> None:
        self.alice = alice
        self._log = log

    def asked(self) -> list[str]:
        """Return the requests that the kube-apiserver received: a line for each stream."""
        return [
            splitline for splitline in self._log.read_text().splitlines() if " as " in splitline
        ]


@pytest.fixture
async def pods(estate: Estate, client: kube.Client, tmp_path: Path) -> AsyncIterator[Pods]:
    cluster, log = estate.clusters[A], tmp_path / "streams.log"
    async with kube_streaming.serving(cluster.state.pki.leaf(pki.APISERVER), log) as url:
        raw = estate.upstream_cluster(A, servers=[{"endpoint": url}])
        cert, key = estate.front.issue(NAME, DNSName(NAME))
        raw["metadata"]["name"] = NAME
        raw["spec"]["secureServing"]["secretRef"]["name"] = "pods-front"
        await apply(client, [kube_estate.secret("pods-front", cert, key, cluster.authority)])
        await client.create(resources.UPSTREAM_CLUSTERS, raw)
        await kube_estate.wait_for_condition(client, NAME, "Programmed")
        yield Pods(estate.kubectl(estate.by_certificate(NAME, "alice", of=A)), log)
        await client.delete(resources.UPSTREAM_CLUSTERS, NAME)


async def run(command: Any, *arguments: Any, **more: Any) -> Any:
    return await asyncio.to_thread(command, *arguments, **more)


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_exec_runs_commands(pods: Pods, protocol: str) -> None:
    spoken = dict.fromkeys(SWITCHES, PROTOCOLS[protocol])
    text = "".join(random.choices("abcdefgh \n", k=3_000_000))
    heard = await run(pods.alice, "exec", "-i", "p", "--", "tr", stdin=text, **spoken)
    digest = hashlib.sha256(text.upper().encode()).hexdigest()
    assert hashlib.sha256(heard.encode()).hexdigest() == digest
    refused = await run(pods.alice.fails, "exec", "-i", "p", "--", "fail", stdin="", **spoken)
    assert "exit code 7" in refused
    ways = {line.partition(" as ")[2] for line in pods.asked()}
    assert ways == {f'"alice" by "{protocol}"'}


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_port_forward_relays_data(pods: Pods, protocol: str) -> None:
    spoken = dict.fromkeys(SWITCHES, PROTOCOLS[protocol])
    process = pods.alice.start("port-forward", "pod/p", ":8080", ":9090", **spoken)
    try:
        assert process.stdout is not None
        # kubectl prints each port for 127.0.0.1, and with IPv6 also for ::1.
        ports: dict[str, int] = {}
        while len(ports) < 2:
            line = await asyncio.to_thread(process.stdout.readline)
            assert line, "kubectl ended"
            here, _, there = line.removeprefix("Forwarding from ").partition(" -> ")
            ports[there.strip()] = int(here.rpartition(":")[2])
        async with limit():
            talks = [talk(ports[port], port, 200) for port in ("8080", "9090", "8080")]
            await asyncio.gather(*talks)
    finally:
        process.kill()
        await asyncio.to_thread(process.communicate)
    # All connections are streams of one connection to the server.
    (line,) = pods.asked()
    assert line.endswith(f'portforward as "alice" by "{protocol}"')


async def talk(port: int, name: str, times: int) -> None:
    """Say something again and again, and hear it by the port that was meant."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for number in range(times):
        writer.write(b"%d\n" % number)
        assert await reader.readline() == f"{name}: {number}\n".encode()
    writer.close()
    await writer.wait_closed()
