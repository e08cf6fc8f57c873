"""When which part of a Pod's log was written, for ``kubectl logs --since``.

The process writes its log by itself, so that it outlives the node; the node notes how long it is.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

INDEX = "log.index"
"""Beside the log: lines of a time (seconds since 1970) and the log's length then."""

EVERY = 0.05


async def index(log: Path) -> None:
    """Note the length of a log for ever, whenever it has grown."""
    path, noted = log.with_name(INDEX), -1
    while True:
        size = _size(log)
        if size < noted:
            path.unlink(missing_ok=True)
        if size != noted:
            with path.open("a") as file:
                file.write(f"{time.time():.3f} {size}\n")
            noted = size
        await asyncio.sleep(EVERY)


def _size(log: Path) -> int:
    try:
        return log.stat().st_size
    except OSError:
        return 0
