"""Storage: the same guarantees from both engines."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from fakes import patience
from fakes.process import Etcd
from kube_api_server.storage import backup, encryption, factory
from kube_api_server.storage import store as stores
from kube_api_server.storage.encryption import EncryptionError
from kube_api_server.storage.entries import (
    CompactedError,
    MismatchError,
    StorageAddressError,
    UnavailableError,
)
from kube_api_server.storage.etcd import address
from kube_api_server.storage.names import DEFAULT_NAMES
from kube_api_server.storage.store import ObjectStore

Open = Callable[..., AbstractAsyncContextManager[ObjectStore]]
PREFIX = "/core/configmaps/"


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    if Etcd.binary() is None:
        pytest.skip("no etcd on this machine")
    server = Etcd(tmp_path_factory.mktemp("etcd") / "data")
    server.start()
    yield server
    server.stop()


@pytest.fixture(params=["sqlite", "etcd"])
def at(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Address of a new, empty storage."""
    if request.param == "sqlite":
        return str(tmp_path / "db")
    server: Etcd = request.getfixturevalue("etcd")
    return f"etcd://{server.address}/{os.urandom(6).hex()}"


@pytest.fixture
def opened(at: str) -> Open:
    @contextlib.asynccontextmanager
    async def opener(keys: Path | None = None) -> AsyncIterator[ObjectStore]:
        store = await factory.open_store(at, keys)
        try:
            yield store
        finally:
            await store.close()

    return opener


