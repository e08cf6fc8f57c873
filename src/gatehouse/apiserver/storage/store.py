"""The newest state in memory, written through to the log; watches that miss nothing.

Everything runs in one event loop. A write gets its revision at once, so that writes order
themselves without locks; readers and watches see it when it is on disk, and its caller is answered
then. A log that cannot be written ends the process: nothing may be acknowledged any more.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import structlog

from gatehouse.apiserver.storage.sqlite import Log, Row

log = structlog.get_logger("gatehouse.apiserver")

Object = dict[str, Any]

HISTORY = 10_000
"""Revisions that a watch can be resumed from."""

COMPACT_EVERY = 10_000

QUEUE = 10_000
"""Events that may wait for a slow watcher before it is cut off."""


class Entry(msgspec.Struct, frozen=True):
    """An object as stored. Never change ``value``."""

    revision: int
    value: Object
    data: bytes
    """``value`` as JSON."""


class Event(msgspec.Struct):
    """A change. ``now`` None: deleted, ``before`` None: created."""

    revision: int
    key: str
    before: Entry | None
    now: Entry | None


class CompactedError(Exception):
    """The revision is older than what is remembered."""


class MismatchError(Exception):
    """The object is not of the revision that the writer expected."""


class Watch:
    """Events of keys under a prefix, after a revision, in order and without a gap."""

    def __init__(self, prefix: str, on_close: Callable[[Watch], None]) -> None:
        self.prefix = prefix
        self.cut = False
        """Set when the reader was too slow; nothing more will come."""
        self._events: deque[Event] = deque()
        self._more = asyncio.Event()
        self._on_close = on_close

    def offer(self, event: Event) -> None:
        """Take in an event."""
        if self.cut:
            return
        if len(self._events) >= QUEUE:
            self.cut = True
        else:
            self._events.append(event)
        self._more.set()

    @property
    def waiting(self) -> bool:
        """Whether events have come that :meth:`next` has not given yet."""
        return bool(self._events)

    async def next(self) -> list[Event]:
        """Wait for events; give all that have come (none when cut off)."""
        await self._more.wait()
        self._more.clear()
        if self.cut:
            self._more.set()
        events = list(self._events)
        self._events.clear()
        return events

    def close(self) -> None:
        """Stop watching."""
        self._on_close(self)


class Store:
    """Objects by key, such as ``/services/cafe/tea`` with the resource's prefix before it."""

    def __init__(self, storage: Log) -> None:
        self._log = storage
        self.revision, self._compacted = storage.facts()
        """Of the last change that readers see."""
        self._assigned = self.revision
        self._entries: dict[str, dict[str, Entry]] = {}
        self._latest: dict[str, Entry | None] = {}
        self._history: deque[Event] = deque(maxlen=HISTORY)
        self._watches: dict[str, set[Watch]] = {}
        self._loop = asyncio.get_running_loop()
        self._since_compaction = 0
        self.deletions = 0
        """How many objects were removed so far; what depends on them may be looked at then."""
        for row in storage.newest():
            if row.value is not None:
                self._bucket(row.key)[row.key] = _entry(row)
        self._horizon = self.revision
        """Watches can be resumed from here on: what happened before was in another process."""

    def latest(self, key: str) -> Entry | None:
        """Give an object as the next write will find it."""
        if key in self._latest:
            return self._latest[key]
        return self._bucket(key).get(key)

    def get(self, key: str) -> Entry | None:
        """Give an object as readers see it."""
        return self._bucket(key).get(key)

    def list(self, prefix: str) -> Iterator[tuple[str, Entry]]:
        """Give objects whose key starts with ``prefix``, by key."""
        bucket = self._bucket(prefix)
        return ((key, bucket[key]) for key in sorted(bucket) if key.startswith(prefix))

    def count(self, prefix: str) -> int:
        """Count the objects of a resource."""
        return len(self._bucket(prefix))

    async def put(self, key: str, value: Object, expected: int) -> Entry:
        """Write an object; ``expected`` is its revision now, 0 for none.

        ``value`` is taken over, and given its resourceVersion. Raises MismatchError.
        """
        current = self.latest(key)
        if (current.revision if current else 0) != expected:
            raise MismatchError(key)
        self._assigned += 1
        value["metadata"]["resourceVersion"] = str(self._assigned)
        entry = Entry(self._assigned, value, msgspec.json.encode(value))
        await self._write(Event(entry.revision, key, current, entry))
        return entry

    async def delete(self, key: str, expected: int) -> Entry:
        """Remove an object; gives its last state, with the revision of the removal."""
        current = self.latest(key)
        if current is None or current.revision != expected:
            raise MismatchError(key)
        self._assigned += 1
        await self._write(Event(self._assigned, key, current, None))
        metadata = {**current.value["metadata"], "resourceVersion": str(self._assigned)}
        last = {**current.value, "metadata": metadata}
        return Entry(self._assigned, last, msgspec.json.encode(last))

    def watch(self, prefix: str, revision: int) -> Watch:
        """Watch from after ``revision`` on; raises CompactedError."""
        if revision < self.horizon:
            raise CompactedError
        watch = Watch(prefix, self._closed)
        for event in self._history:
            if event.revision > revision and event.key.startswith(prefix):
                watch.offer(event)
        self._watches.setdefault(_resource(prefix), set()).add(watch)
        return watch

    @property
    def horizon(self) -> int:
        """The oldest revision that a watch can be resumed from."""
        if self._history and len(self._history) == HISTORY:
            return self._history[0].revision
        return self._horizon

    def remember(self) -> None:
        """Load the recent past, so that watches go on across a restart."""
        start = max(self._compacted, self.revision - HISTORY)
        events: list[Event] = []
        known: dict[str, Entry] = {}
        for row in self._log.since(0):
            entry = None if row.value is None else _entry(row)
            if row.revision > start:
                event = Event(row.revision, row.key, known.get(row.key), entry)
                if entry is not None or event.before is not None:
                    events.append(event)
            if entry is None:
                known.pop(row.key, None)
            else:
                known[row.key] = entry
        self._history.extend(events)
        self._horizon = start

    async def _write(self, event: Event) -> None:
        self._latest[event.key] = event.now
        created = event.now.revision if event.now and event.before is None else 0
        value = event.now.data if event.now else None
        done = self._loop.create_future()

        def written(error: Exception | None) -> None:
            self._loop.call_soon_threadsafe(self._written, event, error, done)

        self._log.append(Row(event.revision, event.key, created, value), written)
        await done

    def _written(self, event: Event, error: Exception | None, done: asyncio.Future[None]) -> None:
        if error is not None:
            log.critical("log not writable", error=str(error))
            raise SystemExit(1) from error
        bucket = self._bucket(event.key)
        if event.now is None:
            bucket.pop(event.key, None)
            self.deletions += 1
        else:
            bucket[event.key] = event.now
        if self._latest.get(event.key) is event.now:
            self._latest.pop(event.key, None)
        self.revision = event.revision
        self._history.append(event)
        for watch in tuple(self._watches.get(_resource(event.key), ())):
            if event.key.startswith(watch.prefix):
                watch.offer(event)
        self._compact_sometimes()
        if not done.done():
            done.set_result(None)

    def _compact_sometimes(self) -> None:
        self._since_compaction += 1
        if self._since_compaction < COMPACT_EVERY or self.revision <= HISTORY:
            return
        self._since_compaction = 0
        target = self.revision - HISTORY
        self._log.compact(target, lambda _: None)
        log.info("compacted", revision=target)

    def _bucket(self, key: str) -> dict[str, Entry]:
        return self._entries.setdefault(_resource(key), {})

    def _closed(self, watch: Watch) -> None:
        self._watches.get(_resource(watch.prefix), set()).discard(watch)


def _resource(key: str) -> str:
    """Give the part of a key that names the resource: ``/<group>/<plural>/…``."""
    return "/".join(key.split("/", 3)[:3])


def _entry(row: Row) -> Entry:
    assert row.value is not None
    return Entry(row.revision, msgspec.json.decode(row.value), row.value)
