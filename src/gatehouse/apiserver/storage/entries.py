"""Contents of a store: entries, events, and watches."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

Object = dict[str, Any]

QUEUE = 10_000
"""Maximum number of queued events of a watcher. Slower watchers are cut off."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """An object as stored. Never change `value`."""

    revision: int
    value: Object
    data: bytes
    """`value` as JSON."""


class Event(msgspec.Struct):
    """A change. `now` is None for a deletion, `before` is None for a creation."""

    revision: int
    key: str
    before: Entry | None
    now: Entry | None


class CompactedError(Exception):
    """The revision is older than the retained history."""


class MismatchError(Exception):
    """The object does not have the revision that the writer expected."""


class UnavailableError(Exception):
    """The engine is unreachable, or did not confirm a write."""


class AddressError(ValueError):
    """An invalid address of a storage."""


def entry(revision: int, value: Object) -> Entry:
    """Build an entry of an object and set its resourceVersion to the revision."""
    value["metadata"]["resourceVersion"] = str(revision)
    return Entry(revision, value, msgspec.json.encode(value))


def removed(before: Entry, revision: int) -> Entry:
    """Return the last state of an object, with the revision of its removal."""
    metadata = {**before.value["metadata"], "resourceVersion": str(revision)}
    value = {**before.value, "metadata": metadata}
    return Entry(revision, value, msgspec.json.encode(value))


class Watch:
    """Events of keys under a prefix after a revision, in order and without gaps."""

    def __init__(self, prefix: str, on_close: Callable[[Watch], None]) -> None:
        self.prefix = prefix
        self.cut = False
        """Set if the reader was too slow. The watch then gets no further events."""
        self._events: deque[Event] = deque()
        self._more = asyncio.Event()
        self._on_close = on_close

    def offer(self, event: Event) -> None:
        """Add an event."""
        if self.cut:
            return
        if len(self._events) >= QUEUE:
            self.end()
        else:
            self._events.append(event)
        self._more.set()

    def end(self) -> None:
        """Cut the reader off. It has to list again."""
        self.cut = True
        self._more.set()

    @property
    def waiting(self) -> bool:
        """Return whether there are events that :meth:`next` has not returned yet."""
        return bool(self._events)

    async def next(self) -> list[Event]:
        """Wait for events. Return all queued events; none if cut off."""
        await self._more.wait()
        self._more.clear()
        if self.cut:
            self._more.set()
        events = list(self._events)
        self._events.clear()
        return events

    def close(self) -> None:
        """Stop the watch."""
        self._on_close(self)
