"""Readiness and liveness probes of a data plane, as in a kubelet.

https://kubernetes.io/docs/concepts/configuration/liveness-readiness-startup-probes. Two
differences: only ``httpGet`` is supported, with a path and the number of a port, and a container
that has never been ready is probed ten times per second for readiness.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import aiohttp
import msgspec

from kube_base.runtime.time_limits import scaled

INITIAL_PERIOD_SECONDS = 0.1
"""Period in seconds of readiness probes before the container was ready once."""

HEADERS = {"User-Agent": "kube-probe/gatehouse"}


class ProbeTiming(msgspec.Struct, frozen=True, rename="camel"):
    """Periods and thresholds of a probe."""

    initial_delay_seconds: float = 0
    period_seconds: float = 10
    timeout_seconds: float = scaled(1)
    success_threshold: int = 1
    failure_threshold: int = 3


class ProbeCounter:
    """Turns probe results into a state, which changes after a threshold of equal results."""

    def __init__(self, timing: ProbeTiming, *, good: bool) -> None:
        self.good = good
        self._timing = timing
        self._opposite_results = 0

    def count(self, *, good: bool) -> bool:
        """Count a result. Return whether it changed the state."""
        self._opposite_results = 0 if good == self.good else self._opposite_results + 1
        timing = self._timing
        if self._opposite_results < (
            timing.success_threshold if good else timing.failure_threshold
        ):
            return False
        self.good, self._opposite_results = good, 0
        return True


class Probe:
    """One probe of a container at an address."""

    def __init__(self, spec: Mapping[str, Any], address: str) -> None:
        self.timing = timing_of(spec)
        self._timeout = aiohttp.ClientTimeout(total=self.timing.timeout_seconds)
        http_get = spec["httpGet"]
        self._url = f"http://{address}:{http_get['port']}{http_get.get('path', '/')}"

    async def run(self) -> str:
        """Send one request. Return why the probe failed; empty if it succeeded."""
        try:
            async with (
                aiohttp.ClientSession(headers=HEADERS, timeout=self._timeout) as session,
                session.get(self._url, allow_redirects=False) as response,
            ):
                return "" if 200 <= response.status < 400 else f"status {response.status}"
        except TimeoutError:
            return f"timeout after {self.timing.timeout_seconds:g} s"
        except (aiohttp.ClientError, OSError) as error:
            return str(error) or type(error).__name__


async def watch(
    pod: Mapping[str, Any], address: str, on_ready: Callable[[bool], None], *, ready: bool
) -> str:
    """Probe a Pod's container until its liveness probe has failed. Return why it failed.

    ``on_ready`` is called whenever readiness changes. ``ready``: last known state.
    """
    readiness = _probe(pod, "readinessProbe", address)
    liveness = _probe(pod, "livenessProbe", address)
    if readiness is None:
        on_ready(True)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(_readiness(readiness, on_ready, ready)) if readiness else None
        # Without a liveness probe, until the caller cancels this.
        reason = await (_liveness(liveness) if liveness else asyncio.Future[str]())
        if task is not None:
            task.cancel()
    return f"liveness probe: {reason}"


def timing_of(spec: Mapping[str, Any]) -> ProbeTiming:
    """Parse the timing of a probe. Zero means the default, as in the Kubernetes API."""
    numbers = {key: value for key, value in spec.items() if value or key == "initialDelaySeconds"}
    return msgspec.convert(numbers, ProbeTiming)


def is_supported(spec: Mapping[str, Any]) -> bool:
    """Return whether a probe is plain ``httpGet`` with a path and the number of a port."""
    http_get = spec.get("httpGet") or {}
    plain = not http_get.get("host") and not http_get.get("httpHeaders")
    is_http = http_get.get("scheme", "HTTP") == "HTTP"
    return plain and is_http and isinstance(http_get.get("port"), int)


def _probe(pod: Mapping[str, Any], name: str, address: str) -> Probe | None:
    """Return a probe of the first container; None if it has none that is supported."""
    spec = pod["spec"]["containers"][0].get(name) or {}
    return Probe(spec, address) if is_supported(spec) else None


async def _liveness(probe: Probe) -> str:
    counter = ProbeCounter(probe.timing, good=True)
    await asyncio.sleep(probe.timing.initial_delay_seconds)
    while True:
        reason = await probe.run()
        if counter.count(good=not reason):
            return reason
        await asyncio.sleep(probe.timing.period_seconds)


async def _readiness(probe: Probe, on_ready: Callable[[bool], None], ready: bool) -> None:
    timing = probe.timing
    counter = ProbeCounter(timing, good=ready)
    if not ready:
        await asyncio.sleep(timing.initial_delay_seconds)
    was_ready = ready
    while True:
        if counter.count(good=not await probe.run()):
            was_ready = True
            on_ready(counter.good)
        await asyncio.sleep(
            timing.period_seconds
            if was_ready
            else min(INITIAL_PERIOD_SECONDS, timing.period_seconds)
        )
