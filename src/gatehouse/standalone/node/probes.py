"""Startup, liveness and readiness probes of a container, as in a kubelet.

https://kubernetes.io/docs/concepts/configuration/liveness-readiness-startup-probes. One difference:
a container that has never been ready is probed ten times per second for readiness.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import aiohttp
import grpc.aio
import msgspec
from grpc_health.v1 import health_pb2, health_pb2_grpc
from yarl import URL

from gatehouse.standalone.node import exec, pods

INITIAL_PERIOD_SECONDS = 0.1
"""Period in seconds of readiness probes before the container was ready once."""

MAX_REDIRECTS = 10


Probe = Callable[[], Awaitable[str]]
"""Returns why a probe failed; empty if it succeeded."""


class Timing(msgspec.Struct, frozen=True, rename="camel"):
    """Periods and thresholds of a probe."""

    initial_delay_seconds: float = 0
    period_seconds: float = 10
    timeout_seconds: float = 1
    success_threshold: int = 1
    failure_threshold: int = 3
    termination_grace_period_seconds: float | None = None
    """Grace period after a failure of this probe in seconds; None for that of the Pod."""


class ProbeCounter:
    """Turns probe results into a state, which changes after a threshold of equal results."""

    def __init__(self, timing: Timing, *, good: bool) -> None:
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


class ProbeCallbacks(msgspec.Struct, frozen=True):
    """Callbacks for the probe results of one container."""

    started: Callable[[], None]
    ready: Callable[[bool], None]
    failed: Callable[[str, float | None], None]
    """Called if the container must be killed, with the reason and the probe's grace period."""


async def watch(
    pod: Mapping[str, Any],
    address: str,
    start: exec.Start,
    callbacks: ProbeCallbacks,
    *,
    started: bool,
    ready: bool,
) -> None:
    """Probe a Pod's container until it must be killed; then return.

    ``started`` and ``ready``: last known state of the container.
    """
    container = pod["spec"]["containers"][0]

    def probe(name: str) -> tuple[Timing, Probe] | None:
        spec = container.get(name)
        if not spec:
            return None
        timing = timing_of(spec)
        return timing, _probe_function(container, spec, address, start, timing.timeout_seconds)

    startup = None if started else probe("startupProbe")
    if startup is not None and not await _startup(*startup, callbacks):
        return
    callbacks.started()
    readiness, liveness = probe("readinessProbe"), probe("livenessProbe")
    if readiness is None:
        callbacks.ready(True)
    async with asyncio.TaskGroup() as group:
        readiness_task = (
            group.create_task(_readiness(*readiness, callbacks, ready)) if readiness else None
        )
        if liveness is not None:
            await _liveness(*liveness, callbacks)
            if readiness_task is not None:
                readiness_task.cancel()


def timing_of(spec: Mapping[str, Any]) -> Timing:
    """Parse the timing of a probe. Zero means the default, as in the Kubernetes API."""
    zero_allowed = ("initialDelaySeconds", "terminationGracePeriodSeconds")
    numbers = {key: value for key, value in spec.items() if value or key in zero_allowed}
    return msgspec.convert(numbers, Timing)


async def _startup(timing: Timing, probe: Probe, callbacks: ProbeCallbacks) -> bool:
    counter = ProbeCounter(timing, good=False)
    failures = 0
    await asyncio.sleep(timing.initial_delay_seconds)
    while True:
        reason = await probe()
        if counter.count(good=not reason):
            return True
        failures = failures + 1 if reason else 0
        if failures >= timing.failure_threshold:
            callbacks.failed(f"startup probe: {reason}", timing.termination_grace_period_seconds)
            return False
        await asyncio.sleep(timing.period_seconds)


async def _liveness(timing: Timing, probe: Probe, callbacks: ProbeCallbacks) -> None:
    counter = ProbeCounter(timing, good=True)
    await asyncio.sleep(timing.initial_delay_seconds)
    while True:
        reason = await probe()
        if counter.count(good=not reason):
            callbacks.failed(f"liveness probe: {reason}", timing.termination_grace_period_seconds)
            return
        await asyncio.sleep(timing.period_seconds)


async def _readiness(timing: Timing, probe: Probe, callbacks: ProbeCallbacks, ready: bool) -> None:
    counter = ProbeCounter(timing, good=ready)
    if not ready:
        await asyncio.sleep(timing.initial_delay_seconds)
    was_ready = ready
    while True:
        if counter.count(good=not await probe()):
            was_ready = True
            callbacks.ready(counter.good)
        await asyncio.sleep(
            timing.period_seconds
            if was_ready
            else min(INITIAL_PERIOD_SECONDS, timing.period_seconds)
        )


def _probe_function(
    container: Mapping[str, Any],
    spec: Mapping[str, Any],
    address: str,
    start: exec.Start,
    timeout: float,
) -> Probe:
    """Return the function that runs a probe once, with a timeout."""

    async def probe() -> str:
        try:
            async with asyncio.timeout(timeout):
                return await _run_probe(container, spec, address, start)
        except TimeoutError:
            return f"timeout after {timeout:g} s"
        except (aiohttp.ClientError, grpc.aio.AioRpcError, OSError) as error:
            return str(error) or type(error).__name__

    return probe


async def _run_probe(
    container: Mapping[str, Any], spec: Mapping[str, Any], address: str, start: exec.Start
) -> str:
    """Run a probe once. Return why it failed. Raises the exceptions of connections."""
    match spec:
        case {"httpGet": action}:
            headers = {
                header["name"]: header["value"] for header in action.get("httpHeaders") or ()
            }
            return await _get(pods.url(container, action, address), headers)
        case {"tcpSocket": action}:
            port = pods.port(container, action["port"])
            _, writer = await asyncio.open_connection(action.get("host") or address, port)
            writer.close()
        case {"exec": {"command": command}}:
            status = await exec.run(start, command)
            return f"{command[0]} exited with status {status}" if status else ""
        case {"grpc": action}:
            return await _call(f"{address}:{action['port']}", action.get("service") or "")
    return ""


async def _get(url: str, headers: Mapping[str, str]) -> str:
    """Send GET. Redirects are followed on the same host; a redirect elsewhere is a success."""
    request_headers = {"User-Agent": "kube-probe/gatehouse", **headers}
    async with aiohttp.ClientSession(headers=request_headers) as session:
        for _ in range(MAX_REDIRECTS):
            # Certificates are not verified, as in a kubelet.
            async with session.get(url, ssl=False, allow_redirects=False) as response:
                if not 200 <= response.status < 400:
                    return f"status {response.status}"
                location = response.headers.get("Location", "") if response.status >= 300 else ""
                target = response.url.join(URL(location))
                if not location or target.host != response.url.host:
                    return ""
                url = str(target)
    return f"more than {MAX_REDIRECTS} redirects"


async def _call(target: str, service: str) -> str:
    options = (("grpc.enable_http_proxy", 0),)
    async with grpc.aio.insecure_channel(target, options=options) as channel:
        request = health_pb2.HealthCheckRequest(service=service)
        response = await health_pb2_grpc.HealthStub(channel).Check(request)
    if response.status == health_pb2.HealthCheckResponse.SERVING:
        return ""
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(response.status))
