"""Reconnect loop for one control plane."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import grpc.aio
import structlog

from kube_base.runtime.backoff import BackoffPolicy

log = structlog.get_logger("gatehouse.agent")

RECONNECTS = BackoffPolicy(first=0.25, maximum=10.0, jitter=0.5)
"""Back-off between connections. An agent without a control plane may miss changes of endpoints, so
that the maximum is short."""


class ReconnectLoop:
    """The connection state and the loop that restores the connection."""

    def __init__(
        self,
        server: str,
        backoff: BackoffPolicy = RECONNECTS,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.connected = False
        self._server = server
        self._backoff = backoff
        self._sleep = sleep

    def established(self) -> None:
        """Record that the control plane accepted the current connection. Idempotent."""
        if not self.connected:
            self.connected = True
            log.info("connected", server=self._server)

    async def run(self, connect_once: Callable[[], Awaitable[None]]) -> None:
        """Call `connect_once` until cancelled. No error of the control plane ends this.

        `connect_once` returns, or raises AioRpcError or OSError, when the connection has ended. It
        calls :meth:`established` if the connection was accepted. A connection that ends without
        that call counts as a failure even if it ended without an error, so that a rejected agent
        does not reconnect at once.
        """
        failures = 0
        while True:
            try:
                await connect_once()
            except grpc.aio.AioRpcError as error:
                # Also UNAUTHENTICATED: the token or its verification key may be about to change.
                reason = f"{error.code().name}: {error.details()}"
                log.warning("connection lost", error=reason)
            except OSError as error:
                log.warning("connection failed", error=str(error))
            failures = 0 if self.connected else failures + 1
            self.connected = False
            # The end of a connection that was accepted is the first failure.
            await self._sleep(self._backoff.delay(failures + 1))