def thing(name: str, **data: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": data}


async def test_write_is_visible_when_it_returns(opened: Open) -> None:
    async with opened() as store:
        entry = await store.put(f"{PREFIX}d/a", thing("a"), 0)
        assert store.get(f"{PREFIX}d/a") is not None
        assert store.revision >= entry.revision
        assert entry.value["metadata"]["resourceVersion"] == str(entry.revision)


async def test_write_with_outdated_revision_is_rejected(opened: Open) -> None:
    async with opened() as store:
        first = await store.put(f"{PREFIX}d/a", thing("a"), 0)
        with pytest.raises(MismatchError):
            await store.put(f"{PREFIX}d/a", thing("a"), 0)
        await store.put(f"{PREFIX}d/a", thing("a", x="1"), first.revision)
        with pytest.raises(MismatchError):
            await store.delete(f"{PREFIX}d/a", first.revision)


async def test_watch_yields_every_change_in_order_with_former_state(opened: Open) -> None:
    async with opened() as store:
        start = store.revision
        watch = store.watch(PREFIX, start)
        one = await store.put(f"{PREFIX}d/a", thing("a"), 0)
        two = await store.put(f"{PREFIX}d/a", thing("a", x="1"), one.revision)
        await store.delete(f"{PREFIX}d/a", two.revision)
        events = await watch.next()
        assert [(e.before is None, e.now is None) for e in events] == [
            (True, False),
            (False, False),
            (False, True),
        ]
        again = store.watch(PREFIX, one.revision)
        assert [e.revision for e in await again.next()] == [e.revision for e in events[1:]]


async def test_watch_of_a_namespace_excludes_others(opened: Open) -> None:
    async with opened() as store:
        watch = store.watch(f"{PREFIX}d/", store.revision)
        await store.put(f"{PREFIX}e/a", thing("a"), 0)
        await store.put(f"{PREFIX}d/a", thing("a"), 0)
        assert [e.key for e in await watch.next()] == [f"{PREFIX}d/a"]


async def test_past_revision_can_be_listed_until_compaction(opened: Open) -> None:
    async with opened() as store:
        one = await store.put(f"{PREFIX}d/a", thing("a"), 0)
        await store.put(f"{PREFIX}d/b", thing("b"), 0)
        gone = await store.delete(f"{PREFIX}d/a", one.revision)
        assert [key for key, _ in store.at(PREFIX, one.revision)] == [f"{PREFIX}d/a"]
        assert [key for key, _ in store.at(PREFIX, gone.revision)] == [f"{PREFIX}d/b"]


async def test_history_survives_restart(opened: Open) -> None:
    async with opened() as store:
        one = await store.put(f"{PREFIX}d/a", thing("a"), 0)
        await store.put(f"{PREFIX}d/a", thing("a", x="1"), one.revision)
    async with opened() as store:
        events = await store.watch(PREFIX, one.revision).next()
        assert [e.now.value["data"] for e in events if e.now] == [{"x": "1"}]
        assert events[0].before is not None


async def test_compacted_revision_is_rejected(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "HISTORY", 5)
    async with opened() as store:
        store._history = type(store._history)(5, 1 << 20)
        first = await store.put(f"{PREFIX}d/a", thing("a"), 0)
        for number in range(8):
            await store.put(f"{PREFIX}d/{number}", thing(str(number)), 0)
        with pytest.raises(CompactedError):
            store.watch(PREFIX, first.revision)
        with pytest.raises(CompactedError):
            list(store.at(PREFIX, first.revision))


async def test_concurrent_writers_lose_no_update(opened: Open) -> None:
    async with opened() as store:

        async def count(key: str) -> None:
            for _ in range(20):
                while True:
                    entry = store.latest(key)
                    value = entry.value["data"]["n"] + 1 if entry else 1
                    try:
                        await store.put(key, thing("a", n=value), entry.revision if entry else 0)
                        break
                    except MismatchError:
                        await store.read_fresh()

        await asyncio.gather(*(count(f"{PREFIX}d/a") for _ in range(5)))
        entry = store.get(f"{PREFIX}d/a")
        assert entry is not None
        assert entry.value["data"]["n"] == 100


async def test_restored_backup_continues_revisions(at: str, opened: Open, tmp_path: Path) -> None:
    async with opened() as store:
        entry = await store.put(f"{PREFIX}d/a", thing("a", x="1"), 0)
        await store.put(f"{PREFIX}d/b", thing("b"), 0)
        last = store.revision
    revision, records = await backup.read_backup(at)
    assert revision >= last
    backup.dump_backup(tmp_path / "backup", revision, records)
    assert (tmp_path / "backup").stat().st_mode & 0o777 == 0o600
    target = f"{at}-copy"
    await backup.restore_objects(target, *backup.load_backup(tmp_path / "backup"))
    with pytest.raises(backup.TransferError, match="not empty"):
        await backup.restore_objects(target, *backup.load_backup(tmp_path / "backup"))
    copy = await factory.open_store(target)
    try:
        result = copy.get(f"{PREFIX}d/a")
        assert result is not None
        assert result.value["data"] == {"x": "1"}
        assert copy.revision > last + 1000
        with pytest.raises(CompactedError):
            copy.watch(PREFIX, entry.revision)
        assert (await copy.put(f"{PREFIX}d/c", thing("c"), 0)).revision > copy.compacted_revision
    finally:
        await copy.close()


async def test_secrets_are_encrypted_and_keys_rotate(at: str, opened: Open, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    old, new = encryption.generate_key(), encryption.generate_key()
    key = "/core/secrets/d/s"
    async with opened() as store:
        await store.put(key, {"metadata": {"name": "s"}, "data": {"p": "in-the-open"}}, 0)
    keys.write_text(f"# comment\n{old}\n")
    async with opened(keys) as store:
        assert store.stale == [key]
        await factory.reencrypt(store)
    assert all(b"in-the-open" not in r.value for r in (await backup.read_backup(at))[1])
    keys.write_text(f"{new}\n{old}\n")
    async with opened(keys) as store:
        assert store.stale == [key]
        await factory.reencrypt(store)
    keys.write_text(f"{new}\n")
    async with opened(keys) as store:
        assert not store.stale
        entry = store.get(key)
        assert entry is not None
        assert entry.value["data"] == {"p": "in-the-open"}
    keys.write_text(f"{encryption.generate_key()}\n")
    with pytest.raises(EncryptionError, match="not in the key file"):
        await factory.open_store(at, keys)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "contains no key"),
        ("one !!!", "line 1: not base64"),
        (f"one {base64.b64encode(b'short').decode()}", "32 bytes"),
    ],
)
def test_invalid_key_file_names_line(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "keys").write_text(text)
    with pytest.raises(EncryptionError, match=words):
        encryption.load_keys(tmp_path / "keys", DEFAULT_NAMES)


def test_encrypted_value_cannot_be_moved_to_another_key() -> None:
    cipher = encryption.AESGCMTransformer({"k": b"1" * 32}, DEFAULT_NAMES)
    sealed = cipher.encrypt("/core/secrets/a/x", b"{}")
    with pytest.raises(EncryptionError):
        cipher.decrypt("/core/secrets/a/y", sealed)
    with pytest.raises(EncryptionError, match="no key file"):
        encryption.IdentityTransformer(DEFAULT_NAMES).decrypt("/core/secrets/a/x", sealed)


async def test_second_open_of_a_database_fails(tmp_path: Path) -> None:
    store = await factory.open_store(str(tmp_path / "db"))
    with pytest.raises(UnavailableError, match="in use"):
        await factory.open_store(str(tmp_path / "db"))
    await store.close()
    await (await factory.open_store(str(tmp_path / "db"))).close()


