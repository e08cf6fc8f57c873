"""Attacks by watches on the embedded API server.

Who: an ordinary ServiceAccount that may read and write ConfigMaps. Through what: as many watches as
it may open, lists without a pause, watches that are never read, and large objects that change
often. What must hold: requests and watches of others stay prompt, a watcher that does not read is
cut off, and the memory of history, queues and encoded events has a limit in bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fakes.contenders import GROUP, MAPS, Flood, fill, others_succeed, users
from fakes.inprocess import Server
from fakes.patience import limit, until
from fakes.process import ApiServer
from kube_api_server.http import representations, watches
from kube_api_server.http.connections import ConnectionLimits
from kube_api_server.storage import entries, store
from kube_api_server.storage.entries import StoredEntry, StoreEvent
from kube_api_server.storage.history import History

MERGE = {"Content-Type": "application/merge-patch+json"}
LARGE = 200_000
"""Size in bytes of a large object."""
MAX_WATCH_BYTES = 150 << 10
"""Limit in bytes of the memory of an idle watch with its connection."""


async def change(http: aiohttp.ClientSession, name: str, number: int) -> None:
    """Change a large object; create it first if necessary."""
    data = {"data": {"k": f"{number:08}" * (LARGE // 8)}}
    body = {"metadata": {"name": name}, **data}
    if number == 0:
        async with http.post(MAPS, json=body) as response:
            assert response.status == 201, await response.text()
        return
    async with http.patch(f"{MAPS}/{name}", data=json.dumps(data), headers=MERGE) as response:
        assert response.status == 200, await response.text()


async def unread_watch(server: Server, token: str) -> asyncio.StreamWriter:
    """Open a watch that is never read."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1",
        server.port,
        ssl=ssl.create_default_context(cafile=str(server.state.pki.ca().cert)),
        limit=1024,
    )
    writer.write(
        f"GET {MAPS}?watch=1&resourceVersion=1 HTTP/1.1\r\nHost: a\r\n"
        f"Authorization: Bearer {token}\r\n\r\n".encode()
    )
    await reader.readuntil(b"\r\n\r\n")
    return writer


def event(revision: int, size: int) -> StoreEvent:
    return StoreEvent(
        revision, "/core/configmaps/a/b", None, StoredEntry(revision, {}, b"x" * size)
    )


def test_history_is_limited_by_number_and_size() -> None:
    history = History(3, 100)
    for revision in range(1, 6):
        history.append(event(revision, 10))
    assert ([e.revision for e in history], history.evicted) == ([3, 4, 5], 2)
    history.append(event(6, 85))
    assert ([e.revision for e in history], history.evicted) == ([5, 6], 4)
    history.append(event(7, 1000))
    assert ([e.revision for e in reversed(history)], history.evicted) == ([7], 6)
    history.clear()
    history.append(event(8, 90))
    assert [e.revision for e in history] == [8]


async def test_large_changes_leave_the_history_and_old_watches_list_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "HISTORY_BYTES", 10 * LARGE)
    async with users(tmp_path) as (_, sessions):
        async with sessions["tenant"].get(MAPS) as response:
            version = int((await response.json())["metadata"]["resourceVersion"])
        for number in range(15):
            await change(sessions["attacker"], "large", number)

        async def first_line(since: int) -> Any:
            params = {"watch": "1", "resourceVersion": str(since)}
            async with sessions["tenant"].get(MAPS, params=params) as response:
                buffer = b""
                while b"\n" not in buffer:
                    buffer += await response.content.readany()
                return json.loads(buffer.partition(b"\n")[0])

        old = await first_line(version)
        assert (old["type"], old["object"]["code"]) == ("ERROR", 410)
        # Newer revisions are still there, without a gap.
        assert (await first_line(version + 10))["type"] == "MODIFIED"


