"""Keeps one connector running while a configuration needs it: adopts, starts, tells, restarts.

The connector (:mod:`gatehouse.connector`) listens on the sockets that NGINX's upstreams name. It is
told before NGINX is, so that no worker ever meets a socket that nobody listens on.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from pathlib import Path

import structlog

from gatehouse.agent import main_conf
from gatehouse.agent.error_log import ErrorLog, message
from gatehouse.agent.places import Places
from gatehouse.agent.supervision import PAUSE_FIRST, PAUSE_MAX, STEADY_SECONDS
from gatehouse.agent.watched import Watched, gone
from gatehouse.connector import control, description

log = structlog.get_logger("gatehouse.agent")

TELL_SECONDS = 10.0
"""For a start and for reading authorities and certificates; both together take 0.2 s."""

LINGER_SECONDS = main_conf.SHUTDOWN_SECONDS + 5
"""How long sockets stay open after the last worker that uses them was told to finish."""

QUIT_SECONDS = 2.0
"""NGINX has ended by then, and with it every connection that could still be finished."""


class ConnectorError(Exception):
    """The connector does not do what a configuration needs; the message says why."""


class Connector:
    """Owns the process."""

    def __init__(self, places: Places) -> None:
        self.restarts = 0
        """How often one died and was replaced, for metrics."""
        self.log = ErrorLog(places.connector_log)
        self._places = places
        self._process: Watched | None = None
        self._answered = False
        """Whether the process ever took a request; one that did and does no more is ending."""
        self._wanted: tuple[Path, ...] = ()
        self._turn = asyncio.Lock()
        self._appeared = asyncio.Event()

    def adopt(self) -> None:
        """Take over a connector that an earlier agent started, if one runs."""
        pid = control.pid(self._places.connectors)
        if pid is not None:
            log.info("connector adopted", pid=pid)
            self._watch(Watched(pid))

    async def serve(self, *configurations: Path) -> None:
        """Have every socket of ``configurations`` listened on, and soon no others.

        Raises ConnectorError; what was listened on before still is then.
        """
        self._wanted = tuple(each for each in configurations if (each / description.FILE).exists())
        async with self._turn:
            await self._tell()

    async def run(self) -> None:
        """Replace a connector that dies while it is needed, until cancelled."""
        pause = 0.0
        while True:
            await self._appeared.wait()
            process, begun = self._process, time.monotonic()
            assert process is not None
            await process.exited.wait()
            async with self._turn:
                if self._process is process:
                    self._process = None
                    self._appeared.clear()
            steady = time.monotonic() - begun > STEADY_SECONDS
            pause = 0.0 if steady else min(max(2 * pause, PAUSE_FIRST), PAUSE_MAX)
            if self._wanted:
                log.warning("connector died", pid=process.pid)
                self.restarts += 1
                await self._replace(pause)
            else:
                log.info("connector ended", pid=process.pid)

    async def _replace(self, pause: float) -> None:
        while self._wanted and self._process is None:
            await asyncio.sleep(pause)
            try:
                async with self._turn:
                    await self._tell()
            except ConnectorError as error:
                log.warning("connector not replaced", reason=str(error))
                pause = min(max(2 * pause, PAUSE_FIRST), PAUSE_MAX)

    async def quit(self) -> None:
        """End it. Call after NGINX ended, and after :meth:`run`."""
        self._wanted = ()
        if self._process is None:
            return
        self._process.signal(signal.SIGTERM)
        if not await gone(frozenset({self._process.pid}), QUIT_SECONDS):
            log.warning("connector cut short", pid=self._process.pid)
            self._process.signal(signal.SIGKILL)
        await self._process.exited.wait()

    async def _tell(self) -> None:
        """Tell the connector what is wanted; start one if none listens and something is."""
        started: Watched | None = None
        position = self.log.position()
        try:
            async with asyncio.timeout(TELL_SECONDS):
                while True:
                    try:
                        error = await control.ask(self._places.connectors, self._wanted)
                    except (OSError, EOFError):
                        if not self._wanted:
                            return
                    else:
                        break
                    if started is not None and started.exited.is_set():
                        raise ConnectorError(f"it ended at once: {self._last_words(position)}")
                    if self._process is None or self._process.exited.is_set() or self._answered:
                        started = self._start()
                    await asyncio.sleep(0.01)
        except TimeoutError as late:
            if self._process is not None:
                self._process.signal(signal.SIGKILL)
            raise ConnectorError(f"it did not answer within {TELL_SECONDS:g} s") from late
        self._answered = True
        if error:
            raise ConnectorError(error)

    def _last_words(self, position: int) -> str:
        lines, _ = self.log.lines(position)
        return message(lines[-1]) if lines else "it said nothing"

    def _start(self) -> Watched:
        # -P: nothing is imported from the working directory.
        program = [sys.executable, "-P", "-m", "gatehouse.connector"]
        try:
            with self._places.connector_log.open("ab") as output:
                popen = subprocess.Popen(
                    [*program, str(self._places.connectors), str(LINGER_SECONDS)],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                    cwd=self._places.run,
                )
        except OSError as error:
            raise ConnectorError(f"it cannot be started: {error}") from error
        log.info("connector started", pid=popen.pid)
        return self._watch(Watched(popen.pid, popen))

    def _watch(self, process: Watched) -> Watched:
        self._process, self._answered = process, False
        self._appeared.set()
        return process
