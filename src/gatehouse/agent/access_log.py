"""Access log of a proxy: entries go from the proxy's standard output to that of the agent."""

from __future__ import annotations

import os
import select
import sys
from pathlib import Path

from gatehouse.agent.drained_file import DrainedFile
from gatehouse.runtime.prometheus import Sample

_ATOMIC_BYTES = select.PIPE_BUF
"""A pipe that is ready takes as many bytes without blocking."""

_READ_BYTES = 1 << 20


class LogForwarder:
    """Entries in the file `path`, which are copied to the descriptor `output`."""

    def __init__(self, path: Path, output: int | None = None) -> None:
        self._output = sys.__stdout__.fileno() if output is None and sys.__stdout__ else output
        self._file = DrainedFile(path, self._write, "access log", _READ_BYTES)

    @property
    def dropped(self) -> int:
        """Number of bytes that were dropped because the output was blocked."""
        return self._file.dropped

    async def forward(self) -> None:
        """Copy entries until cancelled."""
        await self._file.drain()

    def samples(self) -> list[Sample]:
        """Return the metrics of the log."""
        name = "gatehouse_agent_access_log_dropped_bytes"
        help_ = "Bytes of access log entries that were dropped because the output was blocked."
        return [Sample(name, help_, self.dropped, "counter")]

    def _write(self, data: bytes) -> int:
        """Write entries as long as the output takes them. Return the number of bytes."""
        if self._output is None:
            return len(data)
        poll, written = select.poll(), 0
        poll.register(self._output, select.POLLOUT)
        while written < len(data):
            if not poll.poll(0):
                break
            end = data.rfind(b"\n", written, written + _ATOMIC_BYTES) + 1
            # A longer entry is written as a whole: entries of the agent itself must not divide it.
            end = end or data.find(b"\n", written) + 1 or len(data)
            os.write(self._output, data[written:end])
            written = end
        return written
