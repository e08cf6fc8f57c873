"""Supervisor of the local proxy: adopts, starts, restarts with back-off, and stops it."""

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
from gatehouse.nodeproxy.proxies import METRICS_SOCKET, Proxy
from gatehouse.runtime import procfs
from gatehouse.runtime.backoff import Backoff, BackoffPolicy
from gatehouse.runtime.watched_process import WatchedProcess, wait_until_gone

log = structlog.get_logger("gatehouse.nodeproxy")

RESTARTS = BackoffPolicy(first=0.2, maximum=10.0, steady=10.0)
"""Back-off between starts of a proxy that keeps dying."""

DRAIN_SECONDS = 25.0
"""Drain timeout in seconds at shutdown."""


class Supervisor:
    """Owner of the proxy process of one directory."""

    def __init__(self, proxy: Proxy, directory: Path) -> None:
        self.restarts = 0
        """Number of times a proxy died and was replaced."""
        self._proxy = proxy
        self._directory = directory
        self._process: WatchedProcess | None = None

    @property
    def alive(self) -> bool:
        """Return whether the proxy is running."""
        return self._process is not None

    async def prepare(self) -> None:
        """Write the configuration and test it with the proxy. Raises CommandError or OSError."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = self._directory / self._proxy.file
        staged = file.with_suffix(".new")
        staged.write_text(self._proxy.text)
        staged.replace(file)
        await run(*self._proxy.check(self._directory))

    async def adopt(self) -> None:
        """Adopt a proxy that runs with this configuration. Drain those with another one."""
        draining = []
        for pid, file in _running(self._directory):
            with contextlib.suppress(ProcessLookupError):
                if file == self._proxy.file and self._process is None:
                    self._process = WatchedProcess(pid)
                    log.info("proxy adopted", pid=pid)
                else:
                    # It keeps its connections, and its port is free at once.
                    stop_signal = signal.SIGUSR1 if file.startswith("haproxy") else signal.SIGQUIT
                    os.kill(pid, stop_signal)
                    draining.append(file)
        for stale in self._directory.glob("*.conf"):
            if stale.name != self._proxy.file and stale.name not in draining:
                stale.unlink()

    async def run(self) -> None:
        """Keep the proxy running until cancelled. Cancelling does not stop it."""
        backoff, pause = Backoff(RESTARTS), 0.0
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
            pause = backoff.ended(time.monotonic() - started)

    def _start(self) -> None:
        if self._proxy.kind == "haproxy":
            with contextlib.suppress(FileNotFoundError):
                (self._directory / METRICS_SOCKET).unlink()
        try:
            popen = subprocess.Popen(
                self._proxy.command(self._directory),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                cwd=self._directory,
            )
        except OSError as error:
            log.warning("proxy not started", error=str(error))
            return
        self._process = WatchedProcess(popen.pid, popen)
        log.info("proxy started", pid=popen.pid, kind=self._proxy.kind)

    async def quit(self) -> None:
        """Drain connections for at most `DRAIN_SECONDS`, then stop the proxy.

        Call after :meth:`run` has ended.
        """
        process = self._process
        if process is None:
            return
        process.signal(self._proxy.stop_signal)
        pids = frozenset({process.pid}) | procfs.children(process.pid)
        if not await wait_until_gone(pids, DRAIN_SECONDS):
            log.warning("drain timeout exceeded", pid=process.pid)
            process.signal(signal.SIGTERM)
            if not await wait_until_gone(pids, 2.0):
                process.signal(signal.SIGKILL)
        await process.exited.wait()
        self._process = None


def _running(directory: Path) -> list[tuple[int, str]]:
    """Return pid and configuration file name of each proxy started from this directory."""
    proxies = []
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
                proxies.append((pid, Path(word).name))
    return proxies
