"""The agent's own HTTP endpoints: /livez, /readyz, /metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aiohttp import web

Probe = Callable[[], str]
"""Gives why the answer is no; empty: it is yes."""


class HealthServer:
    """Serves the endpoints on one address."""

    def __init__(self, ready: Probe, metrics: Callable[[], Mapping[str, float]]) -> None:
        self._ready = ready
        self._metrics = metrics
        self._runner: web.AppRunner | None = None

    async def start(self, address: str) -> None:
        """Listen on ``host:port``; raises OSError, or ValueError for a malformed address."""
        host, _, port = address.rpartition(":")
        app = web.Application()
        app.router.add_get("/livez", self._livez)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._serve_metrics)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, host.strip("[]") or None, int(port)).start()

    async def stop(self) -> None:
        """Close. Idempotent."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _livez(self, _request: web.Request) -> web.Response:
        # That this is answered says that the event loop turns, which is all that is asked.
        return web.Response(text="ok\n")

    async def _readyz(self, _request: web.Request) -> web.Response:
        reason = self._ready()
        return web.Response(status=503 if reason else 200, text=f"{reason or 'ok'}\n")

    async def _serve_metrics(self, _request: web.Request) -> web.Response:
        lines = (f"{name} {value:g}\n" for name, value in self._metrics().items())
        return web.Response(text="".join(lines))
