"""An informer's objects are the server's, whatever the connection does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from fakes import patience
from fakes.kube_fake_api import FakeApi, config_map, line, serving, status, stream
from gatehouse.apis.resources import CONFIG_MAPS
from gatehouse.kube.client import Client
from gatehouse.kube.informer import INFORMER_RETRIES, Informer
from kube_base.runtime.backoff import Backoff, BackoffPolicy
from kube_base.types.objects import ObjectName
from kube_base.types.resource import Resource


class Follower:
    """An informer with its reported changes, and a way to wait for changes."""

    def __init__(
        self, client: Client, backoff: Backoff | None = None, *, optional: bool = False
    ) -> None:
        self.batches: list[dict[ObjectName, Any]] = []
        self._news = asyncio.Event()
        self.backoff = backoff or Backoff(BackoffPolicy(first=0.01, maximum=0.02))
        self.informer = Informer(
            client,
            CONFIG_MAPS,
            on_changes=self._on_changes,
            optional=optional,
            backoff=self.backoff,
        )

    def _on_changes(self, resource: Resource, changes: Mapping[ObjectName, Any]) -> None:
        assert resource is CONFIG_MAPS
        self.batches.append(dict(changes))
        self._news.set()

    async def until(self, *names: str) -> None:
        """Wait until the mirror holds exactly these."""
        async with patience.limit():
            while sorted(name for _, name in self.informer.objects) != sorted(names):
                self._news.clear()
                await self._news.wait()


@asynccontextmanager
async def following(
    api: FakeApi, client: Client, backoff: Backoff | None = None, *, optional: bool = False
) -> AsyncIterator[Follower]:
    follower = Follower(client, backoff, optional=optional)
    task = asyncio.create_task(follower.informer.run())
    try:
        yield follower
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_informer_lists_then_watches() -> None:
    async with serving() as (api, client):
        api.put("a")
        async with following(api, client) as follower:
            await follower.informer.synced.wait()
            assert list(follower.informer.objects) == [("ns", "a")]
            api.put("b")
            await follower.until("a", "b")
            api.remove("a")
            await follower.until("b")
            (change,) = follower.batches[-1].values()
            assert (change.old["metadata"]["name"], change.new) == ("a", None)
        assert api.listed() == 1
        assert api.requests[1][2]["allowWatchBookmarks"] == "true"


async def test_informer_is_synced_when_collection_is_empty() -> None:
    async with serving() as (api, client), following(api, client) as follower:
        await follower.informer.synced.wait()
        assert follower.batches == []


async def test_informer_resumes_watch_when_connection_is_lost_within_event() -> None:
    async with serving() as (api, client):
        api.put("a")
        whole = line("ADDED", config_map("b", 12))
        half = line("ADDED", config_map("c", 13))[:30]
        api.watches.append(stream(whole, half, cut=True))
        api.history += [(12, whole), (13, line("ADDED", config_map("c", 13)))]
        async with following(api, client) as follower:
            await follower.until("a", "b", "c")
        assert api.listed() == 1
        assert api.watched_from() == ["11", "12"]


async def test_informer_resumes_watch_when_server_ends_it() -> None:
    async with serving() as (api, client):
        bookmark = line("BOOKMARK", {"metadata": {"resourceVersion": "40"}})
        api.watches.append(stream(bookmark))
        async with following(api, client) as follower:
            await follower.informer.synced.wait()
            api.revision = 40
            api.put("late")
            await follower.until("late")
            assert follower.backoff.failures == 0
        assert api.watched_from() == ["10", "40"]


async def test_informer_relists_with_missed_deletions_when_history_is_compacted() -> None:
    async with serving() as (api, client):
        api.put("kept")
        api.put("lost")
        expired = line("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"})
        gate = asyncio.Event()

        async def once_removed(request: Any) -> Any:
            await gate.wait()
            return await stream(expired)(request)

        api.watches.append(once_removed)
        async with following(api, client) as follower:
            await follower.until("kept", "lost")
            api.remove_unseen("lost")
            gate.set()
            await follower.until("kept")
            change = follower.batches[-1][("ns", "lost")]
            assert (change.old["metadata"]["name"], change.new) == ("lost", None)
        assert api.listed() == 2


async def test_informer_relists_when_watch_responds_410() -> None:
    async with serving() as (api, client):
        api.watches.append(status(410, "Expired"))
        async with following(api, client) as follower:
            await follower.informer.synced.wait()
            api.put("a")
            await follower.until("a")
        assert api.listed() == 2


async def test_informer_waits_for_retry_after() -> None:
    waits: list[float | None] = []

    class Recording(Backoff):
        def failed(self, min_delay: float | None = None) -> float:
            waits.append(min_delay)
            return 0.0

    async with serving() as (api, client):
        api.lists.append(status(429, "TooManyRequests", Retry_After="7"))
        api.lists.append(status(500, "InternalError"))
        async with following(api, client, Recording(INFORMER_RETRIES)) as follower:
            await follower.informer.synced.wait()
    assert waits == [7.0, None]


async def test_informer_is_empty_while_optional_kind_is_not_served() -> None:
    async with serving() as (api, client):
        api.lists.extend([status(404, "NotFound")] * 3)
        async with following(api, client, optional=True) as follower:
            await follower.informer.synced.wait()
            assert api.listed() == 1
            api.put("a")
            await follower.until("a")
        assert api.listed() == 4


async def test_informer_is_not_synced_while_required_kind_is_not_served() -> None:
    async with serving() as (api, client):
        api.lists.extend([status(404, "NotFound")] * 3)
        async with following(api, client) as follower:
            await follower.informer.synced.wait()
            assert api.listed() == 4


async def test_informer_is_empty_while_optional_kind_is_forbidden() -> None:
    async with serving() as (api, client):
        api.lists.extend([status(403, "Forbidden", "not for you")] * 5)
        async with following(api, client, optional=True) as follower:
            await follower.informer.synced.wait()
            # Not the first time: an installer may write roles shortly after the client starts.
            assert api.listed() == 3
            assert follower.informer.unavailable_reason == "forbidden: not for you"
            api.put("a")
            await follower.until("a")
            assert follower.informer.unavailable_reason == ""
        assert api.listed() == 6


async def test_informer_keeps_objects_when_kind_becomes_forbidden() -> None:
    async with serving() as (api, client):
        api.put("a")
        gate = asyncio.Event()

        async def once_refused(request: Any) -> Any:
            await gate.wait()
            return await status(403, "Forbidden", "no more")(request)

        api.watches.extend([once_refused, status(403, "Forbidden", "no more")] * 2)
        async with following(api, client) as follower:
            await follower.until("a")
            gate.set()
            await patience.until(lambda: follower.informer.unavailable_reason)
            assert [*follower.informer.objects] == [("ns", "a")]
            api.put("b")
            await follower.until("a", "b")
            assert follower.informer.unavailable_reason == ""


async def test_informer_retries_immediately_after_retry_now() -> None:
    async with serving() as (api, client):
        api.lists.append(status(404, "NotFound"))
        slow = Backoff(BackoffPolicy(first=1000, maximum=1000))
        async with following(api, client, slow, optional=True) as follower:
            await follower.informer.synced.wait()
            assert follower.informer.unavailable_reason == "configmaps/v1 is not served"
            api.put("a")
            follower.informer.retry_now()
            await follower.until("a")


async def test_informer_rarely_lists_missing_kind_that_is_announced() -> None:
    quick = BackoffPolicy(first=0.001, maximum=0.001)
    async with serving() as (api, client), serving() as (other_api, other_client):
        api.lists.extend([status(404, "NotFound")] * 3)
        other_api.lists.extend([status(404, "NotFound")] * 50)
        announced, news = asyncio.Event(), asyncio.Event()
        informer = Informer(
            client,
            CONFIG_MAPS,
            on_changes=lambda _, __: news.set(),
            optional=True,
            announced=announced.is_set,
            backoff=Backoff(quick, fraction=lambda: 0.0),
        )
        task = asyncio.create_task(informer.run())
        await informer.synced.wait()
        announced.set()
        await patience.until(lambda: api.listed() >= 2)
        async with following(other_api, other_client, Backoff(quick), optional=True):
            # The kind of this one is not announced.
            await patience.until(lambda: other_api.listed() > 20)
        assert api.listed() == 2
        api.lists.clear()
        api.put("a")
        informer.retry_now()
        await asyncio.wait_for(news.wait(), patience.SECONDS)
        task.cancel()


async def test_informer_requests_only_metadata_when_configured() -> None:
    accepted: list[str] = []

    async def noting(request: Any) -> Any:
        accepted.append(request.headers["Accept"])
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})

    async with serving() as (api, client):
        api.lists.extend([noting, noting])
        await client.list(CONFIG_MAPS)
        await client.list(CONFIG_MAPS, metadata_only=True)
    assert accepted[0] == "application/json"
    assert accepted[1].startswith("application/json;as=PartialObjectMetadataList;g=meta.k8s.io")


async def test_informer_relists_when_watch_fails_repeatedly() -> None:
    """Simulate a store that was restored from a backup: the version is in its future."""
    async with serving() as (api, client):
        api.watches.extend([status(504, "Timeout", "Too large resource version")] * 4)
        async with following(api, client) as follower:
            await follower.informer.synced.wait()
            api.put("a")
            await follower.until("a")
        assert api.listed() == 2


async def test_informer_continues_after_malformed_event() -> None:
    async with serving() as (api, client):
        api.watches.append(stream(b"<html>proxy error</html>\n"))
        api.lists.append(stream(b"not json"))
        async with following(api, client) as follower:
            await follower.informer.synced.wait()
            api.put("a")
            await follower.until("a")


async def test_informer_receives_events_of_megabytes() -> None:
    async with serving() as (api, client), following(api, client) as follower:
        await follower.informer.synced.wait()
        api.put("big", payload="x" * 3_000_000)
        await follower.until("big")
        assert len(follower.informer.objects[("ns", "big")]["data"]["payload"]) == 3_000_000


async def test_informer_ends_when_callback_raises() -> None:
    def broken(*_: Any) -> None:
        raise LookupError("bug")

    async with serving() as (api, client):
        api.put("a")
        with pytest.raises(LookupError):
            await Informer(client, CONFIG_MAPS, on_changes=broken).run()


def test_backoff_doubles_up_to_limit_and_resets_after_success() -> None:
    backoff = Backoff(INFORMER_RETRIES, fraction=lambda: 0.0)
    assert [backoff.failed() for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    assert backoff.failed(min_delay=60) == 60
    backoff.succeeded()
    assert backoff.failed() == 1


def test_backoff_jitter_is_at_most_half() -> None:
    assert INFORMER_RETRIES.delay(3, lambda: 0.0) == 4
    assert INFORMER_RETRIES.delay(3, lambda: 1.0) == 2
    assert INFORMER_RETRIES.delay(100_000, lambda: 0.0) == 30
