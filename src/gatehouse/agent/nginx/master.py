"""NGINX master process, started or adopted, and its workers."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable, Sequence
from pathlib import Path

from gatehouse.agent.nginx.binary import NginxBinary
from gatehouse.agent.nginx.paths import NginxPaths
from gatehouse.runtime import procfs, watched_process
from gatehouse.runtime.socket_sender import INHERITED
from gatehouse.runtime.watched_process import WatchedProcess


def master_command(binary: NginxBinary, paths: NginxPaths, main_conf: Path) -> list[str]:
    """Return the command line for one main file. A test uses it too, without `daemon off`."""
    # Without -p the static build uses the working directory, without -e /dev/null or worse.
    return [str(binary.path), "-p", str(paths.root), "-c", str(main_conf), "-e", "stderr"]


def start_master(
    binary: NginxBinary, paths: NginxPaths, sender: Path | None, sockets: Sequence[int] = ()
) -> WatchedProcess:
    """Start a master with the current revision. Raises OSError.

    `sender`: script that it executes on SIGUSR2. `sockets`: listening sockets that it inherits. It
    opens those that are missing, and closes those that its configuration does not have.
    """
    environ = {name: value for name, value in os.environ.items() if name != INHERITED}
    if sockets:
        environ[INHERITED] = "".join(f"{descriptor};" for descriptor in sockets)
    path, *arguments = master_command(binary, paths, paths.main_conf)
    return watched_process.start_orphan(
        path,
        [str(sender or path), *arguments, "-g", "daemon off;"],
        output=paths.error_log,
        stdout=paths.access_log,
        cwd=paths.root,
        env=environ,
        pass_fds=sockets,
    )


def read_pid_file(paths: NginxPaths) -> int | None:
    """Return the pid in the PID file, or None if it cannot be read."""
    # The file has its second name for a moment.
    for path in (paths.pid, paths.old_pid, paths.pid):
        with contextlib.suppress(OSError, ValueError):
            return int(path.read_text(encoding="ascii"))
    return None


def adopt_master(paths: NginxPaths) -> WatchedProcess | None:
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
        procfs.process_executable(pid).startswith("nginx")
        and title.startswith("nginx: master process")
        and str(main_conf) in title.split()
    )


def has_stopped_accepting(worker: int) -> bool:
    """Return whether a worker no longer accepts connections because it exited or drains."""
    return not procfs.is_alive(worker) or "shutting down" in procfs.command_line(worker)


def is_worker(pid: int) -> bool:
    """Return whether a process is a worker that accepts connections."""
    title = procfs.command_line(pid)
    return title.startswith("nginx: worker process") and "shutting down" not in title


def is_nginx(pid: int) -> bool:
    """Return whether a process is one of NGINX, which sets the title of its processes."""
    return procfs.command_line(pid).startswith("nginx: ")


def orphaned_workers(leader: int) -> frozenset[int]:
    """Return the workers of a dead master.

    They are identified by their session, which only that master and its children belong to.
    """
    return frozenset() if procfs.is_alive(leader) else procfs.pids_in_session(leader)


def stray_workers(paths: NginxPaths, master: int) -> frozenset[int]:
    """Return the workers of earlier masters, which use the same directory as `master`."""
    strays = {pid for pid, _ in procfs.running(("nginx",)) if pid != master and is_worker(pid)}
    in_place = {pid for pid in strays if procfs.working_directory(pid) == paths.run}
    return frozenset(in_place - procfs.pids_in_session(master))


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to the processes that still exist."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
