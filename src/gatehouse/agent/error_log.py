"""NGINX's error log, and its companions', which have its form: new lines, and what matters of them.

Both are files, since a pipe would die with the agent.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import structlog

log = structlog.get_logger("gatehouse.agent")

TRUNCATE_BYTES = 16 << 20
"""Above this the log is emptied; NGINX appends, so it continues at the start."""

_PREFIX = re.compile(r"^(\d{4}/\d\d/\d\d \d\d:\d\d:\d\d )?(\[\w+\] )?(\d+#\d+: )?")
_SEVERE = re.compile(r"\[(emerg|alert|crit|critical)\]|^nginx: \[emerg\]")


class ErrorLog:
    """The file at ``path``."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def position(self) -> int:
        """The present end of the log, to read from later."""
        try:
            return self._path.stat().st_size
        except OSError:
            return 0

    def lines(self, position: int) -> tuple[list[str], int]:
        """Give the whole lines after ``position``, and the position after them."""
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

    def truncate_if_large(self) -> bool:
        """Empty the log if it is large; returns whether it was."""
        if self.position() <= TRUNCATE_BYTES:
            return False
        with self._path.open("r+b") as file:
            file.truncate(0)
        return True

    async def forward(self, speaker: str) -> None:
        """Copy what is written from now on into the agent's log, until cancelled."""
        position = self.position()
        while True:
            await asyncio.sleep(1.0)
            lines, position = self.lines(position)
            for line in lines[-100:]:
                (log.error if severe(line) else log.warning)(f"{speaker} says", text=message(line))
            if len(lines) > 100:
                log.warning(f"{speaker} lines left out", count=len(lines) - 100)
            if self.truncate_if_large():
                position = 0


def emergencies(lines: list[str]) -> list[str]:
    """The lines in which NGINX says that it cannot do what it was asked, without their prefix."""
    return [message(line) for line in lines if "[emerg]" in line]


def severe(line: str) -> bool:
    """Whether a line is worse than an error."""
    return _SEVERE.search(line) is not None


def message(line: str) -> str:
    """A line without time, level and process."""
    return _PREFIX.sub("", line.removeprefix("nginx: ")).strip()
