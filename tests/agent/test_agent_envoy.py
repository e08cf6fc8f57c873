"""An agent with a real Envoy, under a real control plane."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import re
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
import pytest
import structlog

from fakes import patience
from fakes.agent_control_plane import GATEWAY, write_certificate
from fakes.envoy_agent import envoys, options, running, spawn
from fakes.envoy_running import (
    EnvoyControlPlane,
    backend,
    bad_cluster,
    cluster,
    endpoints,
    get,
    invalid_cluster,
    listener,
    routes,
    secret,
    website,
)
from fakes.loopback import free_port
from fakes.patience import until
from gatehouse.agent.envoy import first_configuration
from gatehouse.dataplane.origin import Origin
from gatehouse.dataplane.xds.ads_messages import Response
from gatehouse.dataplane.xds.ads_session import AdsSession
from gatehouse.dataplane.xds.resources import (
    CLUSTER_TYPE_URL,
    LISTENER_TYPE_URL,
    RUNTIME_TYPE_URL,
    SIDECAR_CONFIG_TYPE_URL,
    ResourceSet,
    XdsResource,
)
from gatehouse.dataplane.xds.runtime_limits import LIMITS_LAYER
from gatehouse.runtime import procfs

pytestmark = pytest.mark.process


@pytest.fixture(autouse=True)
def no_envoy_is_left(tmp_path: Path) -> object:
    yield
    for pid in envoys(tmp_path):
        os.kill(pid, signal.SIGKILL)


async def answers(port: int, text: str) -> None:
    """Wait until `port` responds, and check the response."""
    async with patience.limit():
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                assert await get(port) == (200, text)
                return
            await patience.pause()


class Traffic:
    """Requests without pause over keep-alive connections."""

    def __init__(self, port: int) -> None:
        self.count = 0
        self.lost: list[str] = []
        self._port = port
        self._done = False

    async def _client(self) -> None:
        async with aiohttp.ClientSession() as session:
            while not self._done:
                try:
                    # POST, since clients silently repeat a GET that failed on a reused connection.
                    async with session.post(f"http://127.0.0.1:{self._port}/") as response:
                        self.count += 1
                        if response.status != 200:
                            self.lost.append(str(response.status))
                except aiohttp.ClientError as error:
                    self.lost.append(repr(error))

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Traffic]:
        clients = [asyncio.create_task(self._client()) for _ in range(8)]
        try:
            yield self
        finally:
            self._done = True
            await asyncio.gather(*clients)

    async def more(self) -> None:
        """Wait until many more requests have succeeded."""
        target = self.count + 200
        await until(lambda: self.count >= target)


async def test_published_resources_are_served_when_confirmed(
    plane: EnvoyControlPlane, tmp_path: Path
) -> None:
    port, health = free_port(), free_port()
    agent_options = options(
        plane,
        tmp_path,
        GATEHOUSE_AGENT_HEALTH_BIND_ADDRESS=f"127.0.0.1:{health}",
        POD_NAMESPACE="shop",
        GATEHOUSE_AGENT_GATEWAY="web",
    )
    async with backend("one") as one, backend("two") as two, running(agent_options):
        await plane.until(lambda report: bool(report.instances))
        assert (await get(health, path="/readyz"))[0] == 503
        assert (await get(health, path="/livez"))[0] == 200
        report = await plane.served(website(port, one))
        assert report.instances[0].instance == "pod-1"
        assert report.instances[0].proxy.startswith("envoy/1.")
        assert "gatehouse.relay" in report.instances[0].features
        assert await get(port) == (200, "one")
        await plane.served(website(port, two))
        assert await get(port) == (200, "two")
        more = (cluster("other"), endpoints("other", one))
        changed = (routes("http", ("other", "other"), ("*", "web")), *more)
        await plane.served(website(port, two, *changed))
        assert await get(port, "other") == (200, "one")
        await plane.served(website(port, two))
        assert await get(port, "other") == (200, "two")
        async with patience.limit():
            while (await get(health, path="/readyz"))[0] != 200:
                await patience.pause()
        _, metrics = await get(health, path="/metrics")
        assert re.search(r"^gatehouse_agent_control_plane_connected{.*} 1\.0$", metrics, re.M)
        _, metrics = await get(health, path="/metrics/envoy")
        (total,) = re.findall(r"^envoy_http_downstream_rq_total{(.*)} 4$", metrics, re.M)
        assert 'namespace="shop",pod="pod-1",gateway="web"' in total


async def test_gateway_without_listeners_is_ready(plane: EnvoyControlPlane, tmp_path: Path) -> None:
    health = free_port()
    agent_options = options(
        plane, tmp_path, GATEHOUSE_AGENT_HEALTH_BIND_ADDRESS=f"127.0.0.1:{health}"
    )
    async with running(agent_options):
        await plane.until(lambda report: bool(report.instances))
        assert (await get(health, path="/readyz"))[0] == 503
        await plane.served(ResourceSet())
        async with patience.limit():
            while (await get(health, path="/readyz"))[0] != 200:
                await patience.pause()


async def test_new_envoy_starts_beside_a_rejected_resource_after_a_time(
    plane: EnvoyControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_configuration, "REJECTION_SECONDS", math.inf)
    port = free_port()
    async with backend("one") as one, running(options(plane, tmp_path)):
        report = await plane.served(website(port, one, bad_cluster("bad")))
        assert report.instances[0].error
        with pytest.raises(aiohttp.ClientConnectorError):
            await get(port)
        monkeypatch.setattr(first_configuration, "REJECTION_SECONDS", 0.0)
        await answers(port, "one")


async def test_new_envoy_starts_at_once_beside_a_port_in_use(
    plane: EnvoyControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_configuration, "REJECTION_SECONDS", math.inf)
    port = free_port()
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        second = listener("second", other.getsockname()[1], "http")
        async with backend("one") as one, running(options(plane, tmp_path)):
            await plane.served(website(port, one, second))
            assert await get(port) == (200, "one")


@pytest.mark.parametrize("make", [bad_cluster, invalid_cluster])
async def test_rejected_resource_is_named_and_previous_version_is_served(
    plane: EnvoyControlPlane, tmp_path: Path, make: Callable[..., XdsResource]
) -> None:
    port = free_port()
    hosts = routes("http", ("other", "other"), ("*", "web"))
    async with backend("one") as one, backend("two") as two, running(options(plane, tmp_path)):
        good = (cluster("other"), endpoints("other", one))
        await plane.served(website(port, one, hosts, *good))
        bad = make("other", origins=(Origin("HTTPRoute", "shop", "other"),))
        report = await plane.served(website(port, two, hosts, bad, endpoints("other", one)))
        (refused,) = report.instances[0].rejected
        assert refused.origins == (Origin("HTTPRoute", "shop", "other"),)
        assert "IP address" in refused.reason or "duration" in refused.reason
        assert await get(port) == (200, "two")
        assert await get(port, "other") == (200, "one")
        (pid,) = envoys(tmp_path)
        os.kill(pid, signal.SIGKILL)
        await until(lambda: bool(envoys(tmp_path)) and envoys(tmp_path) != [pid])
        await answers(port, "two")
        assert await get(port, "other") == (200, "one")
        report = await plane.served(website(port, two, hosts, *good))
        assert not report.instances[0].rejected
        reason = "Envoy is not healthy: Envoy is not running"
        assert plane.incidents == [(GATEWAY, "pod-1", reason)]
    assert len(plane.incidents) == 1, "a stop is no incident"


async def test_rejected_certificate_is_named_and_previous_one_is_served(
    plane: EnvoyControlPlane, tmp_path: Path
) -> None:
    port, secure, later = free_port(), free_port(), free_port()
    cert, key = plane.cert.read_bytes(), plane.key.read_bytes()
    other = tmp_path / "other"
    other.mkdir()
    _, foreign = write_certificate(other)
    trust = ssl.create_default_context(cafile=str(plane.cert))

    async def fetched(port: int = secure) -> str:
        url = f"https://127.0.0.1:{port}/"
        async with aiohttp.ClientSession() as client, client.get(url, ssl=trust) as response:
            return await response.text()

    async with backend("one") as one, backend("two") as two, running(options(plane, tmp_path)):
        tls = listener("https", secure, "http", "pair")
        await plane.served(website(port, one, tls, secret("pair", cert, key)))
        assert await fetched() == "one"
        bad = secret(
            "pair", cert, foreign.read_bytes(), origins=(Origin("Secret", "shop", "pair"),)
        )
        report = await plane.served(website(port, two, tls, bad))
        (refused,) = report.instances[0].rejected
        assert refused.origins == (Origin("Secret", "shop", "pair"),)
        assert "key" in refused.reason.lower()
        assert "BEGIN" not in refused.reason
        assert await fetched() == "two"
        # Envoy keeps the rejected certificate for new users, until it gets the previous one again.
        more = listener("later", later, "http", "pair")
        report = await plane.served(website(port, two, tls, more, bad))
        assert report.instances[0].rejected == (refused,)
        assert await fetched(later) == "two"


async def test_endpoints_beside_rejected_ones_are_served(
    plane: EnvoyControlPlane, tmp_path: Path
) -> None:
    port, names = free_port(), [f"c{number}" for number in range(12)]
    hosts = routes("http", *((name, name) for name in names), ("*", "web"))
    clusters = [cluster(name) for name in names]
    async with backend("one") as one, backend("two") as two, running(options(plane, tmp_path)):
        await plane.served(
            website(port, one, hosts, *clusters, *(endpoints(n, one) for n in names))
        )
        addresses = {name: ("no-address", 1) if name in ("c3", "c8") else two for name in names}
        changed = [endpoints(name, address) for name, address in addresses.items()]
        plane.publish(website(port, two, hosts, *clusters, *changed))
        report = await plane.until(lambda report: report.programmed)
        assert report.instances[0].error.count("ClusterLoadAssignment") == 2
        answers = [await get(port, name) for name in names if name not in ("c3", "c8")]
        assert answers == [(200, "two")] * 10


async def test_rejected_new_certificate_is_named_and_valid_one_is_served(
    plane: EnvoyControlPlane, tmp_path: Path
) -> None:
    port, good, weak = free_port(), free_port(), free_port()
    cert, key = plane.cert.read_bytes(), plane.key.read_bytes()
    other = tmp_path / "other"
    other.mkdir()
    foreign = write_certificate(other)[1].read_bytes()
    origins = (Origin("Secret", "shop", "weak"),)
    async with backend("one") as one, running(options(plane, tmp_path)):
        await plane.served(website(port, one))
        listeners = listener("good", good, "http", "good"), listener("weak", weak, "http", "weak")
        secrets = secret("good", cert, key), secret("weak", cert, foreign, origins=origins)
        report = await plane.served(website(port, one, *listeners, *secrets))
        (rejected,) = report.instances[0].rejected
        assert rejected.origins == origins


async def test_requests_succeed_while_control_plane_restarts(
    plane: EnvoyControlPlane, tmp_path: Path
) -> None:
    port = free_port()
    await plane.server.stop(0.0)

    def start(one: tuple[str, int]) -> subprocess.Popen[bytes]:
        expected = json.dumps([port, one])
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "fakes.envoy_plane_process"),
                *(str(plane.directory), str(plane.port), expected),
            ],
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
        )

    async with backend("one") as one, backend("two") as two:
        first = start(one)
        async with running(options(plane, tmp_path)):
            await answers(port, "one")
            async with Traffic(port).running() as traffic:
                await traffic.more()
                first.kill()
                await asyncio.to_thread(first.wait)
                await traffic.more()
                second = start(two)
                async with patience.limit():
                    while await get(port) != (200, "two"):
                        await patience.pause()
                await traffic.more()
            second.kill()
            await asyncio.to_thread(second.wait)
    assert traffic.lost == []


async def test_restarted_control_plane_sends_nothing_when_unchanged(
    plane: EnvoyControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    async with backend("one") as one, running(options(plane, tmp_path)):
        await plane.served(website(port, one))
        responses: list[Response] = []
        say = AdsSession.next

        def next_(self: AdsSession) -> Response | None:
            response = say(self)
            if response is not None:
                responses.append(response)
            return response

        monkeypatch.setattr(AdsSession, "next", next_)
        await plane.restart()
        await plane.served(website(port, one))
        assert {response.type_url for response in responses} == {
            CLUSTER_TYPE_URL,
            SIDECAR_CONFIG_TYPE_URL,
            LISTENER_TYPE_URL,
            RUNTIME_TYPE_URL,
        }
        assert not any(response.resources for response in responses)
        # A new control plane cannot know that Envoy knows that there are no limits.
        removed = {
            (response.type_url, response.removed) for response in responses if response.removed
        }
        assert removed == {(RUNTIME_TYPE_URL, (LIMITS_LAYER,))}


async def test_envoy_survives_agent_kill_and_is_adopted(
    plane: EnvoyControlPlane, tmp_path: Path
) -> None:
    port = free_port()
    async with backend("one") as one, backend("two") as two:
        agent = spawn(plane, tmp_path)
        await plane.until(lambda report: bool(report.instances))
        await plane.served(website(port, one))
        (pid,) = envoys(tmp_path)
        async with Traffic(port).running() as traffic:
            for target in (two, one):
                await traffic.more()
                agent.kill()
                await asyncio.to_thread(agent.wait)
                await plane.until(lambda report: not report.instances)
                await traffic.more()
                agent = spawn(plane, tmp_path)
                await plane.until(lambda report: report.programmed)
                await plane.served(website(port, target))
                assert envoys(tmp_path) == [pid]
        assert traffic.lost == []
        agent.terminate()
        assert await asyncio.to_thread(agent.wait) == 0
        assert not procfs.is_alive(pid)


async def test_killed_envoy_is_restarted_with_all_resources(
    plane: EnvoyControlPlane, tmp_path: Path
) -> None:
    port = free_port()
    async with backend("one") as one, backend("two") as two, running(options(plane, tmp_path)):
        await plane.served(website(port, one))
        await plane.served(website(port, two))
        await plane.server.stop(0.0)
        (pid,) = envoys(tmp_path)
        os.kill(pid, signal.SIGKILL)
        await until(lambda: bool(envoys(tmp_path)) and envoys(tmp_path) != [pid])
        await answers(port, "two")


async def test_stored_resources_are_served_without_control_plane(
    plane: EnvoyControlPlane, tmp_path: Path
) -> None:
    port = free_port()
    async with backend("one") as one, backend("two") as two:
        async with running(options(plane, tmp_path)):
            await plane.served(website(port, one))
            await plane.served(website(port, two))
        assert not envoys(tmp_path)
        database = tmp_path / "root" / "envoy.db"
        assert database.stat().st_mode & 0o777 == 0o600
        await plane.server.stop(0.0)
        async with running(options(plane, tmp_path)):
            await answers(port, "two")
            plane.server = plane._make()
            await plane.start()
            await plane.served(website(port, one))
            assert await get(port) == (200, "one")


async def test_envoy_never_gets_older_resources(plane: EnvoyControlPlane, tmp_path: Path) -> None:
    port = free_port()
    database = tmp_path / "root" / "envoy.db"
    async with backend("one") as one, backend("two") as two:
        agent = spawn(plane, tmp_path)
        await plane.until(lambda report: bool(report.instances))
        await plane.served(website(port, one))
        await until(lambda: count(database) == 4)
        older = {path: path.read_bytes() for path in database.parent.glob("envoy.db*")}
        await plane.served(website(port, two))
        agent.kill()
        await asyncio.to_thread(agent.wait)
        await plane.server.stop(0.0)
        for path, content in older.items():
            path.write_bytes(content)
        async with running(options(plane, tmp_path)), Traffic(port).running() as traffic:
            log = tmp_path / "run" / "envoy.log"
            await traffic.more()
            assert await get(port) == (200, "two"), log.read_text()
            plane.server = plane._make()
            await plane.start()
            await plane.served(website(port, two))
            assert await get(port) == (200, "two")
            await plane.served(website(port, one))
            assert await get(port) == (200, "one")
        assert traffic.lost == []


def count(database: Path) -> int:
    with contextlib.closing(sqlite3.connect(database)) as connection:
        (number,) = connection.execute("SELECT count(*) FROM resources").fetchone()
        return int(number)


async def test_shutdown_is_announced_and_loses_no_request(
    plane: EnvoyControlPlane, tmp_path: Path
) -> None:
    port = free_port()
    agent_options = options(plane, tmp_path)
    async with backend("slow", wait=0.05) as slow, running(agent_options) as stop:
        await plane.served(website(port, slow))
        async with Traffic(port).running() as traffic:
            await traffic.more()
            stop.set()
            await plane.until(lambda report: not report.instances)
            # Load balancers continue to connect to this data plane for a moment.
            await traffic.more()
        await until(lambda: not envoys(tmp_path))
        assert traffic.lost == []


async def test_request_longer_than_drain_timeout_is_aborted(
    plane: EnvoyControlPlane, tmp_path: Path
) -> None:
    port = free_port()
    agent_options = options(plane, tmp_path, GATEHOUSE_AGENT_DRAIN_SECONDS="1")
    asked_for = asyncio.Event()

    async def keep_waiting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked_for.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(keep_waiting, "127.0.0.1", 0) as silent:
        with structlog.testing.capture_logs() as logs:
            async with running(agent_options):
                await plane.served(website(port, silent.sockets[0].getsockname()))
                slow_request = asyncio.create_task(get(port))
                async with patience.limit():
                    await asked_for.wait()
        assert "drain timeout exceeded" in {entry["event"] for entry in logs}
        with pytest.raises(aiohttp.ClientError):
            await slow_request


async def test_rejected_token_is_retried_until_accepted(
    plane: EnvoyControlPlane, tmp_path: Path
) -> None:
    plane.token.write_text("bad")
    with structlog.testing.capture_logs() as logs:
        async with running(options(plane, tmp_path)):
            await until(lambda: any(log["event"] == "connection lost" for log in logs))
            assert not any(log["event"] == "connected" for log in logs)
            plane.token.write_text("good:pod-1")
            report = await plane.until(lambda report: bool(report.instances))
            assert report.instances[0].instance == "pod-1"


async def test_agent_sends_token_of_option(plane: EnvoyControlPlane, tmp_path: Path) -> None:
    token = {
        "NGINX_AGENT_COMMAND_AUTH_TOKENPATH": "",
        "NGINX_AGENT_COMMAND_AUTH_TOKEN": "good:pod-1",
    }
    async with running(options(plane, tmp_path, **token)):
        report = await plane.until(lambda report: bool(report.instances))
    assert report.instances[0].instance == "pod-1"
