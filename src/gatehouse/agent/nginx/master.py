"""One NGINX master, started or adopted, and its workers."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

from gatehouse.agent.nginx.binary import NginxBinary
from gatehouse.agent.nginx.paths import Places
from gatehouse.runtime import procfs
from gatehouse.runtime.watched_process import WatchedProcess


class Master(WatchedProcess):
    """A live master. It is in a session of its own and outlives the agent."""

    def workers(self) -> frozenset[int]:
        """Its live workers."""
        return procfs.children(self.pid)


def command(binary: NginxBinary, places: Places, main_conf: Path) -> list[str]:
    """The command line for one main file; also that of a test, without ``daemon off``."""
    # Without -p the static build takes the working directory, without -e /dev/null or worse.
    return [str(binary.path), "-p", str(places.root), "-c", str(main_conf), "-e", "stderr"]


def start(binary: NginxBinary, places: Places) -> Master:
    """Start a master with the current generation; raises OSError."""
    with places.error_log.open("ab") as log:
        popen = subprocess.Popen(
            [*command(binary, places, places.main_conf), "-g", "daemon off;"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=places.root,
        )
    return Master(popen.pid, popen)


def read_pid_file(places: Places) -> int | None:
    """The pid in the pid file; None if there is none."""
    try:
        return int(places.pid.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def adopt(places: Places) -> Master | None:
    """Take over the master of an earlier agent, if it lives."""
    pid = read_pid_file(places)
    if pid is None or not _is_master(pid, places.main_conf):
        return None
    try:
        return Master(pid)
    except ProcessLookupError:
        return None


def _is_master(pid: int, main_conf: Path) -> bool:
    """Whether ``pid`` is the NGINX master that was started with ``main_conf``."""
    title = procfs.command_line(pid)
    return (
        procfs.executable(pid).startswith("nginx")
        and title.startswith("nginx: master process")
        and str(main_conf) in title.split()
    )


def has_stopped_accepting(worker: int) -> bool:
    """Whether a worker accepts no more connections: gone, or draining."""
    return not procfs.is_alive(worker) or "shutting down" in procfs.command_line(worker)


def kill_orphaned_workers(leader: int) -> frozenset[int]:
    """Kill what a dead master left: its workers would keep the ports with a stale configuration.

    They are found by the session, which nobody but that master and its children was in.
    """
    if procfs.is_alive(leader):
        return frozenset()
    orphans = procfs.pids_in_session(leader)
    for pid in orphans:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return orphans
