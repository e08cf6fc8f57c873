"""Keeps companions of NGINX running while a configuration needs them, and told what it needs.

A companion (:mod:`gatehouse.companion`) listens on sockets that NGINX's configuration names. It is
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
from gatehouse.authenticator import description as authenticating
from gatehouse.companion import control
from gatehouse.connector import description as connecting

log = structlog.get_logger("gatehouse.agent")

TELL_SECONDS = 10.0
"""For a start and for reading authorities and certificates; both together take 0.2 s."""

LINGER_SECONDS = main_conf.SHUTDOWN_SECONDS + 5
"""How long sockets stay open after the last worker that uses them was told to finish."""

QUIT_SECONDS = 2.0
"""NGINX has ended by then, and with it every connection that could still be finished."""


class CompanionError(Exception):
    """A companion does not do what a configuration needs; the message says which, and why."""


class Companion:
    """Owns the process that is the module ``gatehouse.<name>``.

    ``needed``: the file that configurations have which need it.
    """

    def __init__(self, name: str, needed: str, places: Places) -> None:
        self.name = name
        self.restarts = 0
        """How often one died and was replaced, for metrics."""
        self.log = ErrorLog(places.log(name))
        self._needed = needed
        self._directory = places.sockets(name)
        self._output = places.log(name)
        self._run = places.run
        self._process: Watched | None = None
        self._answered = False
        """Whether the process ever took a request; one that did and does no more is ending."""
        self._wanted: tuple[Path, ...] = ()
        self._turn = asyncio.Lock()
        self._appeared = asyncio.Event()

    @property
    def running(self) -> bool:
        """Whether there is a live process."""
        return self._process is not None and not self._process.exited.is_set()

    @property
    def wanted(self) -> bool:
        """Whether a configuration needs one."""
        return bool(self._wanted)

    def adopt(self) -> None:
        """Take over a process that an earlier agent started, if one runs."""
        pid = control.pid(self._directory)
        if pid is not None:
            log.info(f"{self.name} adopted", pid=pid)
            self._watch(Watched(pid))

    async def serve(self, *configurations: Path) -> None:
        """Have everything of ``configurations`` served, and soon nothing else.

        Raises CompanionError; what was served before still is then.
        """
        self._wanted = tuple(each for each in configurations if (each / self._needed).exists())
        async with self._turn:
            await self._tell()

    async def run(self) -> None:
        """Replace a process that dies while it is needed, until cancelled."""
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
                log.warning(f"{self.name} died", pid=process.pid)
                self.restarts += 1
                await self._replace(pause)
            else:
                log.info(f"{self.name} ended", pid=process.pid)

    async def _replace(self, pause: float) -> None:
        while self._wanted and self._process is None:
            await asyncio.sleep(pause)
            try:
                async with self._turn:
                    await self._tell()
            except CompanionError as error:
                log.warning(f"{self.name} not replaced", reason=str(error))
                pause = min(max(2 * pause, PAUSE_FIRST), PAUSE_MAX)

    async def quit(self) -> None:
        """End it. Call after NGINX ended, and after :meth:`run`."""
        self._wanted = ()
        if self._process is None:
            return
        self._process.signal(signal.SIGTERM)
        if not await gone(frozenset({self._process.pid}), QUIT_SECONDS):
            log.warning(f"{self.name} cut short", pid=self._process.pid)
            self._process.signal(signal.SIGKILL)
        await self._process.exited.wait()

    async def _tell(self) -> None:
        """Tell the process what is wanted; start one if none listens and something is."""
        started: Watched | None = None
        position = self.log.position()
        try:
            async with asyncio.timeout(TELL_SECONDS):
                while True:
                    try:
                        error = await control.ask(self._directory, self._wanted)
                    except (OSError, EOFError):
                        if not self._wanted:
                            return
                    else:
                        break
                    if started is not None and started.exited.is_set():
                        raise self._error(f"it ended at once: {self._last_words(position)}")
                    if self._process is None or self._process.exited.is_set() or self._answered:
                        started = self._start()
                    await asyncio.sleep(0.01)
        except TimeoutError as late:
            if self._process is not None:
                self._process.signal(signal.SIGKILL)
            raise self._error(f"it did not answer within {TELL_SECONDS:g} s") from late
        self._answered = True
        if error:
            raise self._error(error)

    def _error(self, why: str) -> CompanionError:
        return CompanionError(f"{self.name}: {why}")

    def _last_words(self, position: int) -> str:
        lines, _ = self.log.lines(position)
        return message(lines[-1]) if lines else "it said nothing"

    def _start(self) -> Watched:
        # -P: nothing is imported from the working directory.
        program = [sys.executable, "-P", "-m", f"gatehouse.{self.name}"]
        try:
            with self._output.open("ab") as output:
                popen = subprocess.Popen(
                    [*program, str(self._directory), str(LINGER_SECONDS)],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                    cwd=self._run,
                )
        except OSError as error:
            raise self._error(f"it cannot be started: {error}") from error
        log.info(f"{self.name} started", pid=popen.pid)
        return self._watch(Watched(popen.pid, popen))

    def _watch(self, process: Watched) -> Watched:
        self._process, self._answered = process, False
        self._appeared.set()
        return process


def companions(places: Places) -> tuple[Companion, ...]:
    """Give all there are."""
    return (
        Companion("connector", connecting.FILE, places),
        Companion("authenticator", authenticating.FILE, places),
    )
