"""Staying connected to one control plane: whatever ends a connection, another one is made."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import grpc.aio
import msgspec
import structlog

log = structlog.get_logger("gatehouse.agent")

DOUBLINGS_MAX = 8
"""Whoever is away for days must not make a number that is too large."""


class Backoff(msgspec.Struct, frozen=True):
    """Seconds between attempts, doubled with each that fails, before jitter."""

    first: float
    max_seconds: float

    def pause(self, failures: int) -> float:
        """Give the seconds to wait after so many failures in a row."""
        longest = min(self.first * 2.0 ** min(failures, DOUBLINGS_MAX), self.max_seconds)
        return longest * random.uniform(0.5, 1.0)  # noqa: S311 (spreads load)


class ReconnectLoop:
    """Whether there is a connection, and the loop that makes them."""

    def __init__(
        self,
        server: str,
        backoff: Backoff,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.connected = False
        self._server = server
        self._backoff = backoff
        self._sleep = sleep

    def established(self) -> None:
        """Take note that the control plane has taken up the present connection. Idempotent."""
        if not self.connected:
            self.connected = True
            log.info("connected", server=self._server)

    async def run(self, converse: Callable[[], Awaitable[None]]) -> None:
        """Connect and ``converse`` until cancelled. Nothing the control plane does ends this.

        ``converse`` returns, or raises AioRpcError or OSError, when the connection has ended, and
        calls :meth:`welcomed` before that if there was one. One that ended without, even well, is a
        failure: who is turned away at once is not to come back at once.
        """
        failures = 0
        while True:
            try:
                await converse()
            except grpc.aio.AioRpcError as error:
                # Also UNAUTHENTICATED: the token or what vouches for it may be on its way.
                reason = f"{error.code().name}: {error.details()}"
                log.warning("connection lost", reason=reason)
            except OSError as error:
                log.warning("connection not possible", reason=str(error))
            failures = 0 if self.connected else failures + 1
            self.connected = False
            await self._sleep(self._backoff.pause(failures))
