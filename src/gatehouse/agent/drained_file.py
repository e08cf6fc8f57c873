"""A file to which a proxy appends lines, and which the agent empties.

A file never blocks the proxy, and works while no agent runs. A pipe would break when the agent
dies, and would block the proxy when its reader does not keep up.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import structlog

log = structlog.get_logger("gatehouse.agent")

MAX_WAITING_BYTES = 32 << 20
"""Size limit of lines that cannot be taken yet. Beyond it they are dropped."""

_POLL_SECONDS = 0.2


class DrainedFile:
    """Lines of the file `path`, which go to the function `take`.

    `take` receives complete lines and returns the number of bytes that it has taken. A line of more
    than `read_bytes` arrives in parts. `name`: name of the log in events.
    """

    def __init__(
        self, path: Path, take: Callable[[bytes], int], name: str, read_bytes: int
    ) -> None:
        self.dropped = 0
        """Number of bytes that were dropped because too many waited."""
        self._path, self._take = path, take
        self._name = name
        self._read_bytes = read_bytes
        self._position = 0

    async def drain(self) -> None:
        """Take lines until cancelled."""
        with contextlib.ExitStack() as stack:
            file = None
            while True:
                await asyncio.sleep(_POLL_SECONDS)
                try:
                    file = file or stack.enter_context(self._path.open("r+b", buffering=0))
                    await self._drain_once(file.fileno())
                except FileNotFoundError:
                    continue
                except OSError as error:
                    log.warning("log not forwarded", log=self._name, error=str(error))
                    await asyncio.sleep(1.0)

    async def _drain_once(self, descriptor: int) -> None:
        """Take all complete lines, and empty the file after the last one."""
        while data := os.pread(descriptor, self._read_bytes, self._position):
            end = data.rfind(b"\n") + 1
            whole = data[:end] or (data if len(data) == self._read_bytes else b"")
            taken = self._take(whole) if whole else 0
            self._position += taken
            if not whole or taken < len(whole):
                break
            await asyncio.sleep(0)
        size = os.fstat(descriptor).st_size
        if size - self._position > MAX_WAITING_BYTES:
            self.dropped += size - self._position
            log.warning("log entries dropped", log=self._name, bytes=size - self._position)
            self._position = size
        if size and self._position >= size:
            # Nothing runs between the two calls: what the proxy writes then is rarely lost.
            os.ftruncate(descriptor, 0)
            self._position = 0
