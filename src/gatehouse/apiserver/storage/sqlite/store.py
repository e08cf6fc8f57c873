"""Store that writes through to the log.

A write gets its revision immediately, so that writes are ordered without locks. Readers and watches
see it when it is on disk, and its caller is answered then. If the log cannot be written, the
process exits, because no write may be acknowledged then.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable

import msgspec
import structlog

from gatehouse.apiserver.storage import entries
from gatehouse.apiserver.storage.encryption import EncryptionError, IdentityTransformer
from gatehouse.apiserver.storage.entries import Entry, Event, MismatchError
from gatehouse.apiserver.storage.sqlite.log import Log, Row
from gatehouse.apiserver.storage.store import HISTORY, Object, Store

log = structlog.get_logger("gatehouse.apiserver")

COMPACT_EVERY = 10_000

Pending = tuple[Event, "asyncio.Future[None]"]


class SqliteStore(Store):
    """Store over a :class:`Log`."""

    def __init__(
        self,
        storage: Log,
        cipher: IdentityTransformer | None = None,
        *,
        on_close: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__()
        self._on_close = on_close
        self._log, self._cipher = storage, cipher or IdentityTransformer()
        self.revision, self._compacted = storage.facts()
        self._assigned = self.revision
        self._latest: dict[str, Entry | None] = {}
        self._loop = asyncio.get_running_loop()
        self._since_compaction = 0
        storage.on_commit = self._committed
        for row in storage.newest():
            if row.value is not None:
                if self._cipher.needs_reencryption(row.key, row.value):
                    self.stale.append(row.key)
                self._load(row.key, self._entry(row))
        self._horizon = self.revision
        self._load_history()

    def latest(self, key: str) -> Entry | None:
        """Return an object after its latest write, whether that is on disk or not."""
        if key in self._latest:
            return self._latest[key]
        return self.get(key)

    async def put(self, key: str, value: Object, expected: int) -> Entry:
        """Write an object, and wait until it is durable and visible."""
        current = self.latest(key)
        if (current.revision if current else 0) != expected:
            raise MismatchError(key)
        self._assigned += 1
        entry = entries.entry(self._assigned, value)
        await self._write(Event(entry.revision, key, current, entry))
        return entry

    async def delete(self, key: str, expected: int) -> Entry:
        """Remove an object, and wait until the removal is durable and visible."""
        current = self.latest(key)
        if current is None or current.revision != expected:
            raise MismatchError(key)
        self._assigned += 1
        revision = self._assigned
        await self._write(Event(revision, key, current, None))
        return entries.removed(current, revision)

    async def close(self) -> None:
        """Complete queued writes and close the log."""
        await asyncio.to_thread(self._log.close)
        self._on_close()

    async def check(self) -> None:
        """Do nothing: a failing log ends the process."""

    def _entry(self, row: Row) -> Entry:
        assert row.value is not None
        data = self._cipher.decrypt(row.key, row.value)
        return Entry(row.revision, msgspec.json.decode(data), data)

    def _load_history(self) -> None:
        """Load the recent history, so that watches continue across a restart."""
        start = max(self._compacted, self.revision - HISTORY)
        known: dict[str, Entry] = {}
        for row in self._log.since(0):
            try:
                now = None if row.value is None else self._entry(row)
            except EncryptionError:
                # Encrypted with a removed key, so history starts after it.
                start = max(start, row.revision)
                self._history.clear()
                known.pop(row.key, None)
                continue
            if row.revision > start:
                event = Event(row.revision, row.key, known.get(row.key), now)
                if now is not None or event.before is not None:
                    self._history.append(event)
            if now is None:
                known.pop(row.key, None)
            else:
                known[row.key] = now
        self._horizon = start

    async def _write(self, event: Event) -> None:
        self._latest[event.key] = event.now
        created = event.now.revision if event.now and event.before is None else 0
        value = self._cipher.encrypt(event.key, event.now.data) if event.now else None
        done: asyncio.Future[None] = self._loop.create_future()
        self._log.append(Row(event.revision, event.key, created, value), (event, done))
        # Cancellation of the caller must not interrupt a write in progress.
        await asyncio.shield(done)

    def _committed(self, pending: list[Pending], error: Exception | None) -> None:
        self._loop.call_soon_threadsafe(self._written, pending, error)

    def _written(self, pending: list[Pending], error: Exception | None) -> None:
        if error is not None:
            log.critical("storage log not writable, exiting", error=str(error))
            sys.stderr.flush()
            os._exit(1)
        for event, done in pending:
            if self._latest.get(event.key) is event.now:
                self._latest.pop(event.key, None)
            self._publish(event)
            if not done.done():
                done.set_result(None)
        self._compact_sometimes(len(pending))

    def _compact_sometimes(self, written: int) -> None:
        self._since_compaction += written
        if self._since_compaction < COMPACT_EVERY or self.revision <= HISTORY:
            return
        self._since_compaction = 0
        target = self.revision - HISTORY
        self._log.compact(target)
        log.info("storage compacted", revision=target)
