"""Records of processes that may outlive their parent, to find and signal them later."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from gatehouse.runtime import watched_process
from gatehouse.runtime.watched_process import WatchedProcess
from kube_base.runtime import private_files

PR_SET_PDEATHSIG = 1


class ProcessRecord(msgspec.Struct, frozen=True):
    """A process, identified by PID and start time, since PIDs are reused."""

    pid: int
    started: int
    """Clock ticks after boot, field 22 of /proc/<pid>/stat."""

    def alive(self) -> bool:
        """Return whether the recorded process still runs; False if another one has its PID."""
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


def start_recorded(
    path: Path,
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    output: Path | None = None,
    pass_fds: Sequence[int] = (),
) -> WatchedProcess:
    """Start a process and write its record to ``path``. Raises OSError; then no process runs.

    ``pass_fds``: file descriptors that it inherits.
    """
    process = watched_process.start_watched(command, env=env, output=output, pass_fds=pass_fds)
    try:
        _write(ProcessRecord(process.pid, start_time(process.pid) or 0), path)
    except OSError:
        # Without a record, a later supervisor would not find it.
        process.signal(signal.SIGKILL)
        raise
    return process


def _write(entry: ProcessRecord, path: Path) -> None:
    private_files.replace_private_file(path, msgspec.json.encode(entry))


def recorded(path: Path) -> ProcessRecord | None:
    """Return the process recorded at ``path``; None if it does not run."""
    try:
        entry = msgspec.json.decode(path.read_bytes(), type=ProcessRecord)
    except (OSError, msgspec.DecodeError):
        return None
    return entry if entry.alive() else None


def end_with_parent() -> None:
    """Ask the kernel to send SIGHUP to the calling process when its parent dies (Linux)."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGHUP, 0, 0, 0)
    if os.getppid() == 1:
        os.kill(os.getpid(), signal.SIGHUP)


def adopt_process(path: Path) -> WatchedProcess | None:
    """Return the process recorded at ``path``; None if it does not run."""
    entry = recorded(path)
    if entry is None:
        return None
    try:
        process = WatchedProcess(entry.pid)
    except ProcessLookupError:
        return None
    if entry.alive():
        return process
    # Another process got the PID meanwhile.
    process.release()
    return None
