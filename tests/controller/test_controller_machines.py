"""Reports of external machines: by real agents, over the real channel, without a cluster."""

from __future__ import annotations

import asyncio
import re
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from fakes import patience
from fakes.external_machines import Machine
from fakes.loopback import free_port
from fakes.patience import until
from gatehouse.compiler.frontends import external_load_balancer as front
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir import http
from gatehouse.compiler.ir import load_balancing as lb
from gatehouse.controller import verdicts
from gatehouse.controller.load_balancers import machines
from gatehouse.controller.load_balancers.balancer import Balancer
from gatehouse.controller.load_balancers.metrics import host_metrics
from gatehouse.controller.metrics import collector_registry
from gatehouse.controller.options import SERVER_NAME
from gatehouse.dataplane import upstream_name
from gatehouse.dataplane.machine_identity import MachineIdentity as Name
from gatehouse.dataplane.origin import port_of
from gatehouse.runtime.health import HealthServer
from gatehouse.runtime.prometheus import page_of
from gatehouse.standalone import pki
from gatehouse.transports import nginx_plus
from gatehouse.transports.server import AgentServer, AuthenticationUnavailable, Denied, Identity

KEY = ("ExternalLoadBalancer", "edge", "front")
BALANCER = front.source_name(KEY)


async def nobody(_token: str) -> Identity:
    raise Denied("nobody has a token here")


@pytest.fixture
def place() -> Iterator[Path]:
    # Short, for the sake of Unix sockets.
    with tempfile.TemporaryDirectory(prefix="gh-") as directory:
        yield Path(directory)


class Plane:
    """A fleet of machines, and where it listens."""

    def __init__(self, delivery: AgentServer, authority: Path, port: int) -> None:
        self.delivery, self.authority, self.port = delivery, authority, port
        self.woken = asyncio.Event()
        self.fleet = machines.MachineFleet(delivery, self.woken.set)
        delivery.events.on_report = lambda _name: self.woken.set()

    def reports(self) -> dict[str, Any]:
        return {report.host: report for report in self.fleet.reports(BALANCER)}


@pytest.fixture
async def plane(place: Path) -> AsyncIterator[Plane]:
    authority = place / "authority"
    authority.mkdir()
    pki.ensure_channel(authority, [SERVER_NAME], [], datetime.now(UTC))
    delivery = AgentServer(nobody)
    control_plane = Plane(delivery, authority, free_port())
    files = (authority / "tls.crt", authority / "tls.key", authority / "ca.crt")
    await delivery.start_outside(
        f"127.0.0.1:{control_plane.port}", *files, control_plane.fleet.identify
    )
    yield control_plane
    await delivery.stop(0.1)


def asked(*hosts: str, port: int = 0, endpoint: int = 9) -> lb.Machines:
    cluster = http.Cluster("http-web", (http.Endpoint("127.0.0.1", endpoint),))
    route = http.Route("r", http.Match(), http.Forward((http.Backend("http-web"),)))
    listener = ir.Listener(port or free_port(), "HTTP", (http.VirtualHost("", (route,)),))
    gateway = ir.GatewayConfiguration(BALANCER, "127.0.0.1", (listener,), clusters=(cluster,))
    upstream = lb.UpstreamSet(upstream_name.UpstreamName("http", "web"), ())
    return lb.Machines(BALANCER, "nginx", tuple(map(lb.Machine, hosts)), (upstream,), gateway)


async def test_missing_machine_is_reported_disconnected_after_grace_period(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machines, "DISCONNECT_GRACE_SECONDS", 0.3)
    plane.fleet.set_desired([asked("lb-1", "lb-2")])
    assert {report.error for report in plane.reports().values()} == {""}
    assert plane.fleet.version(BALANCER) == ""
    async with patience.limit():
        await plane.woken.wait()
    assert {report.error for report in plane.reports().values()} == {machines.DISCONNECTED_MESSAGE}


def test_identify_accepts_only_machines_of_load_balancers() -> None:
    fleet = machines.MachineFleet(AgentServer(nobody), lambda: None)
    with pytest.raises(AuthenticationUnavailable):
        fleet.identify(Name("edge", "front", "lb-1").uri)
    fleet._desired = {BALANCER: asked("lb-1")}
    assert fleet.identify(Name("edge", "front", "lb-1").uri) == Identity(f"{BALANCER}/lb-1", "lb-1")
    with pytest.raises(AuthenticationUnavailable, match="has no host 'lb-2'"):
        fleet.identify(Name("edge", "front", "lb-2").uri)
    for uri in (
        "",
        "spiffe://gatehouse.dev/load-balancer/edge/front",
        "spiffe://x/edge/front/lb-1",
    ):
        with pytest.raises(Denied):
            fleet.identify(uri)


