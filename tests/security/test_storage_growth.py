"""Growth of the database of the embedded API server under a flood of writes.

Who: a tenant who may change one large object, as often as it likes. What must hold: the bytes on
disk follow from what exists and from the recent history, not from what was ever written; writes of
others go on while the database is compacted.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from fakes.patience import SECONDS
from kube_api_server.storage import factory
from kube_api_server.storage import store as stores
from kube_api_server.storage.names import DEFAULT_NAMES
from kube_api_server.storage.sqlite import log as logs
from kube_api_server.storage.sqlite import store as sqlite_store
from kube_api_server.storage.sqlite.log import Log, Row

LARGE = 200_000
"""Size in bytes of a large object."""
PREFIX = "/core/configmaps/"
LIMIT = 10 * LARGE
"""Limit in bytes of the history, and of the changes before a compaction."""
MAX_SIZE = 5 * LARGE + 3 * LIMIT + (5 << 20)
"""Objects, history, changes before and during a compaction, and the -wal file, which SQLite keeps
up to 1,000 pages and a transaction.
"""


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "HISTORY_BYTES", LIMIT)
    monkeypatch.setattr(sqlite_store, "COMPACT_BYTES", LIMIT)
    monkeypatch.setattr(logs, "BATCH_BYTES", 3 * LARGE)
    monkeypatch.setattr(logs, "WAL_BYTES", 4 * LARGE)


def large(name: str, number: int) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": {"k": f"{number:08}" * (LARGE // 8)}}


def size(directory: Path) -> int:
    paths = logs.files(directory / DEFAULT_NAMES.database)
    return sum(path.stat().st_size for path in paths if path.exists())


def rows(path: Path) -> list[tuple[int, int]]:
    """Return revision and size of every row."""
    connection = sqlite3.connect(path)
    query = "SELECT revision, ifnull(length(value), 0) FROM log ORDER BY revision"
    result = connection.execute(query).fetchall()
    connection.close()
    return result


@pytest.mark.usefixtures("small_limits")
async def test_size_on_disk_does_not_follow_the_number_of_changes(tmp_path: Path) -> None:
    store = await factory.open_store(str(tmp_path / "db"))
    keep = await store.put(f"{PREFIX}b/keep", large("keep", 0), 0)
    revisions = {f"{PREFIX}a/m{number}": 0 for number in range(4)}

    async def change(number: int, key: str) -> None:
        revisions[key] = (await store.put(key, large("m", number), revisions[key])).revision

    largest = 0
    for number in range(100):
        await asyncio.gather(*(change(number, key) for key in revisions))
        largest = max(largest, size(tmp_path / "db"))
    assert largest < MAX_SIZE < 400 * LARGE / 5
    resumed = store.compacted_revision
    store.watch(PREFIX, resumed).close()
    await store.close()
    again = await factory.open_store(str(tmp_path / "db"))
    assert {key for key, _ in again.list(PREFIX)} == {*revisions, f"{PREFIX}b/keep"}
    entry = again.get(f"{PREFIX}b/keep")
    assert entry is not None
    assert entry.revision == keep.revision
    assert {key: entry.revision for key, entry in again.list(f"{PREFIX}a/")} == revisions
    # A watch continues across the restart from where it could before.
    watch = again.watch(PREFIX, resumed)
    assert [event.revision for event in await watch.next()][-1] == again.revision
    await again.close()


@pytest.mark.usefixtures("small_limits")
async def test_deleted_objects_leave_the_database(tmp_path: Path) -> None:
    store = await factory.open_store(str(tmp_path / "db"))
    for number in range(100):
        key = f"{PREFIX}a/m{number}"
        entry = await store.put(key, large("m", number), 0)
        await store.delete(key, entry.revision)
    await store.close()
    assert size(tmp_path / "db") < MAX_SIZE < 100 * LARGE
    stored = rows(tmp_path / "db" / DEFAULT_NAMES.database)
    assert sum(length for _, length in stored) < 3 * LIMIT


def test_writes_are_committed_between_the_slices_of_a_compaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "BATCH", 10)
    log = Log(tmp_path / DEFAULT_NAMES.database)
    progress: list[int] = []
    written = threading.Event()

    def commit(tokens: list[Any], error: Exception | None) -> None:
        assert error is None
        for token in tokens:
            if token == "during":
                progress.append(log.facts()[1])
            if token in ("filled", "last"):
                written.set()

    log.on_commit = commit
    for revision in range(1, 2001):
        log.append(Row(revision, f"key-{revision % 7}", 1, b"x"), "filled" * (revision == 2000))
    assert written.wait(SECONDS)
    written.clear()
    log.compact(2000)
    for revision in range(2001, 2101):
        log.append(Row(revision, "other", 2001, b"y"), "last" if revision == 2100 else "during")
    assert written.wait(SECONDS)
    # Each of ten transactions was committed before the compaction was complete.
    assert progress[-1] < 2000
    log.close()
    revisions = [revision for revision, _ in rows(tmp_path / DEFAULT_NAMES.database)]
    assert revisions == list(range(1994, 2101))


def test_compaction_is_completed_before_the_log_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "BATCH", 10)
    log = Log(tmp_path / DEFAULT_NAMES.database)
    for revision in range(1, 501):
        log.append(Row(revision, "key", 1, None if revision % 3 == 0 else b"x"), None)
    log.compact(1500)
    log.close()
    assert [revision for revision, _ in rows(tmp_path / DEFAULT_NAMES.database)] == [500]
    again = Log(tmp_path / DEFAULT_NAMES.database)
    assert again.facts() == (1500, 1500)
    again.close()
