"""Metrics of data planes, read when a page asks for them: served versions and traffic."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Generic, Protocol, TypeVar

import msgspec

from gatehouse.compiler.evaluation.explanation import ExplainedDataPlane
from gatehouse.inspection.data_plane_metrics import MetricsPage, MetricsReader
from gatehouse.inspection.data_plane_versions import explain_data_planes
from gatehouse.inspection.kube_apiserver_traffic import ApiTraffic, ApiTrafficMeter
from gatehouse.inspection.request_rates import SOURCES
from gatehouse.inspection.traffic_report import TrafficMeter, TrafficReport
from kube_base.types.objects import Object

_MIN_PERIOD_SECONDS = 1.0
"""Minimum period of a measurement. Requests within it get the last one."""

_MAX_PERIOD_SECONDS = 15.0
"""Age of a reading after which a measurement starts again, as the traffic of now is asked for."""


class _Reading(msgspec.Struct, frozen=True):
    """Pods with their pages."""

    time: float
    pods: Sequence[Object]
    pages: Sequence[MetricsPage]


R_co = TypeVar("R_co", covariant=True)


class _Meter(Protocol[R_co]):
    """Measures between consecutive readings."""

    def report(self, pages: Iterable[MetricsPage], now: float) -> R_co | None: ...


class _Measurement(Generic[R_co]):
    """Meter with its last result."""

    def __init__(self, start: Callable[[], _Meter[R_co]]) -> None:
        self.start = start
        self.meter = start()
        self.read_at = float("-inf")
        self.report: R_co | None = None


class DataPlaneFeed:
    """Reads the metrics of Pods. Requests of several pages share one reading."""

    def __init__(self, reader: MetricsReader, pods: Callable[[], Sequence[Object]]) -> None:
        self._reader, self._pods = reader, pods
        self._lock = asyncio.Lock()
        self._reading: _Reading | None = None
        self._traffic = {by: _Measurement(partial(TrafficMeter, by)) for by in SOURCES}
        self._api_traffic = _Measurement(ApiTrafficMeter)

    async def versions(self) -> tuple[ExplainedDataPlane, ...]:
        """Return all Pods with the version that each serves."""
        async with self._lock:
            reading = await self._read()
        return explain_data_planes(reading.pods, reading.pages)

    async def traffic(self, by: str) -> TrafficReport:
        """Return the traffic since the last request, or of the next second.

        ``by``: route or backend. Raises ValueError for pages that are not metrics.
        """
        return await self._measured(self._traffic[by])

    async def api_traffic(self) -> ApiTraffic:
        """Return the requests to kube-apiservers since the last request, or of the next second.

        Raises ValueError for pages that are not metrics.
        """
        return await self._measured(self._api_traffic)

    async def _measured(self, measurement: _Measurement[R_co]) -> R_co:
        async with self._lock:
            if time.monotonic() - measurement.read_at > _MAX_PERIOD_SECONDS:
                measurement.meter, measurement.report = measurement.start(), None
                await self._measure(measurement)
                await asyncio.sleep(_MIN_PERIOD_SECONDS)
            age = time.monotonic() - measurement.read_at
            if measurement.report is None or age >= _MIN_PERIOD_SECONDS:
                await self._measure(measurement)
            assert measurement.report is not None
            return measurement.report

    async def _measure(self, measurement: _Measurement[R_co]) -> None:
        reading = await self._read()
        # Pages of large data planes take longer to parse than the event loop may stop.
        measurement.report = await asyncio.to_thread(
            measurement.meter.report, reading.pages, reading.time
        )
        measurement.read_at = reading.time

    async def _read(self) -> _Reading:
        reading = self._reading
        if reading is None or time.monotonic() - reading.time >= _MIN_PERIOD_SECONDS:
            pods = tuple(self._pods())
            pages = await self._reader.read(pods)
            reading = self._reading = _Reading(time.monotonic(), pods, pages)
        return reading
