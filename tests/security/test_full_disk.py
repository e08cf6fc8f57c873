"""Full disk: a user who may write objects, or another program, fills the disk of the storage.

Reads, watches, leases and data planes must go on, and writes get 507. No acknowledged write may be
lost, and writes must succeed by themselves once there is space.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import shutil
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fakes.durations import last, pace
from fakes.inprocess import Server
from fakes.installation import BACKEND, Installation, address, apply, hello, holds, route, traffic
from fakes.patience import until
from fakes.process import ApiServer
from fakes.small_disk import SmallDisk, small_disk
from gatehouse.apis import resources
from gatehouse.kube import client as kube
from gatehouse.standalone import echo
from gatehouse.standalone.state_directory import State
from kube_api_server.storage import factory
from kube_api_server.storage.entries import StorageFullError
from kube_api_server.storage.sqlite import failures
from kube_api_server.storage.store import ObjectStore

PREFIX = "/core/configmaps/default/"
MAPS = "/api/v1/namespaces/default/configmaps"


class Disk:
    """Error with which SQLite fails every transaction; 0 for none."""

    code = 0


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> type[Disk]:
    class Connection(sqlite3.Connection):
        def executemany(self, *arguments: Any) -> sqlite3.Cursor:
            if Disk.code:
                error = sqlite3.OperationalError("injected")
                error.sqlite_errorcode = Disk.code
                raise error
            return super().executemany(*arguments)

    Disk.code = 0
    connect = sqlite3.connect
    monkeypatch.setattr(
        sqlite3, "connect", lambda *args, **options: connect(*args, factory=Connection, **options)
    )
    return Disk


def thing(name: str, **data: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": data}


async def put(store: ObjectStore, name: str, expected: int = 0) -> int:
    return (await store.put(PREFIX + name, thing(name), expected)).revision


# The storage engine.


async def test_failed_write_is_invisible_and_a_later_one_succeeds(
    tmp_path: Path, disk: type[Disk]
) -> None:
    store = await factory.open_store(str(tmp_path / "db"))
    first = await put(store, "a")
    watch = store.watch(PREFIX, store.revision)
    disk.code = sqlite3.SQLITE_FULL
    for _ in range(3):
        with pytest.raises(StorageFullError, match=f"no space left in {tmp_path / 'db'}"):
            await put(store, "a", first)
    with pytest.raises(StorageFullError):
        await store.delete(f"{PREFIX}a", first)
    latest = store.latest(f"{PREFIX}a")
    assert (store.full, latest and latest.revision, store.revision) == (True, first, first)
    disk.code = 0
    second = await put(store, "a", first)
    assert not store.full
    assert [event.revision for event in await watch.next()] == [second]
    await store.close()
    store = await factory.open_store(str(tmp_path / "db"))
    assert [entry.revision for _, entry in store.list(PREFIX)] == [second]
    await store.close()


async def test_writes_that_depend_on_a_failed_one_fail(tmp_path: Path, disk: type[Disk]) -> None:
    """A writer that has read a state in progress must not store what is based on it."""
    store = await factory.open_store(str(tmp_path / "db"))
    first = await put(store, "a")
    disk.code = sqlite3.SQLITE_FULL
    one = asyncio.create_task(put(store, "a", first))
    await asyncio.sleep(0)
    latest = store.latest(f"{PREFIX}a")
    assert latest is not None
    # Queued before the failure is known. There is space when the log gets to it.
    two = asyncio.create_task(put(store, "a", latest.revision))
    other = asyncio.create_task(put(store, "b"))
    await asyncio.sleep(0)
    results = await asyncio.gather(one, two, other, return_exceptions=True)
    assert [type(result) for result in results] == [StorageFullError] * 3
    disk.code = 0
    third = await put(store, "a", first)
    await store.close()
    store = await factory.open_store(str(tmp_path / "db"))
    assert [(key, entry.revision) for key, entry in store.list(PREFIX)] == [(f"{PREFIX}a", third)]
    await store.close()


async def test_acknowledged_writes_equal_stored_ones_while_the_disk_is_full_at_times(
    tmp_path: Path, disk: type[Disk]
) -> None:
    store = await factory.open_store(str(tmp_path / "db"))
    acknowledged: dict[str, int] = {}

    async def writer(number: int) -> int:
        failed, revision = 0, 0
        for _ in range(60):
            try:
                revision = acknowledged[f"n{number}"] = await put(store, f"n{number}", revision)
            except StorageFullError:
                failed += 1
                await pace(0.001)
        return failed

    async def toggle() -> None:
        while True:
            disk.code = 0 if disk.code else sqlite3.SQLITE_FULL
            await pace(0.003)

    toggling = asyncio.create_task(toggle())
    failed = sum(await asyncio.gather(*(writer(number) for number in range(8))))
    toggling.cancel()
    disk.code = 0
    watch = store.watch(PREFIX, 0)
    events = [event.revision for event in await watch.next()]
    assert events == sorted(set(events))
    assert len(events) + failed == 8 * 60
    assert failed > 20
    await store.close()
    store = await factory.open_store(str(tmp_path / "db"))
    stored = {key.rpartition("/")[2]: entry.revision for key, entry in store.list(PREFIX)}
    assert stored == acknowledged
    await store.close()


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize(
    "code", [sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_CORRUPT]
)
async def test_only_errors_for_lack_of_space_keep_the_process(
    tmp_path: Path, disk: type[Disk], monkeypatch: pytest.MonkeyPatch, code: int, full: bool
) -> None:
    """After another I/O error the content of the file is unknown. A quota is a lack of space."""
    exits: list[int] = []
    monkeypatch.setattr(os, "_exit", exits.append)
    monkeypatch.setattr(failures, "_is_full", lambda _: full)
    store = await factory.open_store(str(tmp_path / "db"))
    disk.code = code
    if full and code == sqlite3.SQLITE_IOERR_WRITE:
        with pytest.raises(StorageFullError):
            await put(store, "a")
        assert not exits
    else:
        writing = asyncio.create_task(put(store, "a"))
        await until(lambda: _true(exits))
        assert set(exits) == {1}
        writing.cancel()
    disk.code = 0
    await store.close()


async def _true(value: object) -> bool:
    return bool(value)


# The API server.


async def test_server_answers_507_and_serves_reads_while_the_disk_is_full(
    tmp_path: Path, disk: type[Disk]
) -> None:
    server = Server(State(tmp_path / "s"))
    async with server.running(), server.raw() as http:
        async with http.post(MAPS, json=thing("a")) as response:
            assert response.status == 201
            version = (await response.json())["metadata"]["resourceVersion"]
        async with http.get(f"{MAPS}?watch=1&resourceVersion={version}") as watch:
            disk.code = sqlite3.SQLITE_FULL
            for method, path in (("PUT", f"{MAPS}/a"), ("DELETE", f"{MAPS}/a")):
                async with http.request(method, path, json=thing("a", changed="1")) as response:
                    assert (method, response.status) == (method, 507)
            async with http.post(MAPS, json=thing("b")) as response:
                body = await response.json()
                assert (response.status, body["reason"]) == (507, "InsufficientStorage")
                assert str(server.state.database) in body["message"]
                assert "Retry-After" not in response.headers
            for path in (MAPS, f"{MAPS}/a", "/readyz", "/livez"):
                async with http.get(path) as response:
                    assert response.status == 200
            assert await gauge(http) == 1
            disk.code = 0
            async with http.post(MAPS, json=thing("b")) as response:
                assert response.status == 201
            assert await gauge(http) == 0
            event = json.loads(await watch.content.readline())
            assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "b")


async def gauge(http: aiohttp.ClientSession) -> float:
    async with http.get("/metrics") as response:
        lines = (await response.text()).splitlines()
    name = "gatehouse_apiserver_storage_full"
    (value,) = [line.split()[1] for line in lines if line.startswith(f"{name} ")]
    return float(value)


async def test_server_with_objects_starts_on_a_full_disk(
    tmp_path: Path, disk: type[Disk], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upgrade has bootstrap objects to write."""
    server = Server(State(tmp_path / "s"))
    async with server.running(), server.raw() as http:
        async with http.delete("/api/v1/namespaces/gatehouse-system") as response:
            assert response.status == 200
        await until(lambda: _gone(http, "/api/v1/namespaces/gatehouse-system"))
    monkeypatch.setattr("kube_api_server.main.BOOTSTRAP_SECONDS", 0.1)
    disk.code = sqlite3.SQLITE_FULL
    async with server.running(), server.raw() as http:
        async with http.get("/api/v1/namespaces") as response:
            assert response.status == 200
        async with http.get("/readyz") as response:
            assert response.status == 500
        disk.code = 0
        await until(lambda: _ready(http))
        assert not await _gone(http, "/api/v1/namespaces/gatehouse-system")


