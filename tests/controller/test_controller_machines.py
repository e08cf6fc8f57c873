"""Reports of external machines: by real agents, over the real channel, without a cluster."""

from __future__ import annotations

import asyncio
import re
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fakes.external_machines import Machine
from fakes.installation import until
from gatehouse.compiler.frontends import external_load_balancer as front
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir import http
from gatehouse.compiler.ir import load_balancing as lb
from gatehouse.controller.load_balancers import machines
from gatehouse.controller.load_balancers.balancer import Balancer
from gatehouse.controller.load_balancers.metrics import host_metrics
from gatehouse.controller.metrics import collector_registry
from gatehouse.controller.options import SERVER_NAME
from gatehouse.dataplane import upstream_name
from gatehouse.dataplane.machine_identity import Machine as Name
from gatehouse.runtime.health import HealthServer
from gatehouse.runtime.prometheus import page_of
from gatehouse.standalone import pki
from gatehouse.standalone.free_ports import free_port
from gatehouse.transports import nginx_plus
from gatehouse.transports.server import AgentServer, Denied, Identity, Unavailable

KEY = ("ExternalLoadBalancer", "edge", "front")
BALANCER = front.name_of(KEY)


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
        delivery.on_report = delivery.envoys.on_report = lambda _name: self.woken.set()

    def reports(self) -> dict[str, Any]:
        return {each.host: each for each in self.fleet.reports(BALANCER)}


@pytest.fixture
async def plane(place: Path) -> AsyncIterator[Plane]:
    authority = place / "authority"
    authority.mkdir()
    pki.ensure_channel(authority, [SERVER_NAME], [], datetime.now(UTC))
    delivery = AgentServer(nobody)
    made = Plane(delivery, authority, free_port())
    files = (authority / "tls.crt", authority / "tls.key", authority / "ca.crt")
    await delivery.start_outside(f"127.0.0.1:{made.port}", *files, made.fleet.identify)
    yield made
    await delivery.stop(0.1)


def asked(*hosts: str, port: int = 0, endpoint: int = 9) -> lb.Machines:
    cluster = http.Cluster("http-web", (http.Endpoint("127.0.0.1", endpoint),))
    route = http.Route("r", http.Match(), http.Forward((http.Backend("http-web"),)))
    listener = ir.Listener(port or free_port(), "HTTP", (http.VirtualHost("", (route,)),))
    gateway = ir.Gateway(BALANCER, "127.0.0.1", (listener,), clusters=(cluster,))
    upstream = lb.UpstreamSet(upstream_name.UpstreamName("http", "web"), ())
    return lb.Machines(BALANCER, "nginx", tuple(map(lb.Machine, hosts)), (upstream,), gateway)


async def test_missing_machine_is_reported_disconnected_after_grace_period(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machines, "DISCONNECT_GRACE_SECONDS", 0.3)
    plane.fleet.set_desired([asked("lb-1", "lb-2")])
    assert {each.error for each in plane.reports().values()} == {""}
    assert plane.fleet.version(BALANCER) == ""
    async with asyncio.timeout(5):
        await plane.woken.wait()
    assert {each.error for each in plane.reports().values()} == {machines.DISCONNECTED_MESSAGE}


def test_identify_accepts_only_machines_of_load_balancers() -> None:
    fleet = machines.MachineFleet(AgentServer(nobody), lambda: None)
    with pytest.raises(Unavailable):
        fleet.identify(Name("edge", "front", "lb-1").uri)
    fleet._desired = {BALANCER: asked("lb-1")}
    assert fleet.identify(Name("edge", "front", "lb-1").uri) == Identity(BALANCER, "lb-1")
    with pytest.raises(Unavailable, match="has no host 'lb-2'"):
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
    wanted = asked("lb-1")
    plane.fleet.set_desired([wanted])
    machine = Machine(place, "lb-1", plane.port)
    machine.certify(plane.authority, "edge/front")

    async def served() -> bool:
        plane.fleet.set_desired([wanted])
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
    wanted = asked("lb-1", "lb-2")
    plane.fleet.set_desired([wanted])
    machine = Machine(place, "lb-1", plane.port)
    machine.certify(plane.authority, "edge/front")
    known = Balancer(KEY, front.Compiled(wanted), {})

    async def served() -> bool:
        plane.fleet.set_desired([wanted])
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
    assert 0 <= time.time() - float(synced) < 1
    assert f"{name}{away}" not in text


async def measured(plane: Plane, known: Balancer) -> str:
    nobody_else = nginx_plus.Fleet(lambda _name, _report: None)
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
