"""Attacks by load: a user with few rights takes all capacity of the embedded API server.

The Lease of the controller and the writes of other users succeed meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fakes.contenders import MAPS, Flood, fill, metrics, others_succeed, users
from fakes.patience import until
from kube_api_server.fairness import seats
from kube_api_server.http import body_reader
from kube_api_server.http.handler import Limits
from kube_api_server.objects.verbs import Verbs

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


async def test_half_sent_bodies_of_one_user_do_not_stop_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ServiceAccount without rights announces 200 bodies and sends one byte of each."""

    monkeypatch.setattr(body_reader, "BODY_SECONDS", 3600.0)
    sent = 0

    async def half() -> AsyncIterator[bytes]:
        nonlocal sent
        yield b"{"
        sent += 1
        await asyncio.Event().wait()

    async with users(tmp_path, limits=Limits(20, 10)) as (_, sessions):
        headers = {"Content-Length": "100"}
        attacker = sessions["attacker"]
        tasks = [
            asyncio.create_task(attacker.post(REVIEWS, data=half(), headers=headers).__aenter__())
            for _ in range(200)
        ]
        await until(lambda: sent == 200)
        await others_succeed(sessions)
        # The attacker itself is not locked out either: no request holds a seat.
        async with attacker.post(REVIEWS, json={"spec": {}}) as response:
            assert response.status != 429
        # The others did not wait for the end of these requests.
        assert not any(task.done() for task in tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_flood_of_lists_of_one_user_does_not_stop_others(tmp_path: Path) -> None:
    """A ServiceAccount lists thousands of objects with an expensive selector, without a pause."""
    selector = ",".join(f"a{number}!=b" for number in range(100))

    async with users(tmp_path) as (_, sessions):
        await fill(sessions["admin"], 2000)

        async def send() -> bool:
            params = {"labelSelector": selector}
            async with sessions["attacker"].get(MAPS, params=params) as response:
                assert response.status in (200, 429)
                await response.read()
                return response.ok

        async with Flood(60, send) as flood:
            await others_succeed(sessions, flood=flood)
            text = await metrics(sessions["admin"])
        level = 'flow_schema="service-accounts",priority_level="workload-low"'
        assert text.count(level) > 3
        dispatched = "apiserver_flowcontrol_dispatched_requests_total"
        assert f'{dispatched}{{flow_schema="system-leader-election",priority_level="leader' in text


async def test_large_bodies_of_one_user_do_not_stop_large_bodies_of_others(tmp_path: Path) -> None:
    """A ServiceAccount keeps the thread for large objects busy."""
    data = ",".join(f'"k{number}":"v"' for number in range(20_000))
    body = f'{{"metadata":{{"generateName":"a-"}},"data":{{{data}}}}}'.encode()
    headers = {"Content-Type": "application/json"}

    async with users(tmp_path) as (_, sessions):

        async def send() -> bool:
            async with sessions["attacker"].post(
                MAPS, data=io.BytesIO(body), headers=headers, params={"dryRun": "All"}
            ) as response:
                await response.read()
                return response.ok

        async with Flood(20, send) as flood:
            with flood.overtaken():
                async with sessions["tenant"].post(
                    MAPS, data=io.BytesIO(body), headers=headers
                ) as created:
                    assert created.status == 201
            await others_succeed(sessions, 2, flood)


async def test_watches_hold_no_seats(tmp_path: Path) -> None:
    """A ServiceAccount opens more watches than its level has seats."""
    async with (
        users(tmp_path, limits=Limits(2, 2)) as (_, sessions),
        contextlib.AsyncExitStack() as stack,
    ):
        for _number in range(10):
            watch = sessions["attacker"].get(MAPS, params={"watch": "1"})
            response = await stack.enter_async_context(watch)
            assert response.status == 200
        async with sessions["attacker"].get(MAPS) as response:
            assert response.status == 200
        await others_succeed(sessions, 1)


async def test_full_queue_and_long_wait_are_rejected_with_retry_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ServiceAccount sends more requests than it may have in its queue."""
    monkeypatch.setattr(seats, "QUEUE_LENGTH", 3)
    monkeypatch.setattr(seats, "QUEUE_WAIT_SECONDS", 0.3)
    release = asyncio.Event()
    create = Verbs.create

    async def slow(self: Verbs, *arguments: Any) -> Any:
        await release.wait()
        return await create(self, *arguments)

    async with users(tmp_path, limits=Limits(1, 1)) as (_, sessions):
        monkeypatch.setattr(Verbs, "create", slow)

        async def write() -> tuple[int, str]:
            body = {"metadata": {"generateName": "a-"}}
            async with sessions["attacker"].post(MAPS, json=body) as response:
                return response.status, response.headers.get("Retry-After", "")

        tasks = [asyncio.create_task(write()) for _ in range(8)]

        async def all_rejected() -> str:
            text = await metrics(sessions["admin"])
            return text if sum(task.done() for task in tasks) == 7 else ""

        text = await until(all_rejected)
        release.set()
        results = await asyncio.gather(*tasks)
    assert sorted(results) == [(201, "")] + [(429, "1")] * 7
    rejected = "apiserver_flowcontrol_rejected_requests_total"
    labels = 'flow_schema="service-accounts",priority_level="workload-low"'
    assert f'{rejected}{{{labels},reason="time-out"}} 3.0' in text
    assert f'{rejected}{{{labels},reason="queue-full"}} 4.0' in text
