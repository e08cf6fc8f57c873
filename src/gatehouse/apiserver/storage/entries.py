"""What a store holds, and the streams in which its changes are handed out."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

Object = dict[str, Any]

QUEUE = 10_000
"""Events that may wait for a slow watcher before it is cut off."""


class Entry(msgspec.Struct, frozen=True, gc=False):
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


class UnavailableError(Exception):
    """The engine cannot be reached, or did not say whether it took a write."""


class AddressError(ValueError):
    """The address of a storage that says nothing sensible."""


def entry(revision: int, value: Object) -> Entry:
    """Make an entry of an object, which is given the revision as its resourceVersion."""
    value["metadata"]["resourceVersion"] = str(revision)
    return Entry(revision, value, msgspec.json.encode(value))


def removed(before: Entry, revision: int) -> Entry:
    """Give the last state of an object, with the revision of its removal."""
    metadata = {**before.value["metadata"], "resourceVersion": str(revision)}
    value = {**before.value, "metadata": metadata}
    return Entry(revision, value, msgspec.json.encode(value))


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
            self.end()
        else:
            self._events.append(event)
        self._more.set()

    def end(self) -> None:
        """Cut the reader off: it has to begin anew."""
        self.cut = True
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
