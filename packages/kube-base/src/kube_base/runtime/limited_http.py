"""HTTP server of aiohttp with the limits that a server for strangers needs.

aiohttp waits indefinitely for the rest of a request head, and inflates compressed bodies, even
those that it discards. This server closes a connection whose head is late, and inflates nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

HEAD_SECONDS = 32.0
"""Timeout in seconds of a request head, as in kube-apiserver."""

# Every client can send invalid HTTP. It is answered 400 without a log entry.
_SILENT = logging.getLogger(f"{__name__}.http")
_SILENT.disabled = True


class LimitedHttpProtocol(web.RequestHandler):
    """One connection. Aborts it if a request head takes longer than `HEAD_SECONDS`."""

    __slots__ = ("_head_timer",)

    def __init__(self, manager: web.Server, **options: Any) -> None:
        super().__init__(manager, **options)
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start to wait for the first request head."""
        super().connection_made(transport)
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        """Process data, and wait for the rest of the head that it begins."""
        idle = self._waiter is not None and not self._waiter.done()
        super().data_received(data)
        if self._messages:
            self._stop_timer()
        elif idle and data and self._head_timer is None:
            self._start_timer()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop waiting."""
        self._stop_timer()
        super().connection_lost(exc)

    def _start_timer(self) -> None:
        self._head_timer = self._loop.call_later(HEAD_SECONDS, self._abort)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _abort(self) -> None:
        # Not a close, which waits for a TLS client that may never answer.
        if self.transport is not None:
            self.transport.abort()


class LimitedHttpServer(web.Server):
    """Server whose connections are of one class with limits. Close it with a `web.ServerRunner`."""

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        *,
        protocol: type[LimitedHttpProtocol] = LimitedHttpProtocol,
        request_factory: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(handler, request_factory=request_factory)
        self._protocol = protocol
        self._options = {
            "access_log": None,
            "auto_decompress": False,
            "logger": _SILENT,
            **options,
        }

    def __call__(self) -> web.RequestHandler:
        """Return the protocol of a new connection."""
        return self._protocol(self, loop=asyncio.get_running_loop(), **self._options)


class LimitedAppRunner(web.AppRunner):
    """Runner of an application on a :class:`LimitedHttpServer`."""

    async def _make_server(self) -> web.Server:
        server = await super()._make_server()
        limited = LimitedHttpServer(server.request_handler, request_factory=server.request_factory)
        limited.handler_cancellation = server.handler_cancellation
        return limited
