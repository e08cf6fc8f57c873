"""Error logs of NGINX and of the sidecars, which use NGINX's format.

The logs are files, because a pipe would break when the agent dies.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

import structlog

log = structlog.get_logger("gatehouse.agent")

TRUNCATE_BYTES = 16 << 20
"""Size limit. A larger log is truncated; NGINX appends, so it continues at the start."""

_LAST_BYTES = 1 << 20

_PREFIX = re.compile(r"^(\d{4}/\d\d/\d\d \d\d:\d\d:\d\d )?(\[\w+\] )?(\d+#\d+: )?")
_SEVERE = re.compile(r"\[(emerg|alert|crit|critical)\]|^nginx: \[emerg\]")
_MINOR = re.compile(r"^\S+ \S+ \[(notice|info|debug)\]")
"""Start of a line that reports no problem. Only the control plane can enable these levels."""


class ErrorLog:
    """The error log at `path`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.observe: Callable[[list[str]], None] = lambda _lines: None
        """Function that gets all lines that are read."""
        self._read_to: int | None = None
        """Position of the first line that was not read; None: nothing was read."""
        self._unforwarded: list[str] = []

    def position(self) -> int:
        """Return the current end of the log, for a later call of `lines`."""
        try:
            return self._path.stat().st_size
        except OSError:
            return 0

    def lines(self, position: int) -> tuple[list[str], int]:
        """Return the complete lines after `position`, and the position after them."""
        try:
            with self._path.open("rb") as file:
                size = file.seek(0, 2)
                file.seek(position if position <= size else 0)
                start = file.tell()
                data = file.read(TRUNCATE_BYTES)
        except OSError:
            return [], position
        whole = data[: data.rfind(b"\n") + 1]
        return whole.decode(errors="replace").splitlines(), start + len(whole)

    def last_lines(self) -> list[str]:
        """Return the last complete lines, of at most `_LAST_BYTES`. The first may lack its
        start."""
        return self.lines(max(self.position() - _LAST_BYTES, 0))[0]

    def truncate_if_large(self) -> bool:
        """Truncate the log if it exceeds `TRUNCATE_BYTES`. Return whether it did."""
        if self.position() <= TRUNCATE_BYTES:
            return False
        with self._path.open("r+b") as file:
            file.truncate(0)
        return True

    async def forward(self, source: str) -> None:
        """Copy new lines into the agent's log until cancelled.

        At most the last 100 lines per second are copied. `source` names the process in the events.
        """
        self.read()
        while True:
            await asyncio.sleep(1.0)
            self.read()
            lines, self._unforwarded = self._unforwarded, []
            for line in lines[-100:]:
                record = log.error if is_severe(line) else log.warning
                (log.info if _MINOR.match(line) else record)(
                    f"{source} message", text=message(line)
                )
            if len(lines) > 100:
                log.warning(f"{source} messages skipped", count=len(lines) - 100)
            if self.truncate_if_large():
                self._read_to = 0

    def read(self) -> None:
        """Read lines that are new since the last call; none at the first call."""
        if self._read_to is None:
            self._read_to = self.position()
        lines, self._read_to = self.lines(self._read_to)
        self.observe(lines)
        self._unforwarded += lines


def emergency_messages(lines: list[str]) -> list[str]:
    """Return the `[emerg]` messages, which report a failed operation of NGINX, without prefix."""
    return [message(line) for line in lines if "[emerg]" in line]


def is_severe(line: str) -> bool:
    """Return whether a line is more severe than an error."""
    return _SEVERE.search(line) is not None


def message(line: str) -> str:
    """Return a line without time, level and process."""
    return _PREFIX.sub("", line.removeprefix("nginx: ")).strip()
