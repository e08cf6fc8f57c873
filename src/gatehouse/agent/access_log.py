"""Access log of a proxy: entries go from the proxy's standard output to that of the agent."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from gatehouse.agent.drained_file import DrainedFile
from gatehouse.runtime.prometheus import Sample

_ATOMIC_BYTES = select.PIPE_BUF
"""A pipe that is ready takes as many bytes without blocking."""

_READ_BYTES = 1 << 20


Pieces = Callable[[bytes], Iterable[tuple[bytes, bytes]]]
"""Function that divides entries. It returns parts, and what is written in place of each: the part
itself, or another entry in place of one entry."""


def _unchanged(data: bytes) -> Iterable[tuple[bytes, bytes]]:
    return ((data, data),)


class LogForwarder:
    """Entries in the file `path`, which are copied to the descriptor `output` by `pieces`."""

    def __init__(self, path: Path, output: int | None = None, pieces: Pieces = _unchanged) -> None:
        self._pieces = pieces
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
        """Write entries as long as the output takes them. Return the number of bytes of `data`."""
        if self._output is None:
            return len(data)
        taken = 0
        for part, entries in self._pieces(data):
            written = self._copy(self._output, entries)
            # Another entry is written as a whole.
            taken += len(part) if written == len(entries) else written
            if written < len(entries):
                break
        return taken

    def _copy(self, output: int, data: bytes) -> int:
        """Write entries as long as the output takes them. Return the number of bytes."""
        poll, written = select.poll(), 0
        poll.register(output, select.POLLOUT)
        while written < len(data):
            if not poll.poll(0):
                break
            end = data.rfind(b"\n", written, written + _ATOMIC_BYTES) + 1
            # A longer entry is written as a whole: entries of the agent itself must not divide it.
            end = end or data.find(b"\n", written) + 1 or len(data)
            os.write(output, data[written:end])
            written = end
        return written
