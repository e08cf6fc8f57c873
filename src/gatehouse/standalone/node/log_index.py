"""Size limit of a Pod's log, and its index by time for ``kubectl logs --since``.

The process writes its log itself, so that it survives the node. The node records the log's size. A
log that is too large is copied and emptied: the process appends, so that it continues at the start.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import time
from pathlib import Path

INDEX = "log.index"
"""File beside the log, with lines of a Unix time in seconds and the log's size in bytes."""

MAX_LOG_BYTES = 10_000_000
"""Size of a log from which on its content moves to another file, which it replaces."""

PREVIOUS = "log.1"
"""File beside the log with the content before."""

_POLL_SECONDS = 0.05
"""Interval in seconds between reads of the log's size."""


async def index(log: Path) -> None:
    """Record the size of a log whenever it has changed, until cancelled."""
    path, recorded = log.with_name(INDEX), -1
    while True:
        size = _size(log)
        if size < recorded:
            path.unlink(missing_ok=True)
        if size != recorded:
            with contextlib.suppress(OSError), path.open("a") as file:
                # On a full disk the next change is recorded again.
                file.write(f"{time.time():.3f} {size}\n")
            recorded = size
        if size > MAX_LOG_BYTES:
            with contextlib.suppress(OSError):
                await asyncio.to_thread(_move, log)
        await asyncio.sleep(_POLL_SECONDS)


def _move(log: Path) -> None:
    """Move the content of a log to the file beside it. Raises OSError."""
    try:
        shutil.copyfile(log, log.with_name(PREVIOUS))
    finally:
        # Also if the disk is full: the log must not fill it further.
        os.truncate(log, 0)


def _size(log: Path) -> int:
    try:
        return log.stat().st_size
    except OSError:
        return 0
