"""Probe of an Envoy: its admin interface and each of its worker threads must answer.

The admin interface is served by the main thread. The worker threads serve a listener that repeats
what it receives. Envoy gives a new connection to the worker with the fewest, so that as many
connections as workers reach all of them. They stay open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path

from gatehouse.agent.envoy.supervisor import EnvoySupervisor
from gatehouse.agent.liveness import ProbeTarget
from gatehouse.runtime import procfs

_READY = b"GET /ready HTTP/1.1\r\nHost: envoy\r\nConnection: close\r\n\r\n"

_WORKER_THREADS = "wrk:worker_"
"""Prefix of the names of Envoy's worker threads."""


class _WorkerConnection:
    """Connection to one worker."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._writer: asyncio.StreamWriter | None = None

    async def exchange(self) -> bytes:
        """Send a byte and return the response. Raises OSError."""
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_unix_connection(str(self._socket))
        response = b""
        try:
            self._writer.write(b"?")
            response = await self._reader.read(64)
        finally:
            if not response:
                # For example the Envoy of an earlier agent, whose listener closes connections.
                self.close()
        return response

    def close(self) -> None:
        """Close the connection."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class EnvoyProbe:
    """Probe of the Envoy of one supervisor."""

    def __init__(self, supervisor: EnvoySupervisor, admin: Path, listener: Path) -> None:
        """`admin`, `listener`: sockets of the admin interface and of the listener for probes."""
        self._supervisor = supervisor
        self._admin, self._listener = admin, listener
        self._pid = 0
        self._workers: list[_WorkerConnection] = []
        """One for each worker thread. Empty until Envoy was ready: before it has no workers."""
        self._requests: dict[str, asyncio.Task[bytes]] = {}
        """Requests in progress by the name of the part that must respond."""

    async def silent(self, seconds: float) -> frozenset[ProbeTarget]:
        """Wait at most `seconds` for responses. Return the parts that did not respond."""
        process = self._supervisor.process
        pid = process.pid if process is not None else 0
        if pid != self._pid:
            self._pid = pid
            self.close()
        if not pid:
            return frozenset()
        admin = self._request("Envoy admin interface", self._exchange_admin)
        for number, connection in enumerate(self._workers):
            self._request(f"Envoy worker {number}", connection.exchange)
        done, _ = await asyncio.wait(self._requests.values(), timeout=seconds)
        for name, task in list(self._requests.items()):
            if task in done:
                # An error is a response: a process that hangs neither closes nor refuses.
                task.exception()
                del self._requests[name]
        if not self._workers and admin in done and _is_ready(admin):
            workers = procfs.threads(pid, _WORKER_THREADS)
            self._workers = [_WorkerConnection(self._listener) for _ in range(max(1, workers))]
        silent = set(self._requests)
        if procfs.state(pid) == "T":
            silent.add("Envoy")
        return frozenset(ProbeTarget(pid, name) for name in silent)

    def close(self) -> None:
        """End the requests in progress."""
        while self._requests:
            self._requests.popitem()[1].cancel()
        while self._workers:
            self._workers.pop().close()

    def _request(
        self, name: str, exchange: Callable[[], Coroutine[object, object, bytes]]
    ) -> asyncio.Task[bytes]:
        if name not in self._requests:
            self._requests[name] = asyncio.create_task(exchange())
        return self._requests[name]

    async def _exchange_admin(self) -> bytes:
        reader, writer = await asyncio.open_unix_connection(str(self._admin))
        try:
            writer.write(_READY)
            return await reader.read()
        finally:
            writer.close()


def _is_ready(request: asyncio.Task[bytes]) -> bool:
    return request.exception() is None and b" 200 " in request.result().split(b"\r\n", 1)[0]
