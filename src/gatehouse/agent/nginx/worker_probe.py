"""Probe of an NGINX: every worker must answer a request on a connection of its own.

The connections stay open, because a new one is accepted by any worker. A master has no socket. It
is silent if it is stopped.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from gatehouse.agent.liveness import ProbeTarget
from gatehouse.agent.nginx import master as masters
from gatehouse.agent.nginx.supervisor import NginxSupervisor
from gatehouse.runtime import procfs

ATTEMPTS_PER_WORKER = 4
"""Number of connections opened for each worker that has none. The kernel selects the worker."""

MAX_ATTEMPTS = 64
"""Maximum number of connections opened by one probe."""

_REQUEST = b"GET /version HTTP/1.1\r\nHost: agent\r\n\r\n"


class _Connection:
    """Connection to one worker, with at most one request in progress."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[int] | None = None

    def request(self) -> asyncio.Task[int]:
        """Send a request unless one is in progress. The result is the pid of the worker."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._exchange())
        return self._task

    async def _exchange(self) -> int:
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_unix_connection(str(self._socket))
        self._writer.write(_REQUEST)
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        _, _, length = head.partition(b"\r\ncontent-length:")
        body = await self._reader.readexactly(int(length.split(b"\r\n", 1)[0]))
        return int(body.split()[-1])

    def close(self) -> None:
        """Close the connection."""
        if self._task is not None and self._task.done():
            self._task.exception()
        elif self._task is not None:
            self._task.cancel()
        if self._writer is not None:
            self._writer.close()


class WorkerProbe:
    """Probe of the NGINX of one supervisor."""

    def __init__(self, supervisor: NginxSupervisor, socket: Path) -> None:
        """`socket`: the one on which workers report version and pid."""
        self._supervisor, self._socket = supervisor, socket
        self._connections: dict[int, _Connection] = {}

    async def silent(self, seconds: float) -> frozenset[ProbeTarget]:
        """Wait at most `seconds` for responses. Return the processes that did not respond."""
        master = self._supervisor.process
        workers = frozenset(filter(masters.is_worker, master.children() if master else ()))
        for pid in self._connections.keys() - workers:
            self._connections.pop(pid).close()
        silent = await self._silent_workers(workers, seconds)
        silent |= {pid for pid in workers if procfs.state(pid) == "T"}
        targets = {ProbeTarget(pid, "NGINX worker") for pid in silent}
        if master is not None and procfs.state(master.pid) == "T":
            targets.add(ProbeTarget(master.pid, "NGINX master"))
        return frozenset(targets)

    def close(self) -> None:
        """Close all connections, before NGINX drains."""
        while self._connections:
            self._connections.popitem()[1].close()

    async def _silent_workers(self, workers: frozenset[int], seconds: float) -> frozenset[int]:
        missing = workers - self._connections.keys()
        number = min(ATTEMPTS_PER_WORKER * len(missing), MAX_ATTEMPTS)
        attempts = [_Connection(self._socket) for _ in range(number)]
        known = {candidate.request(): pid for pid, candidate in self._connections.items()}
        new = {attempt.request(): attempt for attempt in attempts}
        if not workers:
            return frozenset()
        try:
            done, pending = await asyncio.wait({*known, *new}, timeout=seconds)
        except asyncio.CancelledError:
            for connection in attempts:
                connection.close()
            raise
        for task in done & known.keys():
            # A worker may close an idle connection. The next probe opens another one.
            if task.exception() is not None:
                self._connections.pop(known[task]).close()
        for task, connection in new.items():
            pid = task.result() if task in done and task.exception() is None else 0
            if pid in workers and pid not in self._connections:
                self._connections[pid] = connection
            else:
                connection.close()
        silent = frozenset(known[task] for task in pending & known.keys())
        unanswered = not pending.isdisjoint(new)
        return silent | (missing - self._connections.keys() if unanswered else frozenset())
