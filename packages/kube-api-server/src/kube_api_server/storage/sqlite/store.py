"""Store that writes through to the log.

A write gets its revision immediately, so that writes are ordered without locks. Readers and watches
see it when it is on disk, and its caller is answered then. If no space is left, all writes in
progress fail and the next ones are tried. After another I/O error the process exits, because the
content of the file is unknown then.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Sequence

import msgspec
import structlog

from kube_api_server.storage import entries
from kube_api_server.storage.encryption import EncryptionError, IdentityTransformer
from kube_api_server.storage.entries import (
    MismatchError,
    StorageFullError,
    StoredEntry,
    StoreEvent,
    UnavailableError,
)
from kube_api_server.storage.sqlite.log import Log, Row
from kube_api_server.storage.store import HISTORY, ObjectStore
from kube_base.types.objects import Object

log = structlog.get_logger("apiserver")

COMPACT_INTERVAL_CHANGES = 10_000
"""Number of changes after which the log is compacted."""

COMPACT_BYTES = 64 << 20
"""Size in bytes of the objects of changes after which the log is compacted."""

Pending = tuple[StoreEvent, "asyncio.Future[None]"]


class SqliteStore(ObjectStore):
    """Store over a :class:`Log`."""

    def __init__(self, storage: Log, cipher: IdentityTransformer) -> None:
        """Load the log. Raises UnavailableError, EncryptionError."""
        super().__init__()
        self.on_close: Callable[[], object] = storage.close
        """Called when the store is closed."""
        self._log, self._cipher = storage, cipher
        self.revision, self._compacted = storage.facts()
        self._assigned = self.revision
        self._latest: dict[str, StoreEvent] = {}
        """Newest writes in progress, by key."""
        self._waiting: set[asyncio.Future[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._since_compaction = self._bytes_since_compaction = 0
        storage.on_commit = self._committed
        for row in storage.newest():
            if row.value is not None:
                if self._cipher.needs_reencryption(row.key, row.value):
                    self.stale.append(row.key)
                self._load(row.key, self._entry(row))
        self._horizon = self.revision
        self._load_history()

    def latest(self, key: str) -> StoredEntry | None:
        """Return an object after its latest write, whether that is on disk or not."""
        event = self._latest.get(key)
        return self.get(key) if event is None else event.now

    async def put(self, key: str, value: Object, expected: int) -> StoredEntry:
        """Write an object, and wait until it is durable and visible."""
        current = self.latest(key)
        if (current.revision if current else 0) != expected:
            raise MismatchError(key)
        self._assigned += 1
        entry = entries.entry(self._assigned, value)
        await self._write(StoreEvent(entry.revision, key, current, entry))
        return entry

    async def delete(self, key: str, expected: int) -> StoredEntry:
        """Remove an object, and wait until the removal is durable and visible."""
        current = self.latest(key)
        if current is None or current.revision != expected:
            raise MismatchError(key)
        self._assigned += 1
        revision = self._assigned
        await self._write(StoreEvent(revision, key, current, None))
        return entries.removed(current, revision)

    async def close(self) -> None:
        """Complete queued writes and close the log."""
        await asyncio.to_thread(self.on_close)

    async def check(self) -> None:
        """Do nothing. A full disk permits reads, and other storage failures end the process."""

    def _entry(self, row: Row) -> StoredEntry:
        assert row.value is not None
        data = self._cipher.decrypt(row.key, row.value)
        try:
            return StoredEntry(row.revision, msgspec.json.decode(data), data)
        except msgspec.DecodeError as error:
            raise self._log.failures.damaged(f"{row.key} is not JSON") from error

    def _loaded(self, row: Row) -> StoredEntry:
        """Return the entry of a row, without decoding the newest row of an object again."""
        newest = self.get(row.key)
        if newest is not None and newest.revision == row.revision:
            return newest
        return self._entry(row)

    def _load_history(self) -> None:
        """Load the recent history, so that watches continue across a restart."""
        start = max(self._compacted, self.revision - HISTORY)
        known: dict[str, StoredEntry] = {}
        for row in self._log.since(0):
            try:
                now = None if row.value is None else self._loaded(row)
            except EncryptionError:
                # Encrypted with a removed key, so history starts after it.
                start = max(start, row.revision)
                self._history.clear()
                known.pop(row.key, None)
                continue
            if row.revision > start:
                event = StoreEvent(row.revision, row.key, known.get(row.key), now)
                if now is not None or event.before is not None:
                    self._history.append(event)
            if now is None:
                known.pop(row.key, None)
            else:
                known[row.key] = now
        self._horizon = start

    async def _write(self, event: StoreEvent) -> None:
        self._latest[event.key] = event
        created = event.now.revision if event.now and event.before is None else 0
        value = self._cipher.encrypt(event.key, event.now.data) if event.now else None
        done: asyncio.Future[None] = self._loop.create_future()
        self._waiting.add(done)
        self._log.append(Row(event.revision, event.key, created, value), (event, done))
        # Cancellation of the caller must not interrupt a write in progress.
        await asyncio.shield(done)

    def _committed(self, pending: list[Pending], error: UnavailableError | None) -> None:
        self._loop.call_soon_threadsafe(self._written, pending, error)

    def _written(self, pending: list[Pending], error: UnavailableError | None) -> None:
        if isinstance(error, StorageFullError):
            self._reject(error)
            return
        if error is not None:
            log.critical("storage log not writable, exiting", error=str(error))
            sys.stderr.flush()
            os._exit(1)
        if self.full and pending:
            self.full = False
            log.info("storage writable again")
        for event, done in pending:
            if self._latest.get(event.key) is event:
                del self._latest[event.key]
            self._publish(event)
            self._waiting.discard(done)
            if not done.done():
                done.set_result(None)
        self._compact_sometimes([event for event, _ in pending])

    def _reject(self, error: StorageFullError) -> None:
        """Fail all writes in progress: those that the log has not tried may depend on others."""
        if not self.full:
            self.full = True
            log.error("storage full, writes are rejected", error=str(error))
        waiting, self._waiting = self._waiting, set()
        self._latest.clear()
        self._log.resume()
        for done in waiting:
            if not done.done():
                done.set_exception(StorageFullError(str(error)))

    def _compact_sometimes(self, events: Sequence[StoreEvent]) -> None:
        """Compact what no watch can resume from, once enough was written to be worth it."""
        self._since_compaction += len(events)
        self._bytes_since_compaction += sum(event.size for event in events)
        few = self._since_compaction < COMPACT_INTERVAL_CHANGES
        if (few and self._bytes_since_compaction < COMPACT_BYTES) or not self.compacted_revision:
            return
        self._since_compaction = self._bytes_since_compaction = 0
        self._log.compact(self.compacted_revision)
