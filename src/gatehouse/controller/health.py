"""The controller's own HTTP endpoints: /livez, /readyz, /metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector


class Figure(msgspec.Struct, frozen=True):
    """A measurement, as it is when asked."""

    value: float
    help: str
    total: bool = False
    """Whether it only ever grows."""
    labels: tuple[str, ...] = ()
    """Given: there are several values, told apart by these; ``value`` means nothing."""
    values: Mapping[tuple[str, ...], float] = {}


Figures = Callable[[], Mapping[str, Figure]]


class _Collector(Collector):
    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        for name, figure in self._figures().items():
            family = CounterMetricFamily if figure.total else GaugeMetricFamily
            full = f"gatehouse_controller_{name}"
            if not figure.labels:
                yield family(full, figure.help, value=figure.value)
                continue
            several = family(full, figure.help, labels=figure.labels)
            for said, value in figure.values.items():
                several.add_metric(said, value)
            yield several


class HealthServer:
    """Serves the endpoints on one address."""

    def __init__(self, not_ready: Callable[[], str], figures: Figures) -> None:
        """``not_ready`` gives why agents should not come here; empty: they should."""
        self._not_ready = not_ready
        self._registry = CollectorRegistry()
        self._registry.register(_Collector(figures))
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
        # That this is answered says that the event loop turns, which is all that is asked.
        return web.Response(text="ok\n")

    async def _readyz(self, _request: web.Request) -> web.Response:
        reason = self._not_ready()
        return web.Response(status=503 if reason else 200, text=f"{reason or 'ok'}\n")

    async def _metrics(self, _request: web.Request) -> web.Response:
        headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        return web.Response(body=generate_latest(self._registry), headers=headers)
