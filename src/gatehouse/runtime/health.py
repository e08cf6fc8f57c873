"""HTTP health and metrics endpoints of a server: /livez, /readyz, /metrics."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest


class HealthServer:
    """Serves the endpoints on one address."""

    def __init__(
        self,
        not_ready: Callable[[], str],
        registry: CollectorRegistry,
        without: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """`not_ready` returns why the server should get no traffic; empty means ready.

        `without` returns what a ready server lacks. /readyz lists it.
        """
        self._without = without
        self._not_ready = not_ready
        self._registry = registry
        self._runner: web.AppRunner | None = None

    async def start(self, address: str) -> None:
        """Listen on ``host:port``; raises OSError, or ValueError for a malformed address."""
        host, _, port = address.rpartition(":")
        app = web.Application()
        app.router.add_get("/livez", self._livez)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, host.strip("[]") or None, int(port)).start()

    async def stop(self) -> None:
        """Close. Idempotent."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _livez(self, _request: web.Request) -> web.Response:
        # An answer proves that the event loop runs, which is all that liveness means.
        return web.Response(text="ok\n")

    async def _readyz(self, _request: web.Request) -> web.Response:
        reason = self._not_ready()
        lines = [reason or "ok", *(f"without {item}" for item in self._without())]
        return web.Response(status=503 if reason else 200, text="\n".join(lines) + "\n")

    async def _metrics(self, _request: web.Request) -> web.Response:
        headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        return web.Response(body=generate_latest(self._registry), headers=headers)
