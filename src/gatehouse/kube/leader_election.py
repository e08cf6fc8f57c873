"""Leader election on a Lease: one of several identical processes acts, the others stand by.

The decision is a pure function of the Lease, the local time of its last observed change and the
local clock. Times written by others are never compared with it, so clocks need not agree.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import structlog

from gatehouse.apis.resources import LEASES
from gatehouse.kube.client import AlreadyExists, ApiError, Client, Conflict, NotFound
from kube_base.runtime.time_limits import scaled
from kube_base.types.objects import Object

log = structlog.get_logger("gatehouse.kube.leader_election")


class LeaseTiming(msgspec.Struct, frozen=True):
    """Durations in seconds; defaults are those of Kubernetes components."""

    duration: float = scaled(15.0)
    """Time after which others may acquire a Lease that is not renewed."""
    renew_deadline: float = scaled(10.0)
    """Time without renewal after which a leader stops leading. Less than ``duration``, so that it
    stops before another process starts leading."""
    retry: float = 2.0
    """Interval between attempts."""


class LeaseObservation(msgspec.Struct, frozen=True):
    """The Lease as last seen, and the local time of its last change."""

    holder: str = ""
    renewed: str = ""
    """``renewTime`` as text: only compared for changes, never parsed as a time."""
    changed_at: float = float("-inf")


class Create(msgspec.Struct, frozen=True):
    """The Lease does not exist: create it as its holder."""


class Acquire(msgspec.Struct, frozen=True):
    """The Lease is free or expired: become its holder."""


class Renew(msgspec.Struct, frozen=True):
    """This process holds the Lease: update its time."""


class Wait(msgspec.Struct, frozen=True):
    """Another process holds the Lease, which has not expired."""


Decision = Create | Acquire | Renew | Wait


def observe(
    lease: Mapping[str, Any] | None, before: LeaseObservation, now: float
) -> LeaseObservation:
    """Return the observation of ``lease``; ``before`` if nothing changed since."""
    spec = (lease or {}).get("spec") or {}
    holder, renewed = spec.get("holderIdentity") or "", spec.get("renewTime") or ""
    if (holder, renewed) == (before.holder, before.renewed):
        return before
    return LeaseObservation(holder, renewed, now)


def decide_lease(
    lease: Mapping[str, Any] | None,
    identity: str,
    observed: LeaseObservation,
    now: float,
    timing: LeaseTiming,
) -> Decision:
    """Return what to do with the Lease. ``observed`` must include this state of it."""
    if lease is None:
        return Create()
    if observed.holder == identity:
        return Renew()
    # The duration is that of the holder; the local default applies if it set none.
    holder_duration = (lease.get("spec") or {}).get("leaseDurationSeconds")
    duration = (
        float(holder_duration)
        if isinstance(holder_duration, int) and holder_duration > 0
        else timing.duration
    )
    if not observed.holder or now - observed.changed_at >= duration:
        return Acquire()
    return Wait()


def lease_spec(
    spec: Mapping[str, Any],
    identity: str,
    decision: Create | Acquire | Renew,
    now: datetime,
    timing: LeaseTiming,
) -> Object:
    """Return the ``spec`` to write. Times are MicroTime, which always has six digits."""
    timestamp = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    result = {
        **spec,
        "holderIdentity": identity,
        "leaseDurationSeconds": int(timing.duration),
        "renewTime": timestamp,
    }
    if not isinstance(decision, Renew):
        result["acquireTime"] = timestamp
        transitions = spec.get("leaseTransitions")
        acquired = isinstance(decision, Acquire)
        result["leaseTransitions"] = (transitions if isinstance(transitions, int) else 0) + int(
            acquired
        )
    return result


class Elector:
    """Participates in the election until cancelled.

    ``on_change`` is called with True when this process starts leading and with False when it stops,
    also on cancellation. No other process leads between the two calls, provided that the leader's
    work stops with the second call.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        identity: str,
        on_change: Callable[[bool], None],
        *,
        timing: LeaseTiming | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._on_change = on_change
        self._timing = timing or LeaseTiming()
        self._clock = clock
        self._wall = wall
        self._observed = LeaseObservation()
        self._renewed_at = float("-inf")
        self._held: Object | None = None
        """The Lease as last written. A renewal sends it, so that it needs no read."""
        self.leading = False

    @property
    def renewed(self) -> bool:
        """Return whether the Lease was renewed within the deadline, so that no other can lead."""
        return self.leading and self._clock() - self._renewed_at < self._timing.renew_deadline

    async def run(self) -> None:
        """Acquire and renew until cancelled; then release the Lease, so others need not wait."""
        try:
            while True:
                await self._step_in_time()
                await asyncio.sleep(self._timing.retry)
        finally:
            if self.leading:
                self._set(False)
                await asyncio.shield(self._release())

    async def _step_in_time(self) -> None:
        """Make one attempt with a deadline: a server that hangs must not prolong leadership."""
        timing = self._timing
        seconds_left = timing.renew_deadline
        if self.leading:
            seconds_left = self._renewed_at + timing.renew_deadline - self._clock()
        if seconds_left <= 0:
            # The process was suspended or busy. If no other one has acquired the Lease since, it
            # renews it: two controllers that take long to start must not replace each other.
            seconds_left = timing.retry
        try:
            async with asyncio.timeout(seconds_left):
                await self.step()
        except TimeoutError:
            log.warning("lease renewal failed", lease=self._name, error="timeout")
        except ApiError as error:
            log.warning("lease renewal failed", lease=self._name, error=str(error))
        if self.leading and self._clock() - self._renewed_at >= timing.renew_deadline:
            self._set(False)

    async def step(self) -> Decision:
        """Act on the Lease once. Return the decision. Raises ApiError."""
        started = self._clock()
        lease = self._held or await self._read()
        self._observed = observe(lease, self._observed, self._clock())
        decision = decide_lease(lease, self._identity, self._observed, self._clock(), self._timing)
        if isinstance(decision, Wait):
            self._set(False)
            return decision
        try:
            self._held = await self._write(lease, decision)
        except (Conflict, AlreadyExists, NotFound):
            if self._held is not None:
                self._held = None
                return await self.step()
            # Another process was faster. Leadership ends at the deadline, not here.
            return decision
        # The time before the write: others count from when they see it, which is later.
        self._renewed_at = started
        self._set(True)
        return decision

    async def _read(self) -> Object | None:
        try:
            return await self._client.get(LEASES, self._name, self._namespace)
        except NotFound:
            return None

    async def _write(self, lease: Object | None, decision: Create | Acquire | Renew) -> Object:
        spec = (lease or {}).get("spec") or {}
        new_spec = lease_spec(spec, self._identity, decision, self._wall(), self._timing)
        if lease is None:
            metadata = {"name": self._name, "namespace": self._namespace}
            kind = {"apiVersion": LEASES.api_version, "kind": LEASES.kind}
            return await self._client.create(
                LEASES, {**kind, "metadata": metadata, "spec": new_spec}
            )
        return await self._client.update(LEASES, {**lease, "spec": new_spec})

    async def _release(self) -> None:
        try:
            async with asyncio.timeout(self._timing.retry):
                while not await self._try_release():
                    pass
        except (ApiError, TimeoutError) as error:
            problem = str(error) or "timeout"
            log.warning("lease not released", lease=self._name, error=problem)

    async def _try_release(self) -> bool:
        """Return whether the Lease is free, or held by another process.

        The renewal that was cancelled may be written between the read and the update.
        """
        lease = await self._read()
        spec = (lease or {}).get("spec") or {}
        if lease is None or spec.get("holderIdentity") != self._identity:
            return True
        free = {**spec, "holderIdentity": "", "leaseDurationSeconds": 1}
        try:
            await self._client.update(LEASES, {**lease, "spec": free})
        except Conflict:
            return False
        log.info("lease released", lease=self._name)
        return True

    def _set(self, leading: bool) -> None:
        if leading != self.leading:
            self.leading = leading
            log.info("leadership acquired" if leading else "leadership lost", lease=self._name)
            self._on_change(leading)