async def _gone(http: aiohttp.ClientSession, path: str) -> bool:
    async with http.get(path) as response:
        return response.status == 404


async def _ready(http: aiohttp.ClientSession) -> bool:
    async with http.get("/readyz") as response:
        return response.status == 200


# Real disks.


@pytest.fixture
def small() -> Iterator[SmallDisk]:
    directory = Path(tempfile.mkdtemp(prefix="gh-"))
    with small_disk(directory / "d", "24m") as mounted:
        yield mounted
    shutil.rmtree(directory, ignore_errors=True)


@contextlib.asynccontextmanager
async def serving(server: ApiServer, log: Path) -> AsyncIterator[kube.Client]:
    server.start(log)
    try:
        async with kube.Client.from_kubeconfig(server.kubeconfig) as client:
            yield client
    finally:
        server.stop()


async def write_until_full(client: kube.Client, prefix: str, count: float = math.inf) -> list[str]:
    """Create objects until one is rejected. Return the names of those that were acknowledged."""
    names: list[str] = []
    while len(names) < count:
        name = f"{prefix}{len(names)}"
        obj = thing(name, text="x" * 50_000)
        obj["metadata"]["namespace"] = "default"
        try:
            await client.create(resources.CONFIG_MAPS, obj)
        except kube.ApiError as error:
            if error.status != 507:
                raise
            break
        names.append(name)
    return names


