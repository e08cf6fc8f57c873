"""At most one leads, and a leader that cannot renew stops before another starts."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
import structlog

from fakes import patience
from gatehouse.kube import leader_election
from gatehouse.kube.client import AlreadyExists, Client, Conflict, NotFound, Unavailable
from gatehouse.kube.config import Configuration
from gatehouse.kube.credentials import StaticToken
from gatehouse.kube.leader_election import (
    Acquire,
    Create,
    Elector,
    LeaseObservation,
    LeaseTiming,
    Renew,
    Wait,
)
from kube_base.types.objects import Object
from kube_base.types.resource import Resource

TIMING = LeaseTiming()


def lease(holder: str, renewed: str = "t1", **more: Any) -> dict[str, Any]:
    return {"spec": {"holderIdentity": holder, "renewTime": renewed, **more}}


def test_decide_creates_missing_lease() -> None:
    assert leader_election.decide_lease(None, "me", LeaseObservation(), 0.0, TIMING) == Create()


def test_decide_renews_own_lease() -> None:
    observation = leader_election.observe(lease("me"), LeaseObservation(), 100.0)
    assert leader_election.decide_lease(lease("me"), "me", observation, 500.0, TIMING) == Renew()


def test_decide_acquires_released_lease_immediately() -> None:
    observation = leader_election.observe(lease(""), LeaseObservation(), 100.0)
    assert leader_election.decide_lease(lease(""), "me", observation, 100.0, TIMING) == Acquire()


def test_decide_waits_from_last_observed_renewal_of_other_holder() -> None:
    observation = leader_election.observe(lease("you"), LeaseObservation(), 100.0)
    assert leader_election.decide_lease(lease("you"), "me", observation, 114.9, TIMING) == Wait()
    assert leader_election.decide_lease(lease("you"), "me", observation, 115.0, TIMING) == Acquire()
    renewed = leader_election.observe(lease("you", "t2"), observation, 110.0)
    assert leader_election.decide_lease(lease("you", "t2"), "me", renewed, 120.0, TIMING) == Wait()


def test_decide_uses_lease_duration_of_holder() -> None:
    long = lease("you", leaseDurationSeconds=60)
    observation = leader_election.observe(long, LeaseObservation(), 0.0)
    assert leader_election.decide_lease(long, "me", observation, 59.0, TIMING) == Wait()


def test_lease_spec_counts_transitions_and_keeps_other_fields() -> None:
    now = datetime(2026, 1, 2, 3, 4, 5, 60, tzinfo=UTC)
    before = {"holderIdentity": "you", "leaseTransitions": 4, "strategy": "x"}
    taken = leader_election.lease_spec(before, "me", Acquire(), now, TIMING)
    assert taken == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
        "renewTime": "2026-01-02T03:04:05.000060Z",
        "acquireTime": "2026-01-02T03:04:05.000060Z",
        "leaseTransitions": 5,
        "strategy": "x",
    }
    renewed = leader_election.lease_spec({**taken, "acquireTime": "a"}, "me", Renew(), now, TIMING)
    assert (renewed["acquireTime"], renewed["leaseTransitions"]) == ("a", 5)
    assert leader_election.lease_spec({}, "me", Create(), now, TIMING)["leaseTransitions"] == 0


class OneLease(Client):
    """An API server that has one Lease, checks versions, and can be unplugged."""

    def __init__(self) -> None:
        super().__init__(Configuration("http://nowhere", StaticToken()))
        self.lease: dict[str, Any] | None = None
        self.version = self.reads = 0
        self.down = False

    def _check(self) -> None:
        if self.down:
            raise Unavailable(0, "Unreachable", "down")

    async def get(self, resource: Resource, name: str, namespace: str = "") -> dict[str, Any]:
        self._check()
        self.reads += 1
        if self.lease is None:
            raise NotFound(404, "NotFound", name)
        return self.lease

    async def create(self, resource: Resource, obj: Any) -> dict[str, Any]:
        self._check()
        if self.lease is not None:
            raise AlreadyExists(409, "AlreadyExists", "")
        return self._store(obj)

    async def update(self, resource: Resource, obj: Any) -> dict[str, Any]:
        self._check()
        if self.lease is None:
            raise NotFound(404, "NotFound", "")
        if obj["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            raise Conflict(409, "Conflict", "")
        return self._store(obj)

    def _store(self, obj: Any) -> dict[str, Any]:
        self.version += 1
        metadata = {**obj["metadata"], "resourceVersion": str(self.version)}
        self.lease = {**obj, "metadata": metadata}
        return self.lease


class Candidate:
    def __init__(self, client: Client, identity: str, timing: LeaseTiming = TIMING) -> None:
        self.now = 0.0
        self.told: list[bool] = []
        self.changed = asyncio.Event()
        self.elector = Elector(
            client, "ns", "l", identity, self._on_change, timing=timing, clock=lambda: self.now
        )

    def _on_change(self, leading: bool) -> None:
        self.told.append(leading)
        self.changed.set()


async def test_elector_takes_over_when_leader_stops_renewing() -> None:
    client = OneLease()
    one, two = Candidate(client, "one"), Candidate(client, "two")
    assert await one.elector.step() == Create()
    assert await two.elector.step() == Wait()
    two.now = 15.0
    assert await two.elector.step() == Acquire()
    assert (one.told, two.told) == ([True], [True])
    assert await one.elector.step() == Wait()
    assert one.told == [True, False]


async def test_one_elector_wins_when_two_acquire_concurrently() -> None:
    client = OneLease()
    client._store({"metadata": {}, **lease("dead")})
    one, two = Candidate(client, "one"), Candidate(client, "two")
    for candidate in (one, two):
        await candidate.elector.step()
        candidate.now = 20.0
    stale = client.lease
    await one.elector.step()
    fresh, client.lease = client.lease, stale

    async def conflicting(resource: Resource, obj: Any) -> dict[str, Any]:
        client.lease = fresh
        raise Conflict(409, "Conflict", "")

    client.update = conflicting  # type: ignore[method-assign]
    await two.elector.step()
    assert (one.elector.leading, two.elector.leading) == (True, False)


async def test_elector_stops_leading_at_deadline_when_server_is_unreachable() -> None:
    client = OneLease()
    one = Candidate(client, "one", LeaseTiming(retry=0.001))
    task = asyncio.create_task(one.elector.run())
    async with patience.limit():
        await one.changed.wait()
        one.changed.clear()
        client.down = True
        one.now = 10.0
        await one.changed.wait()
    assert one.told == [True, False]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_busy_elector_renews_its_lease_late_unless_another_has_it() -> None:
    client = OneLease()
    one, two = Candidate(client, "one"), Candidate(client, "two")
    await one.elector._step_in_time()
    # Longer than the Lease, but no other has acquired it.
    one.now = 60.0
    await one.elector._step_in_time()
    assert (one.told, one.elector.renewed) == ([True], True)
    await two.elector.step()
    one.now, two.now = 120.0, 20.0
    await two.elector.step()
    await one.elector._step_in_time()
    assert (one.told, two.told) == ([True, False], [True])


@pytest.mark.parametrize("hours", [-24, 24])
async def test_elector_is_not_affected_by_wall_clock_jumps(hours: int) -> None:
    client = OneLease()
    wall = [datetime(2026, 11, 21, 12, tzinfo=UTC)]
    one, two = Candidate(client, "one"), Candidate(client, "two")
    for candidate in (one, two):
        candidate.elector._wall = lambda: wall[0]
    assert await one.elector.step() == Create()
    assert await two.elector.step() == Wait()
    wall[0] += timedelta(hours=hours)
    for second in range(1, 40):
        one.now = two.now = float(second)
        wall[0] += timedelta(seconds=1)
        assert await one.elector.step() == Renew()
        assert await two.elector.step() == Wait()
    assert (one.told, two.told) == ([True], [])


async def test_leader_renews_lease_without_reading_it() -> None:
    client = OneLease()
    one = Candidate(client, "one")
    for _ in range(5):
        await one.elector.step()
    assert client.version == 5
    assert client.reads == 1


async def test_leader_renews_lease_that_another_client_changed() -> None:
    client = OneLease()
    one = Candidate(client, "one")
    await one.elector.step()
    assert client.lease is not None
    client._store({**client.lease, "metadata": {"labels": {"a": "b"}}})
    assert await one.elector.step() == Renew()
    assert client.lease["metadata"]["labels"] == {"a": "b"}
    client.lease = None
    assert await one.elector.step() == Create()
    assert one.told == [True]


async def test_elector_releases_lease_when_cancelled() -> None:
    client = OneLease()
    one, two = Candidate(client, "one"), Candidate(client, "two")
    task = asyncio.create_task(one.elector.run())
    async with patience.limit():
        await one.changed.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert one.told == [True, False]
    assert await two.elector.step() == Acquire()


class LateRenewal(OneLease):
    """An API server that writes a cancelled renewal after it has answered the next read."""

    def __init__(self) -> None:
        super().__init__()
        self.renewing = asyncio.Event()
        self._late: Object | None = None

    async def update(self, resource: Resource, obj: Any) -> dict[str, Any]:
        if obj["spec"]["holderIdentity"] and not self.renewing.is_set():
            self._late = obj
            self.renewing.set()
            await asyncio.Event().wait()
        return await super().update(resource, obj)

    async def get(self, resource: Resource, name: str, namespace: str = "") -> dict[str, Any]:
        lease = await super().get(resource, name, namespace)
        if self._late is not None:
            self._store(self._late)
            self._late = None
        return lease


async def test_elector_releases_lease_that_its_cancelled_renewal_changes() -> None:
    client = LateRenewal()
    timing = msgspec.structs.replace(TIMING, retry=0.01, renew_deadline=patience.SECONDS)
    one, two = Candidate(client, "one", timing), Candidate(client, "two")
    task = asyncio.create_task(one.elector.run())
    async with patience.limit():
        await client.renewing.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await two.elector.step() == Acquire()


async def test_lease_that_cannot_be_released_is_logged() -> None:
    client = OneLease()
    one = Candidate(client, "one")
    task = asyncio.create_task(one.elector.run())
    async with patience.limit():
        await one.changed.wait()
    client.down = True
    task.cancel()
    with structlog.testing.capture_logs() as logs, pytest.raises(asyncio.CancelledError):
        await task
    (entry,) = [entry for entry in logs if entry["event"] == "lease not released"]
    assert entry["error"] == "down"
