"""Notes cost the caller nothing, and repeating one raises a count instead of making another."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from fakes import patience
from fakes.kube_fake_api import FakeApi, Handler, serving, status
from gatehouse.kube.errors import Unavailable
from gatehouse.kube.event_budget import BURST, MAX_NAMESPACES, EventBudget
from gatehouse.kube.events import MAX_EVENT_MESSAGE_CHARACTERS, EventAggregator, EventKey, Recorder

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
GATEWAY = {
    "apiVersion": "gateway.networking.k8s.io/v1",
    "kind": "Gateway",
    "metadata": {"name": "g", "namespace": "ns", "uid": "u"},
}


def accepted(times: int) -> list[Handler]:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.json_response({"metadata": {}})

    return [answer] * times


def sent(api: FakeApi) -> list[tuple[str, Any]]:
    return [(request[0], body) for request, body in zip(api.requests, api.bodies, strict=True)]


async def test_repeated_event_is_counted() -> None:
    now = START
    async with serving() as (api, client):
        api.others.extend(accepted(2))
        recorder = Recorder(client, "gatehouse", wall=lambda: now)
        for _ in range(3):
            recorder.record(GATEWAY, "Warning", "Refused", "why")
        assert api.requests == []
        await recorder.flush()
        now += timedelta(seconds=10)
        recorder.record(GATEWAY, "Warning", "Refused", "why")
        await recorder.flush()
        await recorder.flush()
        [(first, event), (second, news)] = sent(api)
        assert (first, second) == ("POST", "PATCH")
        assert (event["count"], event["involvedObject"]["uid"]) == (3, "u")
        assert event["source"] == {"component": "gatehouse"}
        assert news == {"count": 4, "lastTimestamp": "2026-01-02T03:04:15Z"}
        assert api.requests[1][1].endswith("/ns/events/" + event["metadata"]["name"])


async def test_expired_event_is_created_again() -> None:
    async with serving() as (api, client):
        api.others.extend([*accepted(1), status(404, "NotFound"), *accepted(1)])
        recorder = Recorder(client, "gatehouse", wall=lambda: START)
        for _ in range(2):
            recorder.record(GATEWAY, "Normal", "Made", "it")
            await recorder.flush()
        assert [method for method, _ in sent(api)] == ["POST", "PATCH", "POST"]


async def test_recorder_writes_events_after_server_recovers() -> None:
    async with serving() as (api, client):
        recorder = Recorder(client, "gatehouse")
        api.others.extend([status(503, "ServiceUnavailable"), *accepted(2)])
        recorder.record(GATEWAY, "Warning", "One", "first")
        recorder.record(GATEWAY, "Warning", "Two", "second")
        with pytest.raises(Unavailable):
            await recorder.flush()
        await recorder.flush()
        assert [body["reason"] for body in api.bodies] == ["One", "One", "Two"]


async def test_recorder_drops_rejected_event_and_writes_next() -> None:
    async with serving() as (api, client):
        api.others.extend([status(403, "Forbidden"), *accepted(1)])
        recorder = Recorder(client, "gatehouse", wall=lambda: START)
        recorder.record(GATEWAY, "Normal", "One", "")
        recorder.record(GATEWAY, "Normal", "Two", "")
        await recorder.flush()
        await recorder.flush()
        assert [body["reason"] for _, body in sent(api)] == ["One", "Two"]


async def terminating(_: web.Request) -> web.StreamResponse:
    """Reject an object of a namespace that is being deleted."""
    details = {"causes": [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]}
    body = {"kind": "Status", "code": 403, "reason": "Forbidden", "details": details}
    return web.json_response(body, status=403)


async def test_event_in_a_namespace_that_is_being_deleted_is_dropped_without_a_warning() -> None:
    async with serving() as (api, client):
        api.others.append(terminating)
        recorder = Recorder(client, "gatehouse", wall=lambda: START)
        recorder.record(GATEWAY, "Normal", "One", "")
        with capture_logs() as logs:
            await recorder.flush()
        assert "warning" not in {entry["log_level"] for entry in logs}


async def test_events_are_written_in_background() -> None:
    written = asyncio.Event()

    async def answer(_: web.Request) -> web.StreamResponse:
        written.set()
        return web.json_response({"metadata": {}})

    async with serving() as (api, client):
        api.others.append(answer)
        recorder = Recorder(client, "gatehouse")
        task = asyncio.create_task(recorder.run())
        recorder.record(GATEWAY, "Normal", "Made", "x" * 5000)
        async with patience.limit():
            await written.wait()
        assert len(api.bodies[0]["message"]) == MAX_EVENT_MESSAGE_CHARACTERS
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_events_of_cluster_scoped_objects_are_in_default_namespace() -> None:
    async with serving() as (api, client):
        api.others.extend(accepted(1))
        recorder = Recorder(client, "gatehouse")
        recorder.record({"kind": "GatewayClass", "metadata": {"name": "c"}}, "Normal", "R", "")
        await recorder.flush()
        assert api.requests[0][1] == "/api/v1/namespaces/default/events"
        assert "namespace" not in api.bodies[0]["involvedObject"]


def event_key(namespace: str, name: str) -> EventKey:
    return EventKey("K", "v1", namespace, name, "", "Normal", "R", "")


def names(aggregator: EventAggregator) -> list[tuple[str, int]]:
    return [(key.name, entry.count) for key, entry in aggregator.unwritten()]


def test_event_aggregator_capacity_is_bounded() -> None:
    aggregator = EventAggregator(capacity=2)
    for name in "abac":
        assert aggregator.add(event_key("ns", name), START)
    assert names(aggregator) == [("a", 2), ("c", 1)]


def test_full_aggregator_evicts_events_of_the_namespace_with_the_most() -> None:
    aggregator = EventAggregator(capacity=3)
    aggregator.add(event_key("quiet", "q"), START)
    for number in range(10):
        aggregator.add(event_key("noisy", f"n{number}"), START)
    assert names(aggregator) == [("q", 1), ("n8", 1), ("n9", 1)]


def test_noisy_namespace_does_not_hide_events_of_another() -> None:
    now = 0.0
    aggregator = EventAggregator(clock=lambda: now)
    noisy = [aggregator.add(event_key("noisy", str(n)), START) for n in range(BURST + 50)]
    assert noisy.count(True) == BURST
    assert aggregator.add(event_key("quiet", "q"), START)
    assert aggregator.add(event_key("", "class"), START)
    # They do not wait for the writes of the noisy namespace either.
    assert [name for name, _ in names(aggregator)[:3]] == ["0", "q", "class"]
    now += 3
    more = [aggregator.add(event_key("noisy", f"later{n}"), START) for n in range(10)]
    assert more.count(True) == 3


def test_repeated_event_takes_from_the_budget_once_per_write() -> None:
    aggregator = EventAggregator(clock=lambda: 0.0)
    key = event_key("ns", "a")
    assert all(aggregator.add(key, START) for _ in range(2 * BURST))
    writes = 0
    while aggregator.unwritten():
        [(_, entry)] = aggregator.unwritten()
        entry.written = entry.count
        writes += 1
        aggregator.add(key, START)
    assert writes == BURST


def test_number_of_event_budgets_is_bounded() -> None:
    now = 0.0
    budget = EventBudget(lambda: now)
    assert [budget.take("noisy") for _ in range(BURST + 1)][-1] is False
    for number in range(3 * MAX_NAMESPACES):
        assert budget.take(f"ns-{number}")
        assert not budget.take("noisy")
    assert len(budget) == MAX_NAMESPACES
