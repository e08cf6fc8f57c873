"""A file to which a proxy appends lines, and which the agent empties.

A file never blocks the proxy, and works while no agent runs. A pipe would break when the agent
dies, and would block the proxy when its reader does not keep up.

What the proxy writes while the file is emptied is lost. So that happens only when it has written
nothing since the last look, or the file is large. Until then the position is in a file beside it,
for the next agent.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Callable
from pathlib import Path

import structlog

log = structlog.get_logger("gatehouse.agent")

MAX_WAITING_BYTES = 32 << 20
"""Size limit of lines that cannot be taken yet. Beyond it they are dropped."""

MAX_TAKEN_BYTES = 32 << 20
"""Size of a file that is emptied while the proxy writes to it, too."""

_RECORD_BYTES = 60
_RECORD = re.compile(r"(\d{1,20}) (\d{1,20}) *", re.ASCII)
"""Inode of a file and position in it."""

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
        self._last_position = 0
        """Position at the last look."""

    async def drain(self) -> None:
        """Take lines until cancelled."""
        with contextlib.ExitStack() as stack:
            opened: _OpenedFile | None = None
            while True:
                await asyncio.sleep(_POLL_SECONDS)
                try:
                    if opened is None:
                        opened = stack.enter_context(_OpenedFile(self._path))
                        self._position = opened.position()
                    await self._drain_once(opened.descriptor)
                    opened.store(self._position)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    log.warning("log not forwarded", log=self._name, error=str(error))
                    await asyncio.sleep(1.0)

    async def _drain_once(self, descriptor: int) -> None:
        """Take all complete lines. Empty the file after the last one, unless more may follow."""
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
        is_quiet = self._position == self._last_position or size >= MAX_TAKEN_BYTES
        if size and self._position >= size and is_quiet:
            os.ftruncate(descriptor, 0)
            self._position = 0
        self._last_position = self._position


class _OpenedFile(contextlib.AbstractContextManager["_OpenedFile"]):
    """A file, and one beside it with the position in it, which it names by its inode.

    On a full disk the position is not written, so that the next agent takes some lines again.
    """

    def __init__(self, path: Path) -> None:
        """Open the file. Raises OSError if that fails."""
        self.descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._record = -1
        self._stored = ""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        with contextlib.suppress(OSError):
            self._record = os.open(path.with_name(f"{path.name}.position"), flags, 0o600)

    def __exit__(self, *_: object) -> None:
        for descriptor in (self.descriptor, self._record):
            if descriptor >= 0:
                os.close(descriptor)

    def position(self) -> int:
        """Return the stored position in the file; 0 if none is known."""
        text, state = "", os.fstat(self.descriptor)
        with contextlib.suppress(OSError, UnicodeDecodeError):
            text = os.pread(self._record, _RECORD_BYTES, 0).decode()
        match = _RECORD.fullmatch(text)
        if match is None or int(match[1]) != state.st_ino or int(match[2]) > state.st_size:
            return 0
        return int(match[2])

    def store(self, position: int) -> None:
        """Store a position."""
        text = f"{os.fstat(self.descriptor).st_ino} {position}"
        if text != self._stored:
            with contextlib.suppress(OSError):
                # All records have one length, so that one call replaces the last one.
                os.pwrite(self._record, text.ljust(_RECORD_BYTES).encode(), 0)
                self._stored = text
