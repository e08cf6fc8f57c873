"""Keeps the local proxy running: adopts, starts, restarts with growing pauses, ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import structlog

from gatehouse.nodeproxy.commands import run
from gatehouse.nodeproxy.proxies import FIGURES, Proxy
from gatehouse.runtime import procfs
from gatehouse.runtime.watched_process import WatchedProcess, wait_until_gone

log = structlog.get_logger("gatehouse.nodeproxy")

PAUSE_FIRST, PAUSE_MAX = 0.2, 10.0
"""Seconds between starts of a proxy that keeps dying: doubled from first to maximum."""

RESTART_BACKOFF_RESET_SECONDS = 10.0
"""A proxy that lived this long died of something new: the pauses begin anew."""

FAREWELL_SECONDS = 25.0
"""How long connections may take to finish when the end is asked for."""


class Supervisor:
    """Owns the proxy of one directory."""

    def __init__(self, proxy: Proxy, directory: Path) -> None:
        self.restarts = 0
        """How often a proxy died and was replaced."""
        self._proxy = proxy
        self._directory = directory
        self._process: WatchedProcess | None = None

    @property
    def alive(self) -> bool:
        """Whether the proxy runs."""
        return self._process is not None

    async def prepare(self) -> None:
        """Write the configuration and have the proxy test it. Raises CommandError, OSError."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = self._directory / self._proxy.file
        staged = file.with_suffix(".new")
        staged.write_text(self._proxy.text)
        staged.replace(file)
        await run(*self._proxy.check(self._directory))

    async def adopt(self) -> None:
        """Take over a proxy that runs with this configuration; end those with another."""
        others = []
        for pid, file in _running(self._directory):
            with contextlib.suppress(ProcessLookupError):
                if file == self._proxy.file and self._process is None:
                    self._process = WatchedProcess(pid)
                    log.info("proxy adopted", pid=pid)
                else:
                    # It goes on with its connections, and its port is free at once.
                    signaled = signal.SIGUSR1 if file.startswith("haproxy") else signal.SIGQUIT
                    os.kill(pid, signaled)
                    others.append(file)
        for stale in self._directory.glob("*.conf"):
            if stale.name != self._proxy.file and stale.name not in others:
                stale.unlink()

    async def run(self) -> None:
        """Keep the proxy alive until cancelled, which does not end it."""
        pause = 0.0
        while True:
            started = time.monotonic()
            if self._process is None:
                await asyncio.sleep(pause)
                started = time.monotonic()
                self._start()
            if self._process is not None:
                await self._process.exited.wait()
                log.warning("proxy died", pid=self._process.pid)
                self._process = None
                self.restarts += 1
            steady = time.monotonic() - started > RESTART_BACKOFF_RESET_SECONDS
            pause = PAUSE_FIRST if steady else min(max(2 * pause, PAUSE_FIRST), PAUSE_MAX)

    def _start(self) -> None:
        if self._proxy.kind == "haproxy":
            with contextlib.suppress(FileNotFoundError):
                (self._directory / FIGURES).unlink()
        try:
            popen = subprocess.Popen(
                self._proxy.command(self._directory),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                cwd=self._directory,
            )
        except OSError as error:
            log.warning("proxy not started", reason=str(error))
            return
        self._process = WatchedProcess(popen.pid, popen)
        log.info("proxy started", pid=popen.pid, kind=self._proxy.kind)

    async def quit(self) -> None:
        """Let the proxy finish its connections, at most 25 s; then end it. After :meth:`run`."""
        process = self._process
        if process is None:
            return
        process.signal(self._proxy.stop_signal)
        pids = frozenset({process.pid}) | procfs.children(process.pid)
        if not await wait_until_gone(pids, FAREWELL_SECONDS):
            log.warning("connections cut", pid=process.pid)
            process.signal(signal.SIGTERM)
            if not await wait_until_gone(pids, 2.0):
                process.signal(signal.SIGKILL)
        await process.exited.wait()
        self._process = None


def _running(directory: Path) -> list[tuple[int, str]]:
    """Give proxies started with a configuration of this directory: pid, and the file's name."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        pid = int(entry.name)
        if not procfs.executable(pid).startswith(("haproxy", "nginx")):
            continue
        words = procfs.command_line(pid).split()
        if words and words[0] == "nginx:" and "master" not in words:
            continue
        for word in words:
            if word.startswith(f"{directory}/") and word.endswith(".conf"):
                found.append((pid, Path(word).name))
    return found
