"""Index of a Pod's log by time, for ``kubectl logs --since``.

The process writes its log itself, so that it survives the node. The node records the log's size.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

INDEX = "log.index"
"""File beside the log, with lines of a Unix time in seconds and the log's size in bytes."""

POLL_SECONDS = 0.05
"""Interval in seconds between reads of the log's size."""


async def index(log: Path) -> None:
    """Record the size of a log whenever it has changed, until cancelled."""
    path, recorded = log.with_name(INDEX), -1
    while True:
        size = _size(log)
        if size < recorded:
            path.unlink(missing_ok=True)
        if size != recorded:
            with path.open("a") as file:
                file.write(f"{time.time():.3f} {size}\n")
            recorded = size
        await asyncio.sleep(POLL_SECONDS)


def _size(log: Path) -> int:
    try:
        return log.stat().st_size
    except OSError:
        return 0
