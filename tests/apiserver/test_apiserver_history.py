"""Model test of the history: watchers see it completely, in order, and once.

Clients write at random. Watchers are cut off at random and resume. The server is killed at random.
Then every watcher must have seen the same sequence, with every acknowledged write in it, and a
consistent sequence of events for every object.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fakes import patience
from fakes.durations import pace
from fakes.process import ApiServer, Etcd
from gatehouse.standalone import pki

pytestmark = pytest.mark.process

PATH = "/api/v1/namespaces/default/configmaps"
NAMES = [f"m{number}" for number in range(6)]
SECONDS = 12.0
WRITERS, WATCHERS, KILLS = 6, 5, 3

Seen = tuple[int, str, str, str]
"""Revision, event, name, mark."""


class World:
    def __init__(self, server: ApiServer, seed: int) -> None:
        self.server, self.random = server, random.Random(seed)
        self.acknowledged: dict[int, tuple[str, str]] = {}
        self.stop = asyncio.Event()
        context = ssl.create_default_context(cafile=str(server.state.pki.ca().cert))
        pair = server.state.pki.leaf(pki.ADMIN)
        context.load_cert_chain(pair.cert, pair.key)
        self.session = aiohttp.ClientSession(
            server.url, connector=aiohttp.TCPConnector(ssl=context, limit=0)
        )

    async def write(self, number: int) -> None:
        """Write at random, and record acknowledged writes."""
        count = 0
        while not self.stop.is_set():
            count += 1
            name, mark = self.random.choice(NAMES), f"{number}.{count}"
            try:
                await self._one(name, mark)
            except (aiohttp.ClientError, TimeoutError, OSError):
                await pace(0.05)
            await asyncio.sleep(self.random.random() * 0.01)

    async def _one(self, name: str, mark: str) -> None:
        body = {"metadata": {"name": name}, "data": {"mark": mark}}
        match self.random.choice(["create", "patch", "patch", "patch", "delete"]):
            case "create":
                request = self.session.post(PATH, json=body)
            case "patch":
                headers = {"Content-Type": "application/merge-patch+json"}
                request = self.session.patch(f"{PATH}/{name}", json=body, headers=headers)
            case _:
                request = self.session.delete(f"{PATH}/{name}")
                mark = ""
        async with request as response:
            answer = await response.json()
            assert response.status in (200, 201, 404, 409, 503), answer
            if response.status < 300 and mark:
                self.acknowledged[int(answer["metadata"]["resourceVersion"])] = (name, mark)

    async def watch(self, start: int, until: asyncio.Future[int]) -> list[Seen]:
        """Watch from a revision until another one, and resume after cuts."""
        events: list[Seen] = []
        at = start
        while not (until.done() and at >= until.result()):
            try:
                async with asyncio.timeout(self.random.random() * 2 + 0.2):
                    at = await self._stream(at, events)
            except (aiohttp.ClientError, TimeoutError, OSError):
                at = events[-1][0] if events else start
                await pace(0.05)
        return events

    async def _stream(self, at: int, events: list[Seen]) -> int:
        query = {"watch": "1", "resourceVersion": str(at)}
        async with self.session.get(PATH, params=query) as response:
            if response.status != 200:
                raise aiohttp.ClientError(response.status)
            async for line in response.content:
                event = json.loads(line)
                assert event["type"] in ("ADDED", "MODIFIED", "DELETED"), event
                metadata = event["object"]["metadata"]
                at = int(metadata["resourceVersion"])
                mark = event["object"]["data"]["mark"]
                events.append((at, event["type"], metadata["name"], mark))
        return at

    async def list(self) -> tuple[int, dict[str, str]]:
        while True:
            try:
                async with self.session.get(PATH) as response:
                    if response.status == 200:
                        document = await response.json()
                        marks = {
                            i["metadata"]["name"]: i["data"]["mark"] for i in document["items"]
                        }
                        return int(document["metadata"]["resourceVersion"]), marks
            except (aiohttp.ClientError, OSError):
                pass
            await pace(0.1)

    async def kill(self) -> None:
        """Kill the server at random moments. It restarts with the same storage."""
        for _ in range(KILLS):
            await asyncio.sleep(self.random.random() * SECONDS / KILLS)
            await asyncio.to_thread(self.server.kill)
            await asyncio.to_thread(self.server.start)


def check(history: list[Seen], start: dict[str, str]) -> dict[str, str]:
    """Replay a history. Return the objects at its end."""
    there = dict(start)
    last = 0
    for revision, kind, name, mark in history:
        assert revision > last
        last = revision
        assert (kind == "ADDED") == (name not in there), (revision, kind, name)
        if kind == "DELETED":
            assert there.pop(name) == mark
        else:
            there[name] = mark
    return there


@pytest.fixture(params=["sqlite", "etcd"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ApiServer]:
    etcd, storage = None, ""
    if request.param == "etcd":
        if Etcd.binary() is None:
            pytest.skip("no etcd on this machine")
        etcd = Etcd(tmp_path / "etcd")
        etcd.start()
        storage = f"etcd://{etcd.address}/{os.urandom(4).hex()}"
    result = ApiServer(tmp_path / "s", storage=storage)
    result.start()
    yield result
    result.stop()
    if etcd is not None:
        etcd.stop()


@pytest.mark.long
async def test_every_watcher_receives_every_event_once_in_order(server: ApiServer) -> None:
    world = World(server, seed=20261121)
    start, first = await world.list()
    until: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    watchers = [asyncio.create_task(world.watch(start, until)) for _ in range(WATCHERS)]
    writers = [asyncio.create_task(world.write(number)) for number in range(WRITERS)]
    await world.kill()
    world.stop.set()
    await asyncio.gather(*writers)
    await _last_write(world)
    _, end = await world.list()
    until.set_result(max(world.acknowledged))
    async with patience.limit():
        histories: list[list[Seen]] = await asyncio.gather(*watchers)
    await world.session.close()
    shortest = min(histories, key=len)
    for history in histories:
        assert history[: len(shortest)] == shortest
        assert check(history, first) == end
    writes = {revision: (name, mark) for revision, _, name, mark in histories[0]}
    missing = {rv: what for rv, what in world.acknowledged.items() if writes.get(rv) != what}
    assert not missing
    assert len(world.acknowledged) > 100


async def _last_write(world: World) -> None:
    """Write a final object that all watchers wait for."""
    body: dict[str, Any] = {"metadata": {"name": "end"}, "data": {"mark": "end"}}
    async with world.session.post(PATH, json=body) as response:
        answer = await response.json()
        assert response.status == 201, answer
        world.acknowledged[int(answer["metadata"]["resourceVersion"])] = ("end", "end")
