"""Probes of an Envoy, with sockets in place of Envoy's."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from gatehouse.agent.envoy.envoy_probe import EnvoyProbe
from gatehouse.agent.envoy.supervisor import EnvoySupervisor
from gatehouse.runtime import procfs
from gatehouse.runtime.watched_process import WatchedProcess


class Sockets:
    """Admin interface and listener of an Envoy with two workers."""

    def __init__(self, directory: Path) -> None:
        self.admin, self.listener = directory / "admin.sock", directory / "probe.sock"
        self.process: WatchedProcess | None = None
        self.connections = 0
        self.writers: list[asyncio.StreamWriter] = []
        self.hung: set[int] = set()
        """Numbers of connections whose worker hangs."""
        self.closes = False
        """True for the listener of an earlier version, which closes each connection."""

    async def answer_admin(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.writers.append(writer)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nLIVE\n")
        writer.close()

    async def answer_probe(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        number, self.connections = self.connections, self.connections + 1
        self.writers.append(writer)
        if self.closes:
            writer.write(b"ok")
        else:
            while data := await reader.read(1):
                if number in self.hung:
                    return
                writer.write(data)
        writer.close()

    @contextlib.asynccontextmanager
    async def probe(self) -> AsyncIterator[EnvoyProbe]:
        servers = [
            await asyncio.start_unix_server(self.answer_admin, self.admin),
            await asyncio.start_unix_server(self.answer_probe, self.listener),
        ]
        self.process = WatchedProcess(os.getpid())
        probe = EnvoyProbe(cast(EnvoySupervisor, self), self.admin, self.listener)
        yield probe
        probe.close()
        self.process.release()
        for server in servers:
            server.close()
        for writer in self.writers:
            writer.close()
        for writer in self.writers:
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


@pytest.fixture
def sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sockets:
    monkeypatch.setattr(procfs, "threads", lambda _pid, _prefix: 2)
    return Sockets(tmp_path)


async def test_each_worker_is_probed_on_a_connection_that_stays_open(sockets: Sockets) -> None:
    async with sockets.probe() as probe:
        for _ in range(4):
            assert not await probe.silent(2)
        assert sockets.connections == 2
        sockets.hung = {1}
        for _ in range(3):
            assert [target.name for target in await probe.silent(0.2)] == ["Envoy worker 1"]
        assert sockets.connections == 2


async def test_listener_of_an_earlier_version_responds_by_closing(sockets: Sockets) -> None:
    sockets.closes = True
    async with sockets.probe() as probe:
        for _ in range(4):
            assert not await probe.silent(2)
        assert sockets.connections > 2


async def test_listener_that_is_gone_responds(sockets: Sockets) -> None:
    async with sockets.probe() as probe:
        assert not await probe.silent(2)
        sockets.listener.unlink()
        for _ in range(3):
            assert not await probe.silent(2)


def test_threads_are_counted_by_their_names() -> None:
    name = Path(f"/proc/self/task/{os.getpid()}/comm").read_text().strip()
    assert procfs.threads(os.getpid(), name) >= 1
    assert procfs.threads(os.getpid(), "no thread") == 0
    assert procfs.threads(2**22 + 1, name) == 0
