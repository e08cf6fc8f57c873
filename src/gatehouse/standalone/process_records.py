"""Records of processes that may outlive their parent, to find and signal them later."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
from pathlib import Path

import msgspec

PR_SET_PDEATHSIG = 1


class Record(msgspec.Struct, frozen=True):
    """A process, identified by PID and start time, since PIDs are reused."""

    pid: int
    started: int
    """Clock ticks after boot, field 22 of /proc/<pid>/stat."""

    def alive(self) -> bool:
        """Return whether this process still runs."""
        return start_time(self.pid) == self.started

    def signal(self, number: signal.Signals) -> None:
        """Send a signal if the process still runs."""
        if self.alive():
            os.kill(self.pid, number)


def start_time(pid: int) -> int | None:
    """Return the start time of ``pid`` in clock ticks; None if it is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def record(pid: int, path: Path) -> Record:
    """Write the record of a process that just started."""
    entry = Record(pid, start_time(pid) or 0)
    staged = path.with_name(f".{path.name}")
    staged.write_bytes(msgspec.json.encode(entry))
    staged.rename(path)
    return entry


def recorded(path: Path) -> Record | None:
    """Return the process recorded at ``path``; None if it does not run."""
    try:
        entry = msgspec.json.decode(path.read_bytes(), type=Record)
    except (OSError, msgspec.DecodeError):
        return None
    return entry if entry.alive() else None


def end_with_parent() -> None:
    """Ask the kernel to send SIGHUP to the calling process when its parent dies (Linux)."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGHUP, 0, 0, 0)
    if os.getppid() == 1:
        os.kill(os.getpid(), signal.SIGHUP)


async def ended(process: Record) -> None:
    """Wait until a process exits, whether it is a child or adopted."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    loop = asyncio.get_running_loop()
    exited = asyncio.Event()
    loop.add_reader(descriptor, exited.set)
    try:
        if process.alive():
            await exited.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
