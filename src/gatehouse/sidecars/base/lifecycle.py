"""The order of a companion's life."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
from pathlib import Path

from gatehouse.sidecars.base import control
from gatehouse.sidecars.base.service import Service


async def run(directory: Path, service: Service) -> None:
    """Serve over ``directory`` as asked, until nothing is asked for any more, or SIGTERM."""
    _raise_limit()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    _clear(directory)
    server = await control.listen(directory, service)
    taken = (directory / control.SOCKET).stat().st_ino
    looking = asyncio.create_task(service.housekeeping())
    ends = [asyncio.create_task(event.wait()) for event in (stop, service.idle)]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    # From here on whoever asks finds nobody, and starts another.
    server.close()
    with contextlib.suppress(OSError):
        # Another one may have taken over, and then it is that one's.
        if (directory / control.SOCKET).stat().st_ino == taken:
            (directory / control.SOCKET).unlink()
    await service.drain()
    for task in (*ends, looking):
        task.cancel()
    await asyncio.gather(*ends, looking, return_exceptions=True)


def _clear(directory: Path) -> None:
    """Remove what a killed one left."""
    for left in directory.glob("*.sock"):
        left.unlink()


def _raise_limit() -> None:
    """Take all the files that may be had: each connection is one or two."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
