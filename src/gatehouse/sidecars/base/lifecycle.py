"""Start, run and shutdown of a sidecar."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from pathlib import Path

from gatehouse.sidecars.base import control
from gatehouse.sidecars.base.service import SidecarService
from kube_base.runtime import open_files


async def run_sidecar(directory: Path, service: SidecarService) -> None:
    """Run the service with sockets in ``directory`` until it is idle or SIGTERM arrives."""
    open_files.raise_limit()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    _clear(directory)
    server = await control.listen(directory, service)
    inode = (directory / control.CONTROL_SOCKET).stat().st_ino
    housekeeping = asyncio.create_task(service.housekeeping())
    ends = [asyncio.create_task(event.wait()) for event in (stop, service.idle)]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    # From here on, connections fail and the agent starts another sidecar.
    server.close()
    with contextlib.suppress(OSError):
        # The socket may belong to a successor already.
        if (directory / control.CONTROL_SOCKET).stat().st_ino == inode:
            (directory / control.CONTROL_SOCKET).unlink()
    await service.drain()
    for task in (*ends, housekeeping):
        task.cancel()
    await asyncio.gather(*ends, housekeeping, return_exceptions=True)


def _clear(directory: Path) -> None:
    """Remove the sockets of a killed sidecar."""
    for path in directory.glob("*.sock"):
        path.unlink()
