"""What asks a container whether it has started, lives, and is ready, as a kubelet does.

https://kubernetes.io/docs/concepts/configuration/liveness-readiness-startup-probes. One thing is
quicker here: a container that never was ready is asked ten times a second whether it is.
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

FIRST = 0.1
"""Seconds between questions to one that never was ready."""

MOST_REDIRECTS = 10


Ask = Callable[[], Awaitable[str]]
"""Gives why a probe failed; empty if it did not."""


class Timing(msgspec.Struct, frozen=True, rename="camel"):
    """When a probe is asked, and how often it must say the same."""

    initial_delay_seconds: float = 0
    period_seconds: float = 10
    timeout_seconds: float = 1
    success_threshold: int = 1
    failure_threshold: int = 3
    termination_grace_period_seconds: float | None = None
    """For one that is killed since this probe failed; None: as its Pod says."""


class ProbeCounter:
    """Turns answers into a verdict, which is another only after so many of the same in a row."""

    def __init__(self, timing: Timing, *, good: bool) -> None:
        self.good = good
        self._timing = timing
        self._others = 0

    def take(self, *, good: bool) -> bool:
        """Take an answer; True if it turned the verdict."""
        self._others = 0 if good == self.good else self._others + 1
        timing = self._timing
        if self._others < (timing.success_threshold if good else timing.failure_threshold):
            return False
        self.good, self._others = good, 0
        return True


class ProbeCallbacks(msgspec.Struct, frozen=True):
    """Who is told what the probes of one container found."""

    started: Callable[[], None]
    ready: Callable[[bool], None]
    failed: Callable[[str, float | None], None]
    """It must end: why, and the seconds that its probe gives it, if it says so."""


async def watch(
    pod: Mapping[str, Any],
    address: str,
    start: exec.Start,
    told: ProbeCallbacks,
    *,
    started: bool,
    ready: bool,
) -> None:
    """Ask one life of a Pod's container for ever; ``started`` and ``ready``: what is known of it.

    Returns when it must end.
    """
    container = pod["spec"]["containers"][0]

    def probe(name: str) -> tuple[Timing, Ask] | None:
        stated = container.get(name)
        if not stated:
            return None
        timing = timing_of(stated)
        return timing, _asking(container, stated, address, start, timing.timeout_seconds)

    startup = None if started else probe("startupProbe")
    if startup is not None and not await _startup(*startup, told):
        return
    told.started()
    readiness, liveness = probe("readinessProbe"), probe("livenessProbe")
    if readiness is None:
        told.ready(True)
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(_readiness(*readiness, told, ready)) if readiness else None
        if liveness is not None:
            await _liveness(*liveness, told)
            if asking is not None:
                asking.cancel()


def timing_of(stated: Mapping[str, Any]) -> Timing:
    """Read the numbers of a probe; zero means what is usual, as in the Kubernetes API."""
    zero_is_meant = ("initialDelaySeconds", "terminationGracePeriodSeconds")
    numbers = {key: value for key, value in stated.items() if value or key in zero_is_meant}
    return msgspec.convert(numbers, Timing)


async def _startup(timing: Timing, ask: Ask, told: ProbeCallbacks) -> bool:
    tally = ProbeCounter(timing, good=False)
    failures = 0
    await asyncio.sleep(timing.initial_delay_seconds)
    while True:
        reason = await ask()
        if tally.take(good=not reason):
            return True
        failures = failures + 1 if reason else 0
        if failures >= timing.failure_threshold:
            told.failed(f"startup probe: {reason}", timing.termination_grace_period_seconds)
            return False
        await asyncio.sleep(timing.period_seconds)


async def _liveness(timing: Timing, ask: Ask, told: ProbeCallbacks) -> None:
    tally = ProbeCounter(timing, good=True)
    await asyncio.sleep(timing.initial_delay_seconds)
    while True:
        reason = await ask()
        if tally.take(good=not reason):
            told.failed(f"liveness probe: {reason}", timing.termination_grace_period_seconds)
            return
        await asyncio.sleep(timing.period_seconds)


async def _readiness(timing: Timing, ask: Ask, told: ProbeCallbacks, ready: bool) -> None:
    tally = ProbeCounter(timing, good=ready)
    if not ready:
        await asyncio.sleep(timing.initial_delay_seconds)
    once = ready
    while True:
        if tally.take(good=not await ask()):
            once = True
            told.ready(tally.good)
        await asyncio.sleep(timing.period_seconds if once else min(FIRST, timing.period_seconds))


def _asking(
    container: Mapping[str, Any],
    stated: Mapping[str, Any],
    address: str,
    start: exec.Start,
    timeout: float,
) -> Ask:
    """Give the question that a probe asks."""

    async def ask() -> str:
        try:
            async with asyncio.timeout(timeout):
                return await _once(container, stated, address, start)
        except TimeoutError:
            return f"no answer within {timeout:g} s"
        except (aiohttp.ClientError, grpc.aio.AioRpcError, OSError) as error:
            return str(error) or type(error).__name__

    return ask


async def _once(
    container: Mapping[str, Any], stated: Mapping[str, Any], address: str, start: exec.Start
) -> str:
    """Ask once; gives why it failed. Raises what a failed connection raises."""
    match stated:
        case {"httpGet": asked}:
            headers = {each["name"]: each["value"] for each in asked.get("httpHeaders") or ()}
            return await _get(pods.url(container, asked, address), headers)
        case {"tcpSocket": asked}:
            port = pods.port(container, asked["port"])
            _, writer = await asyncio.open_connection(asked.get("host") or address, port)
            writer.close()
        case {"exec": {"command": command}}:
            status = await exec.run(start, command)
            return f"{command[0]} ended with {status}" if status else ""
        case {"grpc": asked}:
            return await _call(f"{address}:{asked['port']}", asked.get("service") or "")
    return ""


async def _get(url: str, headers: Mapping[str, str]) -> str:
    """Get a page. Redirects are followed on the same host alone; others are good themselves."""
    found = {"User-Agent": "kube-probe/gatehouse", **headers}
    async with aiohttp.ClientSession(headers=found) as session:
        for _ in range(MOST_REDIRECTS):
            # Whose certificate it is nobody asks.
            async with session.get(url, ssl=False, allow_redirects=False) as response:
                if not 200 <= response.status < 400:
                    return f"status {response.status}"
                place = response.headers.get("Location", "") if response.status >= 300 else ""
                further = response.url.join(URL(place))
                if not place or further.host != response.url.host:
                    return ""
                url = str(further)
    return f"more than {MOST_REDIRECTS} redirects"


async def _call(target: str, service: str) -> str:
    options = (("grpc.enable_http_proxy", 0),)
    async with grpc.aio.insecure_channel(target, options=options) as channel:
        asked = health_pb2.HealthCheckRequest(service=service)
        answer = await health_pb2_grpc.HealthStub(channel).Check(asked)
    if answer.status == health_pb2.HealthCheckResponse.SERVING:
        return ""
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))