@pytest.mark.process
async def test_machine_report_stays_valid_for_grace_period_after_disconnect(
    plane: Plane, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = asked("lb-1")
    plane.fleet.set_desired([request])
    machine = Machine(place, "lb-1", plane.port)
    machine.certify(plane.authority, "edge/front")

    async def served() -> bool:
        plane.fleet.set_desired([request])
        report = plane.reports()["lb-1"]
        return bool(report.version) and report.version == plane.fleet.version(BALANCER)

    async with machine.running():
        await until(served)
        before = plane.reports()
    assert not any(plane.fleet.connected().values())
    assert plane.reports() == before
    monkeypatch.setattr(machines, "DISCONNECT_GRACE_SECONDS", 0.0)
    assert plane.reports()["lb-1"].error == machines.DISCONNECTED_MESSAGE
    assert plane.reports()["lb-1"].version == ""


@pytest.mark.process
async def test_metrics_of_every_machine_are_exported(plane: Plane, place: Path) -> None:
    begun = time.time()
    request = asked("lb-1", "lb-2")
    plane.fleet.set_desired([request])
    machine = Machine(place, "lb-1", plane.port)
    machine.certify(plane.authority, "edge/front")
    known = Balancer(KEY, front.CompiledLoadBalancer(request), {})

    async def served() -> bool:
        plane.fleet.set_desired([request])
        known.reports = plane.reports()
        report = known.reports["lb-1"]
        return bool(report.version) and report.version == plane.fleet.version(BALANCER)

    async with machine.running():
        await until(served)
        text = await measured(plane, known)
    prefix = "gatehouse_controller_load_balancer_"
    here, away = (f'{{host="{name}",load_balancer="{BALANCER}"}}' for name in ("lb-1", "lb-2"))
    for line in (f"up{here} 1.0", f"up{away} 0.0", f"unsynced_upstreams{here} 0.0"):
        assert f"{prefix}{line}" in text
    assert f"unsynced_upstreams{away} 1.0" in text
    assert f"{prefix}failed_upstreams{here} 0.0" in text
    name = f"{prefix}last_sync_timestamp_seconds"
    (synced,) = re.findall(rf"{re.escape(name + here)} (\S+)", text)
    assert begun <= float(synced) <= time.time()
    assert f"{name}{away}" not in text


async def measured(plane: Plane, known: Balancer) -> str:
    nobody_else = nginx_plus.PlusFleet(lambda _name, _report: None)
    registry = collector_registry(lambda: host_metrics([known], nobody_else, plane.fleet))
    server = HealthServer(lambda: "", page_of(registry))
    where = free_port()
    await server.start(f"127.0.0.1:{where}")
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{where}/metrics") as response,
        ):
            return await response.text()
    finally:
        await server.stop()


def with_ports(
    *ports: int, hosts: tuple[str, ...] = ("lb-1", "lb-2"), endpoint: int = 9
) -> lb.Machines:
    """Return machines that listen on ports, each of which an error can name."""
    request = asked(*hosts, port=ports[0], endpoint=endpoint)
    action = http.Forward((http.Backend("http-web"),))
    listeners = tuple(
        ir.Listener(
            port,
            "HTTP",
            (
                http.VirtualHost(
                    "", (http.Route("r", http.Match(), action, origin=port_of(KEY, port)),)
                ),
            ),
        )
        for port in sorted(ports)
    )
    gateway = msgspec.structs.replace(request.gateway, listeners=listeners)
    return msgspec.structs.replace(request, gateway=gateway)


@pytest.mark.process
async def test_port_that_one_machine_rejects_is_left_out_there_and_changes_reach_both(
    plane: Plane, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both machines are this one: the second cannot bind the ports of the first."""
    monkeypatch.setattr(verdicts, "PORT_RETRY_SECONDS", 0.5)
    first, second = (Machine(place, name, plane.port) for name in ("lb-1", "lb-2"))
    for machine in (first, second):
        machine.certify(plane.authority, "edge/front")
    taken = free_port()
    request = with_ports(taken)

    async def synchronized(*hosts: str) -> bool:
        plane.fleet.set_desired([request])
        version, reports = plane.fleet.version(BALANCER), plane.reports()
        return bool(version) and all(reports[host].version == version for host in hosts)

    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(AsyncExitStack())
        await one.enter_async_context(first.running())
        await until(lambda: synchronized("lb-1"))
        await stack.enter_async_context(second.running())

        async def left_out() -> bool:
            await synchronized()
            report = plane.reports()["lb-2"]
            return await synchronized("lb-1", "lb-2") and bool(report.failing)

        await until(left_out)
        ((part, message),) = plane.reports()["lb-2"].failing
        assert part == f"port {taken}"
        assert message.startswith("rejected by nginx/")
        assert "failed (98: Address" in message
        assert plane.reports()["lb-1"].failing == ()
        assert await status_of(taken) == 502

        # A later change reaches both machines.
        before = plane.fleet.version(BALANCER)
        request = with_ports(taken, endpoint=10)

        async def changed() -> bool:
            return await synchronized("lb-1", "lb-2") and plane.fleet.version(BALANCER) != before

        await until(changed)
        assert plane.reports()["lb-1"].failing == ()
        # The port is free again.
        await one.aclose()

        async def repaired() -> bool:
            return await synchronized("lb-2") and not plane.reports()["lb-2"].failing

        await until(repaired)
        assert await status_of(taken) == 502


async def status_of(port: int) -> int:
    """Return the status of a response; the endpoint refuses connections."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}/") as response,
    ):
        return response.status
