"""Supervisor of the local proxy: its configuration, and the proxies of earlier configurations."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import structlog

from gatehouse.nodeproxy.commands import run_command
from gatehouse.nodeproxy.proxies import METRICS_SOCKET, STOP_SIGNALS, LocalProxy
from gatehouse.runtime import procfs, watched_process
from gatehouse.runtime.supervised_process import SupervisedProcess
from gatehouse.runtime.watched_process import WatchedProcess
from kube_base.runtime import private_files
from kube_base.runtime.backoff import BackoffPolicy

log = structlog.get_logger("gatehouse.nodeproxy")

_RESTARTS = BackoffPolicy(first=0.2, maximum=10.0, steady=10.0)
"""Back-off between starts of a proxy that keeps dying."""

DRAIN_SECONDS = 25.0
"""Drain timeout in seconds at shutdown."""


class LocalProxySupervisor(SupervisedProcess):
    """Owner of the proxy process of one directory."""

    def __init__(self, proxy: LocalProxy, directory: Path) -> None:
        super().__init__("proxy", _RESTARTS, log.bind(kind=proxy.kind))
        self._proxy = proxy
        self._directory = directory

    async def prepare(self) -> None:
        """Write the configuration and test it with the proxy. Raises CommandError or OSError."""
        private_files.make_private_dir(self._directory)
        file = self._directory / self._proxy.file
        private_files.replace_private_file(file, self._proxy.text.encode())
        await run_command(*self._proxy.check(self._directory))

    async def adopt(self) -> None:
        """Adopt a proxy that runs with this configuration. Drain those with another one."""
        draining = []
        for pid, file in _running(self._directory):
            with contextlib.suppress(ProcessLookupError):
                if file == self._proxy.file and self.process is None:
                    self.adopt_process(WatchedProcess(pid))
                else:
                    # It keeps its connections, and its port is free at once.
                    os.kill(pid, _stop_signal(file))
                    draining.append(file)
        for stale in self._directory.glob("*-*.*"):
            if stale.name != self._proxy.file and stale.name not in draining:
                stale.unlink()

    def start(self) -> WatchedProcess:
        """Start the proxy. Raises OSError."""
        if self._proxy.kind == "haproxy":
            with contextlib.suppress(FileNotFoundError):
                (self._directory / METRICS_SOCKET).unlink()
        return watched_process.start_watched(
            self._proxy.command(self._directory), cwd=self._directory
        )

    async def quit(self) -> None:
        """Drain connections for at most `DRAIN_SECONDS`, then stop the proxy.

        Call after :meth:`run` has ended.
        """
        await self.drain(self._proxy.stop_signal, DRAIN_SECONDS)
        self.process = None


def _stop_signal(file: str) -> signal.Signals:
    """Return the signal for a graceful shutdown of the proxy with this configuration file."""
    return next(number for kind, number in STOP_SIGNALS.items() if file.startswith(kind))


def _running(directory: Path) -> list[tuple[int, str]]:
    """Return pid and configuration file name of each proxy started from this directory."""
    proxies = []
    for pid, words in procfs.running(tuple(STOP_SIGNALS)):
        if words and words[0] == "nginx:" and "master" not in words:
            continue
        for word in words:
            if word.startswith(f"{directory}/") and word.endswith((".conf", ".json")):
                proxies.append((pid, Path(word).name))
    return proxies
