"""NGINX master process, started or adopted, and its workers."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from gatehouse.agent.nginx.binary import NginxBinary
from gatehouse.agent.nginx.paths import Paths
from gatehouse.runtime import procfs, watched_process
from gatehouse.runtime.watched_process import WatchedProcess


def command(binary: NginxBinary, paths: Paths, main_conf: Path) -> list[str]:
    """Return the command line for one main file. A test uses it too, without `daemon off`."""
    # Without -p the static build uses the working directory, without -e /dev/null or worse.
    return [str(binary.path), "-p", str(paths.root), "-c", str(main_conf), "-e", "stderr"]


def start(binary: NginxBinary, paths: Paths) -> WatchedProcess:
    """Start a master with the current revision. Raises OSError."""
    return watched_process.start(
        [*command(binary, paths, paths.main_conf), "-g", "daemon off;"],
        output=paths.error_log,
        cwd=paths.root,
    )


def read_pid_file(paths: Paths) -> int | None:
    """Return the pid in the PID file, or None if it cannot be read."""
    try:
        return int(paths.pid.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def adopt(paths: Paths) -> WatchedProcess | None:
    """Return the master that an earlier agent started, or None if none runs."""
    pid = read_pid_file(paths)
    if pid is None or not _is_master(pid, paths.main_conf):
        return None
    try:
        return WatchedProcess(pid)
    except ProcessLookupError:
        return None


def _is_master(pid: int, main_conf: Path) -> bool:
    """Return whether `pid` is the NGINX master that was started with `main_conf`."""
    title = procfs.command_line(pid)
    return (
        procfs.executable(pid).startswith("nginx")
        and title.startswith("nginx: master process")
        and str(main_conf) in title.split()
    )


def has_stopped_accepting(worker: int) -> bool:
    """Return whether a worker no longer accepts connections because it exited or drains."""
    return not procfs.is_alive(worker) or "shutting down" in procfs.command_line(worker)


def kill_orphaned_workers(leader: int) -> frozenset[int]:
    """Kill the workers of a dead master, which would keep the ports with a stale configuration.

    They are found by their session, which only that master and its children belong to. Returns the
    killed pids.
    """
    if procfs.is_alive(leader):
        return frozenset()
    orphans = procfs.pids_in_session(leader)
    for pid in orphans:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return orphans
