"""Leader election on a Lease: one of several identical processes acts, the others stand by.

The decision is a pure function of the Lease, of when *we* last saw it change, and of our own clock:
the times written by others are never compared with ours, so their clocks need not agree.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import structlog

from gatehouse.apis.resources import LEASES
from gatehouse.kube.client import AlreadyExists, ApiError, Client, Conflict, NotFound, Object

log = structlog.get_logger("gatehouse.kube.leader_election")


class Timing(msgspec.Struct, frozen=True):
    """Seconds; the defaults are those of Kubernetes' own components."""

    duration: float = 15.0
    """For how long others leave an unrenewed Lease alone."""
    renew_deadline: float = 10.0
    """After how long without renewal a leader stops leading: less than ``duration``, so that it
    has stopped before another one starts."""
    retry: float = 2.0
    """Between attempts."""


class Observed(msgspec.Struct, frozen=True):
    """What was last seen of the Lease, and when on our clock it last changed."""

    holder: str = ""
    renewed: str = ""
    """``renewTime`` as written: compared for change only, never read as a time."""
    changed_at: float = float("-inf")


class Create(msgspec.Struct, frozen=True):
    """There is no Lease: make it, ours."""


class Acquire(msgspec.Struct, frozen=True):
    """The Lease is free or dead: write ourselves into it."""


class Renew(msgspec.Struct, frozen=True):
    """The Lease is ours: write a new time into it."""


class Wait(msgspec.Struct, frozen=True):
    """Somebody else holds the Lease and is alive, as far as we can tell."""


Decision = Create | Acquire | Renew | Wait


def observe(lease: Mapping[str, Any] | None, before: Observed, now: float) -> Observed:
    """Note whether the Lease changed since it was last looked at."""
    spec = (lease or {}).get("spec") or {}
    holder, renewed = spec.get("holderIdentity") or "", spec.get("renewTime") or ""
    if (holder, renewed) == (before.holder, before.renewed):
        return before
    return Observed(holder, renewed, now)


def decide(
    lease: Mapping[str, Any] | None, identity: str, observed: Observed, now: float, timing: Timing
) -> Decision:
    """Say what to do about the Lease; ``observed`` includes this very look at it."""
    if lease is None:
        return Create()
    if observed.holder == identity:
        return Renew()
    # The duration is the holder's own statement; ours only where it made none.
    stated = (lease.get("spec") or {}).get("leaseDurationSeconds")
    duration = float(stated) if isinstance(stated, int) and stated > 0 else timing.duration
    if not observed.holder or now - observed.changed_at >= duration:
        return Acquire()
    return Wait()


def lease_spec(
    spec: Mapping[str, Any],
    identity: str,
    decision: Create | Acquire | Renew,
    now: datetime,
    timing: Timing,
) -> Object:
    """Give the ``spec`` to write; times are MicroTime, which always has six digits."""
    stamp = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    result = {
        **spec,
        "holderIdentity": identity,
        "leaseDurationSeconds": int(timing.duration),
        "renewTime": stamp,
    }
    if not isinstance(decision, Renew):
        result["acquireTime"] = stamp
        earlier = spec.get("leaseTransitions")
        taken = isinstance(decision, Acquire)
        result["leaseTransitions"] = (earlier if isinstance(earlier, int) else 0) + int(taken)
    return result


class Elector:
    """Takes part in the election until cancelled.

    ``on_change`` is called with True when we begin to lead and with False when we stop, also on the
    way out. Between the two nobody else leads, as long as what was begun ends with it.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        identity: str,
        on_change: Callable[[bool], None],
        *,
        timing: Timing | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._on_change = on_change
        self._timing = timing or Timing()
        self._clock = clock
        self._wall = wall
        self._observed = Observed()
        self._renewed_at = float("-inf")
        self.leading = False

    @property
    def renewed(self) -> bool:
        """Return whether nobody else can lead: the Lease was renewed within the deadline."""
        return self.leading and self._clock() - self._renewed_at < self._timing.renew_deadline

    async def run(self) -> None:
        """Try, hold, renew for ever; on the way out give the Lease back, so that no one waits."""
        try:
            while True:
                await self._step_in_time()
                await asyncio.sleep(self._timing.retry)
        finally:
            if self.leading:
                self._set(False)
                await asyncio.shield(self._release())

    async def _step_in_time(self) -> None:
        """One attempt, cut off at the deadline: a server that hangs must not keep us leading."""
        timing = self._timing
        left = timing.renew_deadline
        if self.leading:
            left = max(0.0, self._renewed_at + timing.renew_deadline - self._clock())
        try:
            async with asyncio.timeout(left):
                await self.step()
        except TimeoutError:
            log.warning("lease not renewed", lease=self._name, error="no answer in time")
        except ApiError as error:
            log.warning("lease not renewed", lease=self._name, error=str(error))
        if self.leading and self._clock() - self._renewed_at >= timing.renew_deadline:
            self._set(False)

    async def step(self) -> Decision:
        """Look at the Lease once and act on it; raises ApiError."""
        started = self._clock()
        lease = await self._read()
        self._observed = observe(lease, self._observed, self._clock())
        decision = decide(lease, self._identity, self._observed, self._clock(), self._timing)
        if isinstance(decision, Wait):
            self._set(False)
            return decision
        try:
            await self._write(lease, decision)
        except (Conflict, AlreadyExists, NotFound):
            # Somebody was faster. If we were leading the deadline decides, not this.
            return decision
        # Counted from before the write: others count from when they see it, which is later.
        self._renewed_at = started
        self._set(True)
        return decision

    async def _read(self) -> Object | None:
        try:
            return await self._client.get(LEASES, self._name, self._namespace)
        except NotFound:
            return None

    async def _write(self, lease: Object | None, decision: Create | Acquire | Renew) -> None:
        spec = (lease or {}).get("spec") or {}
        wanted = lease_spec(spec, self._identity, decision, self._wall(), self._timing)
        if lease is None:
            metadata = {"name": self._name, "namespace": self._namespace}
            kind = {"apiVersion": LEASES.api_version, "kind": LEASES.kind}
            await self._client.create(LEASES, {**kind, "metadata": metadata, "spec": wanted})
        else:
            await self._client.update(LEASES, {**lease, "spec": wanted})

    async def _release(self) -> None:
        with contextlib.suppress(ApiError, TimeoutError):
            async with asyncio.timeout(self._timing.retry):
                lease = await self._read()
                spec = (lease or {}).get("spec") or {}
                if lease is None or spec.get("holderIdentity") != self._identity:
                    return
                free = {**spec, "holderIdentity": "", "leaseDurationSeconds": 1}
                await self._client.update(LEASES, {**lease, "spec": free})
                log.info("lease released", lease=self._name)

    def _set(self, leading: bool) -> None:
        if leading != self.leading:
            self.leading = leading
            log.info("leading" if leading else "not leading", lease=self._name)
            self._on_change(leading)
