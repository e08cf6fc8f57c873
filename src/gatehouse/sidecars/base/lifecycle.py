"""Start, run and shutdown of a sidecar."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
from pathlib import Path

from gatehouse.sidecars.base import control
from gatehouse.sidecars.base.service import Service


async def run(directory: Path, service: Service) -> None:
    """Run the service with sockets in ``directory`` until it is idle or SIGTERM arrives."""
    _raise_limit()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    _clear(directory)
    server = await control.listen(directory, service)
    inode = (directory / control.SOCKET).stat().st_ino
    housekeeping = asyncio.create_task(service.housekeeping())
    ends = [asyncio.create_task(event.wait()) for event in (stop, service.idle)]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    # From here on, connections fail and the agent starts another sidecar.
    server.close()
    with contextlib.suppress(OSError):
        # The socket may belong to a successor already.
        if (directory / control.SOCKET).stat().st_ino == inode:
            (directory / control.SOCKET).unlink()
    await service.drain()
    for task in (*ends, housekeeping):
        task.cancel()
    await asyncio.gather(*ends, housekeeping, return_exceptions=True)


def _clear(directory: Path) -> None:
    """Remove the sockets of a killed sidecar."""
    for path in directory.glob("*.sock"):
        path.unlink()


def _raise_limit() -> None:
    """Raise the limit of open files to the maximum: each connection needs one or two."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
