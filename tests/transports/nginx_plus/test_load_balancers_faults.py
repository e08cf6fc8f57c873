"""Hosts that are unavailable, slow or replaced: no update is lost, and none delays another."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import suppress
from typing import Any

import pytest

from fakes import patience
from fakes.hosts import JITTER, Clock, desired_upstreams, fleet, held, plus, running_host
from fakes.loopback import free_port
from fakes.nginx_plus import FakePlus, Fault
from fakes.patience import until
from gatehouse.compiler.ir import load_balancing as ir
from gatehouse.dataplane.delivery import HostReport
from gatehouse.transports.nginx_plus import client
from gatehouse.transports.nginx_plus.host_state import HOST_RETRIES
from gatehouse.transports.nginx_plus.worker import RealClock, Worker

WEB = "http/web"
A, B = "10.0.0.1:30080", "10.0.0.2:30080"


def test_retries_begin_at_two_seconds_and_double_to_a_minute() -> None:
    assert [HOST_RETRIES.delay(n) for n in range(1, 9)] == [2, 4, 8, 16, 32, 60, 60, 60]
    assert HOST_RETRIES.delay(100_000) == 60


async def test_host_gets_the_newest_version_after_hours_of_retries_per_minute() -> None:
    port, clock, reports = free_port(), Clock(), list[HostReport]()
    host = ir.Host(f"http://127.0.0.1:{port}/api")
    worker = Worker(host, reports.append, clock, lambda: JITTER)
    task = asyncio.create_task(worker.run())
    try:
        worker.set_desired(desired_upstreams({WEB: [A]}))
        hours = 4 * 3600
        for second in range(0, hours, 10):
            await until(lambda: any(moment > clock.now() for moment in clock.waiting))
            await clock.move(10)
            if second == 3600:
                worker.set_desired(desired_upstreams({WEB: [B]}))
        await until(lambda: bool(clock.waiting))
        attempts = worker.calls["GET", "none"]
        # Six to get to a minute, and then one each 60.5 s, seen at steps of 10 s.
        assert hours / 70 - 3 <= attempts <= hours / 60 + 8
        assert "cannot connect: " in reports[-1].error
        fake_upstreams = plus(WEB)
        async with FakePlus(fake_upstreams).serving(port=port):
            await clock.move(61)
            await until(lambda: reports[-1].error == "" and reports[-1].behind == 0)
            (server,) = fake_upstreams.upstreams["http", "web"].servers.values()
            assert server.server == B
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_slow_host_times_out_and_is_retried() -> None:
    async with running_host(plus(WEB)) as host:
        worker = host.worker
        host.fake.faults.append(Fault("POST", "*", delay=60.0))
        desired_state = desired_upstreams({WEB: [A]})
        desired_state.timeout = 0.2
        worker.set_desired(desired_state)
        await asyncio.sleep(0)
        await host.pass_(JITTER)
        assert host.reports[-1].error == "no response within 0.2 s"
        await host.pass_(2 + JITTER)
        assert host.held(WEB) == [A]


async def test_endless_response_does_not_fill_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_ANSWER_BYTES", 1 << 20)
    sent = 0

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
        with suppress(ConnectionError):
            while True:
                writer.write(b"[" * 65536)
                sent += 65536
                await writer.drain()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    reports: list[HostReport] = []
    port = server.sockets[0].getsockname()[1]
    worker = Worker(ir.Host(f"http://127.0.0.1:{port}/api"), reports.append, RealClock(), lambda: 0)
    task = asyncio.create_task(worker.run())
    try:
        worker.set_desired(desired_upstreams({WEB: [A]}))
        await until(lambda: bool(reports) and reports[-1].error != "")
        assert reports[-1].error == "200: response is larger than 1 MiB"
        assert sent < 64 << 20
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        server.close()


async def test_unresponsive_host_does_not_delay_others() -> None:
    async with fleet(plus(WEB), plus(WEB), plus(WEB)) as (plus_fleet, fakes, hosts):
        fakes[0].faults.append(Fault(delay=3600.0, times=-1))
        plus_fleet.want({"lb": (hosts, desired_upstreams({WEB: [A]}))})
        await until(lambda: held(fakes[1]) == held(fakes[2]) == [A])
        plus_fleet.want({"lb": (hosts, desired_upstreams({WEB: [B]}))})
        await until(lambda: held(fakes[1]) == held(fakes[2]) == [B])
        assert held(fakes[0]) == []


async def test_unanswered_dns_queries_do_not_delay_other_hosts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_up, answered = socket.getaddrinfo, threading.Event()
    unanswered: list[str] = []

    def look(host: Any, *rest: Any, **more: Any) -> Any:
        if "dead" in str(host):
            unanswered.append(str(host))
            answered.wait(patience.SECONDS)
            raise socket.gaierror(socket.EAI_AGAIN, "no server answered")
        return looked_up(host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", look)
    async with fleet(plus(WEB)) as (plus_fleet, fakes, (host,)):
        named = ir.Host(host.url.replace("127.0.0.1", "localhost"))
        dead = [ir.Host(f"http://dead-{number}.example:9000/api") for number in range(60)]
        desired = desired_upstreams({WEB: [A]})
        plus_fleet.want({"lb": (tuple(dead), desired)})
        await until(lambda: len(set(unanswered)) == len(dead))
        plus_fleet.want({"lb": ((*dead, named), desired)})
        async with patience.limit():
            await until(lambda: held(fakes[0]) == [A])
        answered.set()


async def test_unknown_hostname_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", look)
    host = client.PlusClient(ir.Host("http://nobody.example:9000/api"), 5.0)
    try:
        with pytest.raises(client.PlusHostError) as refused:
            await host.negotiate()
    finally:
        await host.close()
    assert str(refused.value) == "cannot resolve the hostname: Name or service not known"


async def test_removed_host_keeps_its_configuration() -> None:
    async with fleet(plus(WEB), plus(WEB)) as (plus_fleet, fakes, hosts):
        plus_fleet.want({"lb": (hosts, desired_upstreams({WEB: [A]}))})
        await until(lambda: held(fakes[0]) == held(fakes[1]) == [A])
        plus_fleet.want({"lb": (hosts[:1], desired_upstreams({WEB: [B]}))})
        await until(lambda: held(fakes[0]) == [B])
        assert held(fakes[1]) == [A]
        assert len(plus_fleet.workers()) == 1


async def test_constant_node_changes_lose_no_update() -> None:
    names = [f"http/u{n}" for n in range(20)]
    async with fleet(*(plus(*names) for _ in range(4))) as (plus_fleet, fakes, hosts):
        servers = [f"10.0.0.{n}:30080" for n in range(20)]
        fakes[0].faults.append(Fault("POST", "*", times=2, cut=True, after=True))
        for turn in range(15):
            desired = [server for n, server in enumerate(servers) if (n + turn) % 5]
            plus_fleet.want({"lb": (hosts, desired_upstreams(dict.fromkeys(names, desired)))})
            calls = sum(len(fake.calls) for fake in fakes)
            await until(lambda calls=calls: sum(len(fake.calls) for fake in fakes) > calls)  # type: ignore[misc]
        last = sorted(desired)
        await until(lambda: all(held(f, n[5:]) == last for f in fakes for n in names))


async def test_hosts_do_not_apply_the_same_change_at_the_same_time() -> None:
    async with fleet(*(plus(WEB) for _ in range(8))) as (plus_fleet, fakes, hosts):
        plus_fleet.want({"lb": (hosts, desired_upstreams({WEB: [A]}))})
        times = [worker.knowledge.next_at() for worker in plus_fleet.workers().values()]
        assert len(set(times)) == len(times)
        assert max(times) - min(times) < 0.5
        await until(lambda: all(held(fake) == [A] for fake in fakes))