async def test_compaction_keeps_current_objects(tmp_path: Path) -> None:
    store = await factory.open_store(str(tmp_path / "db"))
    entry = await store.put(f"{PREFIX}d/a", thing("a", n=0), 0)
    for number in range(20):
        entry = await store.put(f"{PREFIX}d/a", thing("a", n=number), entry.revision)
    store._log.compact(entry.revision)  # type: ignore[attr-defined]
    await store.close()
    rows = (
        sqlite3.connect(tmp_path / "db" / DEFAULT_NAMES.database)
        .execute("SELECT * FROM log")
        .fetchall()
    )
    assert len(rows) == 1
    store = await factory.open_store(str(tmp_path / "db"))
    assert store.get(f"{PREFIX}d/a") is not None
    with pytest.raises(CompactedError):
        store.watch(PREFIX, entry.revision - 1)
    await store.close()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("etcd:///x", "expected etcd://"),
        ("etcd://h/p?colour=red", "unknown option 'colour'"),
        ("etcd://h/p?ca=/does/not/exist", "no such file"),
        ("etcd://h/p?cert=/dev/null", "belong together"),
    ],
)
def test_invalid_address_is_rejected_with_reason(text: str, words: str) -> None:
    with pytest.raises(StorageAddressError, match=words):
        address.parse_etcd_address(text, DEFAULT_NAMES)


def test_etcd_address_has_defaults() -> None:
    parsed = address.parse_etcd_address("etcd://one,two:1234", DEFAULT_NAMES)
    assert (parsed.endpoints, parsed.prefix) == (("one:2379", "two:1234"), "/kube-api-server")


async def test_unreachable_etcd_is_reported() -> None:
    with pytest.raises(UnavailableError, match="not reachable"):
        await factory.open_store("etcd://127.0.0.1:9/x")


@pytest.mark.process
async def test_writes_of_other_servers_are_visible(etcd: Etcd) -> None:
    at = f"etcd://{etcd.address}/{os.urandom(6).hex()}"
    one, two = await factory.open_store(at), await factory.open_store(at)
    try:
        watch = two.watch(PREFIX, two.revision)
        entry = await one.put(f"{PREFIX}d/a", thing("a"), 0)
        await two.read_fresh()
        assert two.get(f"{PREFIX}d/a") == entry
        assert [e.revision for e in await watch.next()] == [entry.revision]
        with pytest.raises(MismatchError):
            await two.put(f"{PREFIX}d/a", thing("a"), 0)
    finally:
        await one.close()
        await two.close()


@pytest.mark.process
async def test_outdated_known_entry_is_refreshed_from_etcd(etcd: Etcd) -> None:
    at = f"etcd://{etcd.address}/{os.urandom(6).hex()}"
    one, other = await factory.open_store(at), await factory.open_store(at)
    for number in range(50):
        key = f"{PREFIX}d/{number}"
        entry = await one.put(key, thing("a"), 0)
        result = await other.known(key)
        assert result is not None
        assert result.revision == entry.revision
        changed = await one.put(key, thing("b"), entry.revision)
        assert await other.outdated(key, result)
        result = other.latest(key)
        assert result is not None
        assert result.revision == changed.revision
        assert not await other.outdated(key, result)
        await one.delete(key, changed.revision)
        assert await other.outdated(key, result)
        assert await other.known(key) is None
    await one.close()
    await other.close()


@pytest.mark.process
async def test_store_continues_after_etcd_restart(tmp_path: Path) -> None:
    if Etcd.binary() is None:
        pytest.skip("no etcd on this machine")
    server = Etcd(tmp_path / "etcd")
    await asyncio.to_thread(server.start)
    store = await factory.open_store(f"etcd://{server.address}/x")
    try:
        watch = store.watch(PREFIX, store.revision)
        await store.put(f"{PREFIX}d/a", thing("a"), 0)
        await asyncio.to_thread(server.kill)
        with pytest.raises(UnavailableError):
            await store.check()
        await asyncio.to_thread(server.start)
        async with patience.limit():
            while True:
                with contextlib.suppress(UnavailableError):
                    await store.put(f"{PREFIX}d/b", thing("b"), 0)
                    break
        result = [event.key async for event in _until(watch, f"{PREFIX}d/b")]
        assert result == [f"{PREFIX}d/a", f"{PREFIX}d/b"]
    finally:
        await store.close()
        server.stop()
        shutil.rmtree(server.directory)


async def _until(watch: Any, key: str) -> AsyncIterator[Any]:
    async with patience.limit():
        while True:
            for event in await watch.next():
                yield event
                if event.key == key:
                    return
