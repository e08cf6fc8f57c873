"""Contents of a store: entries, events, and watches."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

import msgspec

from kube_base.types.objects import Object

QUEUE = 10_000
"""Maximum number of queued events of a watcher. Slower watchers are cut off."""

QUEUE_BYTES = 64 << 20
"""Maximum size in bytes of the objects of a watcher's queued events, as JSON."""


class StoredEntry(msgspec.Struct, frozen=True, gc=False):
    """An object as stored. Never change `value`."""

    revision: int
    value: Object
    data: bytes
    """`value` as JSON."""


class StoreEvent(msgspec.Struct):
    """A change. `now` is None for a deletion, `before` is None for a creation."""

    revision: int
    key: str
    before: StoredEntry | None
    now: StoredEntry | None

    @property
    def size(self) -> int:
        """Size in bytes of the object as JSON."""
        entry = self.now or self.before
        return len(entry.data) if entry is not None else 0


class CompactedError(Exception):
    """The revision is older than the retained history."""


class MismatchError(Exception):
    """The object does not have the revision that the writer expected."""


class UnavailableError(Exception):
    """The engine is unreachable, or did not confirm a write."""


class StorageFullError(UnavailableError):
    """No space is left for a write. Nothing of it is stored, and a later write may succeed."""


class DamagedStorageError(UnavailableError):
    """A database that cannot be read. The message names the file and the remedy."""


class StorageAddressError(ValueError):
    """An invalid address of a storage."""


def entry(revision: int, value: Object) -> StoredEntry:
    """Build an entry of an object and set its resourceVersion to the revision."""
    value["metadata"]["resourceVersion"] = str(revision)
    return StoredEntry(revision, value, msgspec.json.encode(value))


def removed(before: StoredEntry, revision: int) -> StoredEntry:
    """Return the last state of an object, with the revision of its removal."""
    metadata = {**before.value["metadata"], "resourceVersion": str(revision)}
    value = {**before.value, "metadata": metadata}
    return StoredEntry(revision, value, msgspec.json.encode(value))


class Watch:
    """Events of keys under a prefix after a revision, in order and without gaps."""

    def __init__(self, prefix: str, on_close: Callable[[Watch], None]) -> None:
        self.prefix = prefix
        self.cut = False
        """Set if the reader was too slow. The watch then gets no further events."""
        self._events: deque[StoreEvent] = deque()
        self._bytes = 0
        self._more = asyncio.Event()
        self._on_close = on_close

    def offer(self, event: StoreEvent) -> None:
        """Add an event."""
        if self.cut:
            return
        if len(self._events) >= QUEUE or self._bytes > QUEUE_BYTES:
            self.end()
        else:
            self._events.append(event)
            self._bytes += event.size
        self._more.set()

    def end(self) -> None:
        """Cut the reader off. It has to list again."""
        self.cut = True
        self._clear()
        self._more.set()

    @property
    def waiting(self) -> bool:
        """Return whether there are events that :meth:`next` has not returned yet."""
        return bool(self._events)

    async def next(self) -> list[StoreEvent]:
        """Wait for events. Return all queued events; none if cut off."""
        await self._more.wait()
        self._more.clear()
        if self.cut:
            self._more.set()
        events = list(self._events)
        self._clear()
        return events

    def _clear(self) -> None:
        self._events.clear()
        self._bytes = 0

    def close(self) -> None:
        """Stop the watch."""
        self._on_close(self)