async def test_watchers_that_do_not_read_are_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[RecordedWatch] = []
    unread_bytes: list[int] = []

    class RecordedWatch(entries.Watch):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.is_open = True
            opened.append(self)

        def close(self) -> None:
            super().close()
            self.is_open = False

    class RecordedBudget(watches.WriteBudget):
        @contextlib.contextmanager
        def hold(self, owner: str, size: int) -> Iterator[None]:
            with super().hold(owner, size):
                unread_bytes.append(self._bytes[owner])
                yield

    monkeypatch.setattr(store, "Watch", RecordedWatch)
    monkeypatch.setattr(watches, "WriteBudget", RecordedBudget)
    monkeypatch.setattr(entries, "QUEUE_BYTES", 10 * LARGE)
    monkeypatch.setattr(watches, "MAX_UNREAD_BYTES", 10 * LARGE)
    async with users(tmp_path) as (server, sessions), contextlib.AsyncExitStack() as stack:
        tenant = await stack.enter_async_context(
            sessions["tenant"].get(MAPS, params={"watch": "1", "resourceVersion": "1"})
        )
        for _number in range(30):
            writer = await unread_watch(server, "attacker")
            stack.callback(writer.transport.abort)
            stack.callback(writer.close)
        assert len(opened) == 31

        async def read() -> int:
            size = 0
            while size < 60 * LARGE:
                size += len(await tenant.content.readany())
            return size

        reading = asyncio.create_task(read())
        for number in range(60):
            await change(sessions["attacker"], "large", number)
            assert max(watch._bytes for watch in opened) <= 12 * LARGE
        async with limit():
            assert await reading >= 60 * LARGE
        await until(lambda: not any(watch.is_open and not watch.cut for watch in opened[1:]))
        assert opened[0].is_open
        assert max(unread_bytes) <= 10 * LARGE + watches.WATCH_CHUNK_BYTES + LARGE


async def test_events_are_encoded_once_for_many_watchers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Selectors and Tables of the attacker's choice cause no encoding for each watcher."""
    encoded: list[str] = []
    removals: list[int] = []
    encode, removed = representations.Representation.encode, entries.removed

    def counted_encode(form: Any, entry: StoredEntry, **options: Any) -> bytes:
        if entry.value["metadata"]["name"] == "large":
            encoded.append(form.kind)
        return encode(form, entry, **options)

    def counted_removed(before: StoredEntry, revision: int) -> StoredEntry:
        removals.append(revision)
        return removed(before, revision)

    async with users(tmp_path) as (_, sessions), contextlib.AsyncExitStack() as stack:
        attacker = sessions["attacker"]
        monkeypatch.setattr(representations.Representation, "encode", counted_encode)
        monkeypatch.setattr(watches, "removed", counted_removed)
        streams = []
        for number in range(24):
            params = {"watch": "1", "resourceVersion": "1", "labelSelector": f"!a{number}"}
            params["includeObject"] = ("Object", "None", "Metadata")[number % 3]
            form = ("Table", "PartialObjectMetadata")[number % 2]
            accept = f"application/json;as={form};g=meta.k8s.io;v=v1"
            request = attacker.get(MAPS, params=params, headers={"Accept": accept})
            streams.append(await stack.enter_async_context(request))
        assert {stream.status for stream in streams} == {200}
        await change(attacker, "large", 0)
        async with attacker.delete(f"{MAPS}/large") as response:
            assert response.status == 200

        async def until_deleted(stream: aiohttp.ClientResponse) -> None:
            buffer = b""
            while b'"DELETED"' not in buffer:
                buffer += await stream.content.readany()

        async with limit():
            await asyncio.gather(*map(until_deleted, streams))
        # Both events in three kinds of Tables, and as metadata.
        assert (encoded.count("Table"), encoded.count("PartialObjectMetadata")) == (6, 2)
        assert len(removals) <= 4
        params = {"watch": "1", "includeObject": "x1"}
        headers = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
        async with attacker.get(MAPS, params=params, headers=headers) as response:
            assert response.status == 400
            assert "includeObject" in await response.text()


