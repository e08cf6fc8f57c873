"""Sockets of UDP listeners and of NGINX Plus outlive a kill under traffic."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from fakes import patience
from fakes.agent_control_plane import ControlPlane, answering
from fakes.durations import last, pace
from fakes.killed_proxy import STEADY_SECONDS, answers, kill_repeatedly, nginx
from fakes.loopback import free_port
from fakes.nginx_agent import master_pid
from fakes.nginx_plus_agent import FakeProgram
from gatehouse.dataplane.file_set import File
from gatehouse.runtime import procfs

pytestmark = pytest.mark.process

KILLS = 3


class DatagramLoad:
    """Datagrams from a new socket each, 100 a second, until the block ends."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._requests: set[asyncio.Task[None]] = set()
        self._sending: asyncio.Task[None] | None = None
        self.results: Counter[str] = Counter()

    async def __aenter__(self) -> DatagramLoad:
        self._sending = asyncio.create_task(self._send())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._sending is not None
        self._sending.cancel()
        await asyncio.gather(*self._requests)

    async def _send(self) -> None:
        while True:
            self._requests.add(asyncio.create_task(self._one()))
            await pace(0.01)

    async def _one(self) -> None:
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        class Receiver(asyncio.DatagramProtocol):
            def datagram_received(self, data: bytes, address: object) -> None:
                if not answer.done():
                    answer.set_result(data.decode())

            def error_received(self, error: Exception) -> None:
                if not answer.done():
                    answer.set_result(type(error).__name__)

        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            Receiver, remote_addr=("127.0.0.1", self._port)
        )
        transport.sendto(b"?")
        try:
            async with patience.limit():
                self.results[await answer] += 1
        except TimeoutError:
            self.results["lost"] += 1
        transport.close()


def udp(port: int) -> File:
    text = f"server {{ listen 127.0.0.1:{port} udp reuseport; return ok; }}\n"
    return File.make("gatehouse/stream.conf", text)


def kill_master(directory: Path) -> None:
    os.kill(master_pid(directory), signal.SIGKILL)


def kill_all(directory: Path) -> None:
    master = master_pid(directory)
    for pid in (master, *procfs.pids_in_session(master)):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("kill", [kill_master, kill_all], ids=["master", "all"])
async def test_kill_of_nginx_loses_no_waiting_datagram(
    control_plane: ControlPlane, tmp_path: Path, kill: Callable[[Path], None]
) -> None:
    async with nginx(control_plane, tmp_path) as (port, _):
        datagrams = free_port()
        await control_plane.programmed(answering(port, "ok", udp(datagrams)))
        async with DatagramLoad(datagrams) as load:
            for _ in range(KILLS):
                await last(STEADY_SECONDS)
                kill(tmp_path)
                await answers(port)
    print(f"NGINX killed {KILLS} times under UDP: {dict(load.results)}")
    assert load.results["ok"] > 1000
    assert load.results["ConnectionRefusedError"] == 0
    # A killed worker loses the datagrams that it has read, at most one each.
    assert load.results["lost"] <= (KILLS * 2 if kill is kill_all else 0)


async def test_removed_udp_listener_is_closed(control_plane: ControlPlane, tmp_path: Path) -> None:
    async with nginx(control_plane, tmp_path) as (port, _):
        datagrams = free_port()
        await control_plane.programmed(answering(port, "ok", udp(datagrams)))
        await control_plane.programmed(answering(port, "ok"))
        load = DatagramLoad(datagrams)
        await load._one()
        assert dict(load.results) == {"ConnectionRefusedError": 1}


async def test_kill_of_nginx_plus_master_loses_no_request(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    program = str(FakeProgram(tmp_path).program)
    async with nginx(control_plane, tmp_path, GATEHOUSE_AGENT_NGINX=program) as (port, _):
        load = await kill_repeatedly(port, lambda: kill_master(tmp_path))
    print(f"master of NGINX Plus killed: {load}")
    assert not load.failed
