"""One NGINX master: started or adopted, watched by a pidfd, signalled."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from pathlib import Path

from gatehouse.agent import processes
from gatehouse.agent.nginx_binary import NginxBinary
from gatehouse.agent.places import Places


class Master:
    """A live master. It is in a session of its own and outlives the agent."""

    def __init__(self, pid: int, popen: subprocess.Popen[bytes] | None = None) -> None:
        """Watch ``pid``; raises ProcessLookupError if it is gone. Needs a running event loop."""
        self.pid = pid
        self.exited = asyncio.Event()
        self._popen = popen
        # Works for processes that are nobody's child of ours, and is ready as soon as they end.
        self._pidfd = os.pidfd_open(pid)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._pidfd, self._on_exit)

    def _on_exit(self) -> None:
        self.release()
        if self._popen is not None:
            self._popen.wait()
        self.exited.set()

    def release(self) -> None:
        """Stop watching; the process goes on."""
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    def workers(self) -> frozenset[int]:
        """Its live workers."""
        return processes.children(self.pid)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, unless it is gone already."""
        if self._pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)


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


def recorded_pid(places: Places) -> int | None:
    """The pid in the pid file; None if there is none."""
    try:
        return int(places.pid.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def adopt(places: Places) -> Master | None:
    """Take over the master of an earlier agent, if it lives."""
    pid = recorded_pid(places)
    if pid is None or not processes.is_master(pid, places.main_conf):
        return None
    try:
        return Master(pid)
    except ProcessLookupError:
        return None


def kill_orphans(leader: int) -> frozenset[int]:
    """Kill what a dead master left: its workers would keep the ports with a stale configuration.

    They are found by the session, which nobody but that master and its children was in.
    """
    if processes.alive(leader):
        return frozenset()
    orphans = processes.in_session(leader)
    for pid in orphans:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return orphans


async def gone(pids: frozenset[int], seconds: float) -> bool:
    """Wait until none of ``pids`` is alive, at most ``seconds``; reaps those that became ours."""
    deadline = asyncio.get_running_loop().time() + seconds
    while any(processes.alive(pid) for pid in pids):
        if asyncio.get_running_loop().time() > deadline:
            return False
        await asyncio.sleep(0.01)
    if os.getpid() == 1:
        # Orphans become children of process 1, which in a container is the agent.
        for pid in pids:
            _reap(pid)
    return True


def _reap(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
