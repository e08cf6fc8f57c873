"""An agent with a simulated NGINX Plus: endpoints are updated by its API, and traffic follows."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import aiohttp
import msgspec
import pytest

from fakes import patience
from fakes.agent_control_plane import GATEWAY, ControlPlane
from fakes.endpoint_changes import Backends, Load, connected
from fakes.loopback import free_port
from fakes.nginx_agent import get, master_pid, running
from fakes.nginx_plus import Fault
from fakes.nginx_plus_agent import (
    CAPABILITIES,
    FakeProgram,
    assert_no_reload,
    forwarding,
    metric_value,
    streaming,
)
from fakes.patience import until
from gatehouse.agent.nginx import apply, main
from gatehouse.dataplane.file_set import File
from gatehouse.dataplane.origin import Origin
from gatehouse.runtime import procfs
from kube_base.runtime.backoff import BackoffPolicy

pytestmark = pytest.mark.process


@pytest.fixture
def plus(tmp_path: Path) -> FakeProgram:
    return FakeProgram(tmp_path)


async def test_endpoints_change_by_api_without_reload(
    control_plane: ControlPlane, plus: FakeProgram, tmp_path: Path
) -> None:
    port, health = free_port(), free_port()
    options = plus.options(control_plane, tmp_path, health)
    async with Backends(3).serving() as backends, running(options):
        report = await connected(control_plane)
        assert report.instances[0].proxy == "nginx/1.29.3 (nginx-plus-r36)"
        assert {"endpoints", "api-action"} <= report.instances[0].features
        await control_plane.programmed(forwarding(port, (backends.endpoints(0), 1)))
        assert await get(port) == (200, "0")
        assert plus.calls() == []
        async with assert_no_reload(health), Load(port) as load:
            for pair in ((0, 1), (1, 2), (2,)):
                await control_plane.programmed(forwarding(port, (backends.endpoints(*pair), 1)))
                await load.settles({str(endpoint) for endpoint in pair})
            # (NGINX Plus drops none; this one really reloads, and its clients see it.)
            assert set(load.failed) <= {"ServerDisconnectedError", "ClientOSError"}
        assert [call.method for call in plus.calls()] == [
            "POST", "POST", "DELETE", "DELETE",
        ]  # fmt: skip
        state = (tmp_path / "root" / "state" / "c-0.conf").read_text()
        assert state == f"server {backends.addresses[2]}:{backends.port} max_fails=0;\n"
        assert await metric_value(health, "gatehouse_agent_endpoint_updates_total") == 3
        labels = {"upstream": "c-0", "server": f"{backends.addresses[2]}:{backends.port}"}
        assert await metric_value(health, "nginx_plus_http_upstream_server_up", **labels) == 1
        zone = f"_:{port}"
        assert await metric_value(health, "nginx_plus_http_server_requests_total", zone=zone) == 0


async def test_healthy_endpoints_are_counted_by_backend(
    control_plane: ControlPlane, plus: FakeProgram, tmp_path: Path
) -> None:
    port, health = free_port(), free_port()
    options = plus.options(control_plane, tmp_path, health)
    counting = msgspec.structs.replace(CAPABILITIES, access_log=True)
    async with Backends(3).serving() as backends, running(options):
        await connected(control_plane)
        files = forwarding(
            port,
            (backends.endpoints(0, 1, 2), 1),
            capabilities=counting,
            origin=Origin("Service", "shop", "web"),
        )
        await control_plane.programmed(files)
        assert await _endpoint_counts(health) == (3, 3)
        for number, change in enumerate(({"down": True}, {"drain": True})):
            await plus.ask("PATCH", f"/http/upstreams/c-0/servers/{number}", change)
        assert await _endpoint_counts(health) == (3, 1)
        # The numbers are those that NGINX has, not those of the files.
        await plus.ask("DELETE", "/http/upstreams/c-0/servers/0")
        assert await _endpoint_counts(health) == (2, 1)


async def _endpoint_counts(health: int) -> tuple[float, float]:
    """Return the known and the healthy endpoints of a backend."""
    names = ("gatehouse_backend_endpoints", "gatehouse_backend_healthy_endpoints")
    known, healthy = [
        await metric_value(health, name, backend="Service/shop/web") for name in names
    ]
    return known, healthy


async def test_new_upstream_is_served_from_first_request(
    control_plane: ControlPlane, plus: FakeProgram, tmp_path: Path
) -> None:
    port = free_port()
    options = plus.options(control_plane, tmp_path)
    async with Backends(2).serving() as backends, running(options):
        await connected(control_plane)
        await control_plane.programmed(forwarding(port, (backends.endpoints(0), 1)))
        async with Load(port) as load:
            for number in range(5):
                shares = ((backends.endpoints(number % 2), 1),)
                await control_plane.programmed(forwarding(port, *shares, cluster=f"d{number}"))
            await load.settles({"0"})
        assert load.failed == {}
        assert plus.calls() == []
        assert [path.name for path in (tmp_path / "root" / "state").iterdir()] == ["d4-0.conf"]


async def test_weights_and_streams_change_by_api(
    control_plane: ControlPlane, plus: FakeProgram, tmp_path: Path
) -> None:
    port, health = free_port(), free_port()
    options = plus.options(control_plane, tmp_path, health)
    async with Backends(3).serving() as backends, running(options):
        await connected(control_plane)
        first = (backends.endpoints(0), 3)
        await control_plane.programmed(forwarding(port, first, (backends.endpoints(1), 1)))
        async with assert_no_reload(health):
            await control_plane.programmed(forwarding(port, first, (backends.endpoints(1, 2), 1)))
        answers = [(await get(port))[1] for _ in range(16)]
        assert sorted(answers) == sorted("0" * 12 + "11" + "22")
        await control_plane.programmed(streaming(port, backends.endpoints(0)))
        assert await get(port) == (200, "0")
        async with assert_no_reload(health):
            await control_plane.programmed(streaming(port, backends.endpoints(1)))
        assert await get(port) == (200, "1")
        assert await plus.servers("raw", "stream") == [f"{backends.addresses[1]}:{backends.port}"]


async def test_restarted_master_has_newest_endpoints(
    control_plane: ControlPlane, plus: FakeProgram, tmp_path: Path
) -> None:
    port = free_port()
    options = plus.options(control_plane, tmp_path)
    async with Backends(2).serving() as backends, running(options):
        await connected(control_plane)
        await control_plane.programmed(forwarding(port, (backends.endpoints(0), 1)))
        await control_plane.programmed(forwarding(port, (backends.endpoints(1), 1)))
        dead = master_pid(tmp_path)
        os.kill(dead, signal.SIGKILL)
        await until(lambda: not procfs.is_alive(dead))
        statuses: list[tuple[int, str]] = []
        async with patience.limit():
            while not statuses:
                with contextlib.suppress(aiohttp.ClientError):
                    statuses.append(await get(port))
        assert statuses == [(200, "1")]
        await control_plane.programmed(forwarding(port, (backends.endpoints(0), 1)))
        assert await get(port) == (200, "0")


async def test_next_agent_adopts_nginx_plus_with_its_endpoints(
    control_plane: ControlPlane, plus: FakeProgram, tmp_path: Path
) -> None:
    port = free_port()
    options = plus.options(control_plane, tmp_path)
    async with Backends(2).serving() as backends:
        agent = asyncio.create_task(main.run_nginx_agent(options, asyncio.Event()))
        await connected(control_plane)
        await control_plane.programmed(forwarding(port, (backends.endpoints(0), 1)))
        master = master_pid(tmp_path)
        agent.cancel()
        await asyncio.gather(agent, return_exceptions=True)
        await control_plane.until(lambda report: not report.instances)
        await plus.ask("POST", "/http/upstreams/c-0/servers", {"server": "127.0.0.1:9"})
        async with running(options):
            await control_plane.until(lambda report: report.programmed)
            assert await plus.servers("c-0") == [f"{backends.addresses[0]}:{backends.port}"]
            await control_plane.programmed(forwarding(port, (backends.endpoints(1), 1)))
            assert await get(port) == (200, "1")
            assert master_pid(tmp_path) == master


async def test_api_failure_is_reported_and_retried(
    control_plane: ControlPlane, plus: FakeProgram, tmp_path: Path
) -> None:
    port, health = free_port(), free_port()
    options = plus.options(control_plane, tmp_path, health)
    async with Backends(2).serving() as backends, running(options):
        await connected(control_plane)
        good = forwarding(port, (backends.endpoints(0), 1))
        await control_plane.programmed(good)
        async with assert_no_reload(health):
            plus.fail(Fault("POST", status=500, text="no memory", times=-1))
            control_plane.server.publish(GATEWAY, forwarding(port, (backends.endpoints(1), 1)))
            report = await control_plane.until(lambda report: bool(report.error))
            assert report.error == "pod-1: upstream c-0: 500 InternalError: no memory"
            assert report.instances[0].confirmed == good.version
            assert await get(port) == (200, "0")
            assert (await get(health, "/readyz"))[0] == 200
            # A request that succeeded is not repeated when its response is lost.
            plus.fail(Fault("POST", cut=True, after=True))
            await control_plane.until(lambda report: report.programmed)
        assert await get(port) == (200, "1")
        assert await plus.servers("c-0") == [f"{backends.addresses[1]}:{backends.port}"]


@pytest.mark.parametrize("answer", ['{"c-0": {}}', '"x"', "null"])
async def test_unexpected_api_response_is_reported(
    control_plane: ControlPlane,
    plus: FakeProgram,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
) -> None:
    monkeypatch.setattr(apply, "RESYNC", BackoffPolicy(first=0.1, maximum=60.0))
    port = free_port()
    options = plus.options(control_plane, tmp_path)
    async with Backends(1).serving() as backends, running(options):
        await connected(control_plane)
        plus.fail(Fault("GET", "/http/upstreams*", status=200, garbage=answer, times=-1))
        control_plane.server.publish(GATEWAY, forwarding(port, (backends.endpoints(0), 1)))
        report = await control_plane.until(lambda report: bool(report.error))
        assert "pod-1: " in report.error
        assert await get(port) == (200, "0")
        plus.fail()
        await control_plane.until(lambda report: report.programmed)


async def test_foreign_change_of_upstream_is_corrected(
    control_plane: ControlPlane,
    plus: FakeProgram,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(apply, "RESYNC", BackoffPolicy(first=0.3, maximum=60.0))
    port = free_port()
    options = plus.options(control_plane, tmp_path)
    async with Backends(2).serving() as backends, running(options):
        await connected(control_plane)
        await control_plane.programmed(forwarding(port, (backends.endpoints(0), 1)))
        (ours,) = await plus.ask("GET", "/http/upstreams/c-0/servers")
        stranger = {"server": f"{backends.addresses[1]}:{backends.port}"}
        await plus.ask("POST", "/http/upstreams/c-0/servers", stranger)
        await plus.ask("PATCH", f"/http/upstreams/c-0/servers/{ours['id']}", {"down": True})
        async with patience.limit():
            while await plus.ask("GET", "/http/upstreams/c-0/servers") != [ours]:
                await patience.pause()
        assert await get(port) == (200, "0")


async def test_rejected_configuration_leaves_upstreams_unchanged(
    control_plane: ControlPlane, plus: FakeProgram, tmp_path: Path
) -> None:
    port = free_port()
    options = plus.options(control_plane, tmp_path)
    async with Backends(2).serving() as backends, running(options):
        await connected(control_plane)
        await control_plane.programmed(forwarding(port, (backends.endpoints(0), 1)))
        taken = await asyncio.start_server(lambda _r, _w: None, "127.0.0.1", 0)
        busy = taken.sockets[0].getsockname()[1]
        listen = File.make(
            "gatehouse/servers/busy.conf", f"server {{ listen 127.0.0.1:{busy}; }}\n"
        )
        control_plane.server.publish(
            GATEWAY, forwarding(port, (backends.endpoints(1), 1), files=(listen,))
        )
        report = await control_plane.until(lambda report: bool(report.error))
        assert "in use" in report.error
        assert await get(port) == (200, "0")
        state = (tmp_path / "root" / "state" / "c-0.conf").read_text()
        assert backends.addresses[0] in state
        taken.close()
        await taken.wait_closed()
        await control_plane.until(lambda report: report.programmed)
        assert await get(port) == (200, "1")


async def test_key_value_zones_are_synchronized(
    control_plane: ControlPlane, plus: FakeProgram, tmp_path: Path
) -> None:
    port, health = free_port(), free_port()
    options = plus.options(control_plane, tmp_path, health)
    async with Backends(1).serving() as backends, running(options):

        async def hold(pairs: str) -> None:
            zone = File.make("gatehouse/snippets.conf", "keyval_zone zone=split:32k;\n")
            held = File.make("gatehouse/keyvals/split.json", pairs)
            bundle = forwarding(port, (backends.endpoints(0), 1), files=(zone, held))
            await control_plane.programmed(bundle)

        await connected(control_plane)
        await hold('{"a.example":"50","b.example":"10"}')
        pairs = await plus.ask("GET", "/http/keyvals/split")
        assert pairs == {"a.example": "50", "b.example": "10"}
        await plus.ask("POST", "/http/keyvals/split", {"stranger": "1"})
        async with assert_no_reload(health):
            await hold('{"a.example":"95","c.example":"1"}')
        pairs = await plus.ask("GET", "/http/keyvals/split")
        assert pairs == {"a.example": "95", "c.example": "1"}