@pytest.mark.long
@pytest.mark.process
async def test_thousands_of_watches_cost_bounded_memory(tmp_path: Path) -> None:
    """Users of three namespaces open all watches that they may, and others are served."""
    tokens = tmp_path / "tokens.csv"
    names = [f"team-{number}" for number in range(3)]
    accounts = [f'{name},system:serviceaccount:{name}:a,{name},""' for name in names]
    tokens.write_text("\n".join(['admin,admin,admin,"system:masters"', *accounts]) + "\n")
    server = ApiServer(tmp_path / "state", "--token-file", str(tokens))
    server.start()
    context = ssl.create_default_context(cafile=str(server.state.pki.ca().cert))

    def session(token: str) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(ssl=context, limit=0)
        headers = {"Authorization": f"Bearer {token}"}
        return aiohttp.ClientSession(server.url, connector=connector, headers=headers)

    try:
        async with session("admin") as admin, contextlib.AsyncExitStack() as stack:
            for plural, obj in watchers_role([f"system:serviceaccount:{n}:a" for n in names]):
                async with admin.post(f"/apis/{GROUP}/v1/{plural}", json=obj) as response:
                    assert response.status == 201, await response.text()
            before, opened, rejected = resident(server), 0, 0
            for name in names:
                http = await stack.enter_async_context(session(name))
                for start in range(0, 1200, 50):
                    responses = await asyncio.gather(
                        *(watch(http) for _ in range(start, start + 50))
                    )
                    for response in responses:
                        stack.callback(response.close)
                    statuses = [response.status for response in responses]
                    opened += sum(status == 200 for status in statuses)
                    rejected += sum(status == 429 for status in statuses)
            used = resident(server) - before
            print(f"{opened} watches, {rejected} rejected, {used / opened / 1024:.0f} KiB each")
            assert (opened, rejected) == (3000, 600)
            assert used / opened < MAX_WATCH_BYTES
            started = time.perf_counter()
            async with admin.post(MAPS, json={"metadata": {"name": "prompt"}}) as response:
                assert response.status == 201
            async with admin.get(f"{MAPS}/prompt") as response:
                assert response.status == 200
            print(f"a write and a read beside them: {time.perf_counter() - started:.3f} s")
    finally:
        server.stop()


async def watch(http: aiohttp.ClientSession) -> aiohttp.ClientResponse:
    """Open a watch. Return its response, which the caller closes."""
    response = await http.get(MAPS, params={"watch": "1", "timeoutSeconds": "600"})
    if response.status != 200:
        await response.read()
    return response


def watchers_role(users: list[str]) -> list[tuple[str, dict[str, Any]]]:
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]
    role = {"metadata": {"name": "watcher"}, "rules": rules}
    binding = {
        "metadata": {"name": "watcher"},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "watcher"},
        "subjects": [{"apiGroup": GROUP, "kind": "User", "name": name} for name in users],
    }
    return [("clusterroles", role), ("clusterrolebindings", binding)]


def resident(server: ApiServer) -> int:
    """Return the resident memory of a server in bytes."""
    assert server.process is not None
    fields = Path(f"/proc/{server.process.pid}/statm").read_text().split()
    return int(fields[1]) * resource.getpagesize()


async def test_flood_of_watches_and_lists_does_not_stop_others(tmp_path: Path) -> None:
    """The attacker opens all watches that it may, and lists without a pause."""
    limits = ConnectionLimits(1000, 190)
    async with (
        users(tmp_path, connection_limits=limits) as (_, sessions),
        contextlib.AsyncExitStack() as stack,
    ):
        await fill(sessions["admin"], 500)
        attacker, tenant = sessions["attacker"], sessions["tenant"]
        statuses = []
        for _number in range(140):
            watch = attacker.get(MAPS, params={"watch": "1", "resourceVersion": "1"})
            statuses.append((await stack.enter_async_context(watch)).status)
        assert set(statuses) == {200}

        async def send() -> bool:
            async with attacker.get(MAPS, params={"resourceVersion": "0"}) as response:
                assert response.status in (200, 429)
                await response.read()
                return response.status == 200

        own = await stack.enter_async_context(
            tenant.get(MAPS, params={"watch": "1", "fieldSelector": "metadata.name=prompt"})
        )
        await others_succeed(sessions, 1)  # Their connections are open.
        # A short list takes one turn of the event loop, a write with its event several.
        async with Flood(45, send, turns=10) as flood:
            await others_succeed(sessions, 3, flood)
            with flood.overtaken():
                async with tenant.post(MAPS, json={"metadata": {"name": "prompt"}}) as created:
                    assert created.status == 201
                async with limit():
                    assert b'"name":"prompt"' in await own.content.readline()