async def names_of(client: kube.Client) -> set[str]:
    items = (await client.list(resources.CONFIG_MAPS, namespace="default")).items
    return {item["metadata"]["name"] for item in items}


@pytest.mark.process
async def test_apiserver_on_a_full_disk_loses_no_acknowledged_write(
    small: SmallDisk, tmp_path: Path
) -> None:
    audit = small.path / "audit" / "log"
    server = ApiServer(
        tmp_path / "a", "--audit-log-path", str(audit), storage=str(small.path / "db")
    )
    log = small.path / "server.log"
    async with serving(server, log) as client:
        assert server.process is not None
        process = server.process.pid
        before = await write_until_full(client, "a", 20)
        assert len(before) == 20
        # Megabytes are left, which free() gives back.
        small.fill()
        before += await write_until_full(client, "b")
        assert await names_of(client) >= {*before}
        small.free()
        await until(lambda: _created(client, "recovered"))
        assert server.process.poll() is None
        assert server.process.pid == process
        small.fill()
        before += ["recovered", *await write_until_full(client, "c")]
        server.kill()
    # The disk is still full.
    async with serving(server, log) as client:
        assert await names_of(client) >= {*before}
        small.free()
        await until(lambda: _created(client, "last"))


async def _created(client: kube.Client, name: str) -> bool:
    obj = thing(name)
    obj["metadata"]["namespace"] = "default"
    try:
        await client.create(resources.CONFIG_MAPS, obj)
    except kube.ApiError as error:
        if error.status != 507:
            raise
        return False
    return True


@pytest.mark.process
@pytest.mark.timeout(240)
async def test_installation_on_a_full_disk_keeps_processes_and_traffic(tmp_path: Path) -> None:
    directory = Path(tempfile.mkdtemp(prefix="gh-"))
    with small_disk(directory / "d", "48m") as small:
        installation = Installation(small.path / "s")
        installation.state.mkdir(mode=0o700)
        # Logs of the control plane are on the same disk.
        installation.start()
        try:
            async with (
                installation.client() as client,
                echo.serve_echo({BACKEND: "app"}),
                traffic_ready(client) as where,
            ):
                parts = {name: installation.part(name).pid for name in PARTS}
                parts["agent"] = installation.agent().pid
                async with traffic(where) as statuses:
                    small.fill()
                    await until(lambda: _rejected(client))
                    await last(20)  # Time passes with a full disk.
                    assert (await client.list(resources.GATEWAYS)).items
                    small.free()
                    await until(lambda: _created(client, "recovered"))
                    await apply(client, [route("later", "/later")])
                    await holds(client, "HTTPRoute", "later", "Accepted")
                after = {name: installation.part(name).pid for name in PARTS}
                assert after | {"agent": installation.agent().pid} == parts
                assert statuses.keys() == {"200"}
        finally:
            installation.stop()
    shutil.rmtree(directory, ignore_errors=True)


PARTS = ("apiserver", "controller", "node")


@contextlib.asynccontextmanager
async def traffic_ready(client: kube.Client) -> AsyncIterator[str]:
    await apply(client, hello())
    where = await address(client)
    await holds(client, "Gateway", "web", "Programmed")
    yield where


async def _rejected(client: kube.Client) -> bool:
    try:
        await client.create(
            resources.CONFIG_MAPS,
            {**thing(f"x{os.urandom(4).hex()}", text="x" * 50_000)}
            | {"metadata": {"generateName": "x", "namespace": "default"}},
        )
    except kube.ApiError as error:
        return error.status == 507
    return False
