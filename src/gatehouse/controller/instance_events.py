"""Events for instances that leave: a container of their Pod died, or their agent stays away.

The deletion of a Pod is no problem: a Deployment was scaled down or replaces its Pods.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog

from gatehouse.apis.event_reasons import EventReason
from gatehouse.controller.load_balancers import is_machine
from gatehouse.kube.errors import ApiError, NotFound
from kube_base.types.objects import Object

log = structlog.get_logger("gatehouse.controller")

RETURN_SECONDS = 10.0
"""Time in seconds in which an instance may connect again before its Pod is read."""

_CLOCK_SKEW = timedelta(seconds=30)
"""Time by which the clock of a node may be late."""

InstanceProblem = tuple[EventReason, str]
"""Reason and message of an Event."""


class InstanceEvents:
    """Reads the Pod of each instance that disconnected, and records why it did."""

    def __init__(
        self,
        read_pod: Callable[[str, str], Awaitable[Object]],
        is_connected: Callable[[str, str], bool],
        record: Callable[[str, EventReason, str], None],
        return_seconds: float = RETURN_SECONDS,
    ) -> None:
        """``read_pod``: returns the Pod with a namespace and name, or raises ApiError.

        ``is_connected``: returns whether an instance of a Gateway is connected. ``record``: records
        a Warning on a Gateway.
        """
        self._read_pod, self._is_connected, self._record = read_pod, is_connected, record
        self._return_seconds = return_seconds
        self._left: dict[tuple[str, str], tuple[float, datetime]] = {}
        """Instances to look at, with their times in the event loop and in the world."""
        self._wake_up = asyncio.Event()

    def on_disconnected(self, gateway: str, instance: str) -> None:
        """Look at an instance soon. Machines have a condition instead."""
        if not is_machine(gateway):
            due = asyncio.get_running_loop().time() + self._return_seconds
            self._left.setdefault((gateway, instance), (due, datetime.now(UTC)))
            self._wake_up.set()

    async def run(self) -> None:
        """Record Events until cancelled."""
        while True:
            await self._wake_up.wait()
            self._wake_up.clear()
            while self._left:
                (gateway, instance), (due, left) = next(iter(self._left.items()))
                await asyncio.sleep(due - asyncio.get_running_loop().time())
                del self._left[gateway, instance]
                await self._look_at(gateway, instance, left)

    async def _look_at(self, gateway: str, instance: str, left: datetime) -> None:
        try:
            pod = await self._read_pod(gateway.partition("/")[0], instance)
        except NotFound:
            return
        except ApiError as error:
            log.warning("pod not read", gateway=gateway, instance=instance, error=str(error))
            return
        connected = self._is_connected(gateway, instance)
        for reason, message in instance_problems(pod, left, connected=connected):
            self._record(gateway, reason, f"{instance}: {message}")


def instance_problems(
    pod: Mapping[str, Any], left: datetime, *, connected: bool
) -> tuple[InstanceProblem, ...]:
    """Return why the instance in a Pod disconnected, if that is a problem.

    ``left``: the time at which it did. ``connected``: whether it is connected again.
    """
    status = pod.get("status") or {}
    if pod["metadata"].get("deletionTimestamp"):
        return ()
    if status.get("phase") == "Failed":
        cause = ": ".join(filter(None, (status.get("reason"), status.get("message"))))
        return ((EventReason.INSTANCE_CRASHED, f"the Pod failed: {cause or 'no reason given'}"),)
    crashes = tuple(_crashes(status, left))
    if crashes or connected:
        return crashes
    message = "the agent is disconnected. The proxy may still serve its last configuration"
    return ((EventReason.INSTANCE_DISCONNECTED, message),)


def _crashes(status: Mapping[str, Any], left: datetime) -> Iterator[InstanceProblem]:
    earliest = f"{left - _CLOCK_SKEW:%Y-%m-%dT%H:%M:%SZ}"
    fields = ("initContainerStatuses", "containerStatuses")
    for container in (entry for field in fields for entry in status.get(field) or ()):
        state = container.get("state") or {}
        started = (state.get("running") or {}).get("startedAt", "")
        is_restarted = container.get("restartCount") and started >= earliest
        # Init containers have ended without an error.
        is_completed = (state.get("terminated") or {}).get("reason") == "Completed"
        if is_restarted or not (started or is_completed):
            yield EventReason.INSTANCE_CRASHED, f"container {container['name']} {_end(container)}"


def _end(container: Mapping[str, Any]) -> str:
    state = container.get("state") or {}
    ended = state.get("terminated") or (container.get("lastState") or {}).get("terminated")
    if ended:
        return f"died: {ended.get('reason') or 'Error'}, exit code {ended.get('exitCode', 0)}"
    waiting = (state.get("waiting") or {}).get("reason")
    return f"died: {waiting}" if waiting else "died and was restarted"
