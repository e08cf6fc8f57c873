"""Current state and recent history in memory, and watches without gaps.

Everything runs in one event loop. Readers and watches see changes that an engine has made durable.
A write is answered once they see it.
"""

from __future__ import annotations

import abc
import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any

from gatehouse.apiserver.storage.entries import CompactedError, Entry, Event, Watch

Object = dict[str, Any]

HISTORY = 10_000
"""Number of recent changes, for the resumption of watches and the continuation of lists."""


Listener = Callable[[Event], None]


class Store(abc.ABC):
    """Objects by key, such as `/core/services/cafe/tea`."""

    shared = False
    """True if other servers may use the same objects."""

    def __init__(self) -> None:
        self.revision = 0
        """Revision of the last change that readers see."""
        self.stale: list[str] = []
        """Keys whose values must be encrypted again."""
        self._entries: dict[str, dict[str, Entry]] = {}
        self._history: deque[Event] = deque(maxlen=HISTORY)
        self._horizon = 0
        self._watches: dict[str, set[Watch]] = {}
        self._listeners: dict[str, tuple[Listener, ...]] = {}
        self._global_listeners: tuple[Listener, ...] = ()

    # Writes, implemented by engines.

    @abc.abstractmethod
    async def put(self, key: str, value: Object, expected: int) -> Entry:
        """Write an object. `expected` is its current revision, 0 if it does not exist.

        The store takes ownership of `value` and sets its resourceVersion. Raises MismatchError,
        UnavailableError.
        """

    @abc.abstractmethod
    async def delete(self, key: str, expected: int) -> Entry:
        """Remove an object. Return its last state, with the revision of the removal.

        Raises MismatchError, UnavailableError.
        """

    @abc.abstractmethod
    async def close(self) -> None:
        """Complete queued writes and close the engine."""

    @abc.abstractmethod
    async def check(self) -> None:
        """Raise UnavailableError unless the engine accepts requests."""

    async def read_fresh(self) -> None:
        """Wait until readers see every write that was answered before this call."""
        return

    def sync(self, key: str) -> AbstractAsyncContextManager[None]:  # noqa: ARG002
        """Wait until no other task of this process is between reading and writing an object.

        Does not wait if :meth:`latest` includes writes in progress.
        """
        return contextlib.nullcontext()

    def latest(self, key: str) -> Entry | None:
        """Return an object in the state that the next write must be based on."""
        return self.get(key)

    async def known(self, key: str) -> Entry | None:
        """Return an object like :meth:`latest`. Return None only if no process has written it by
        now.
        """
        found = self.latest(key)
        if found is None:
            await self.read_fresh()
            found = self.latest(key)
        return found

    async def outdated(self, key: str, entry: Entry) -> bool:
        """Return whether an entry has been overwritten by now, possibly by another process."""
        await self.read_fresh()
        found = self.latest(key)
        return found is None or found.revision != entry.revision

    # Reads.

    def get(self, key: str) -> Entry | None:
        """Return an object as readers see it."""
        return self._bucket(key).get(key)

    def list(self, prefix: str) -> Iterator[tuple[str, Entry]]:
        """Iterate over objects whose key starts with `prefix`, by key."""
        bucket = self._bucket(prefix)
        return ((key, bucket[key]) for key in sorted(bucket) if key.startswith(prefix))

    def at(self, prefix: str, revision: int) -> Iterator[tuple[str, Entry]]:
        """Iterate over objects as of a revision, by key. Raises CompactedError."""
        if revision == self.revision:
            return self.list(prefix)
        if revision < self.compacted_revision:
            raise CompactedError
        found = dict(self.list(prefix))
        for event in reversed(self._history):
            if event.revision <= revision:
                break
            if not event.key.startswith(prefix):
                continue
            if event.before is None:
                found.pop(event.key, None)
            else:
                found[event.key] = event.before
        return iter(sorted(found.items()))

    def count(self, prefix: str) -> int:
        """Return the number of objects of a resource."""
        return len(self._bucket(prefix))

    def counts(self) -> dict[str, int]:
        """Return the number of objects by resource, which is named by a part of their keys."""
        return {resource: len(bucket) for resource, bucket in self._entries.items()}

    def resources(self) -> Iterator[str]:
        """Iterate over the key prefixes of all resources that have or had objects."""
        return (f"{resource}/" for resource in tuple(self._entries))

    @property
    def compacted_revision(self) -> int:
        """Oldest revision from which a watch can be resumed."""
        if len(self._history) == HISTORY:
            return self._history[0].revision
        return self._horizon

    def watch(self, prefix: str, revision: int) -> Watch:
        """Watch changes after `revision`. `prefix` is that of a resource or of one of its
        namespaces.

        Raises CompactedError.
        """
        if revision < self.compacted_revision:
            raise CompactedError
        watch = Watch(prefix, self._remove_watch)
        if revision < self.revision:
            for event in self._history:
                if event.revision > revision and event.key.startswith(prefix):
                    watch.offer(event)
        self._watches.setdefault(prefix, set()).add(watch)
        return watch

    def listen(self, prefix: str, listener: Listener) -> None:
        """Call `listener` with every change of a resource, before its writer is answered."""
        resource = _resource(prefix)
        self._listeners[resource] = (*self._listeners.get(resource, ()), listener)

    def listen_all(self, listener: Listener) -> None:
        """Call `listener` with every change of any resource."""
        self._global_listeners = (*self._global_listeners, listener)

    # Shared by engines.

    def _load(self, key: str, loaded: Entry) -> None:
        self._bucket(key)[key] = loaded

    def _publish(self, event: Event) -> None:
        """Make a durable change visible to readers and watches."""
        bucket = self._bucket(event.key)
        if event.now is None:
            bucket.pop(event.key, None)
        else:
            bucket[event.key] = event.now
        self.revision = event.revision
        self._history.append(event)
        resource = _resource(event.key)
        for listener in (*self._listeners.get(resource, ()), *self._global_listeners):
            listener(event)
        namespace = event.key.rpartition("/")[0]
        for prefix in {f"{resource}/", f"{namespace}/"}:
            for watch in tuple(self._watches.get(prefix, ())):
                watch.offer(event)

    def _bucket(self, key: str) -> dict[str, Entry]:
        resource = _resource(key)
        found = self._entries.get(resource)
        if found is None:
            found = self._entries[resource] = {}
        return found

    def _remove_watch(self, watch: Watch) -> None:
        watching = self._watches.get(watch.prefix)
        if watching is not None:
            watching.discard(watch)
            if not watching:
                del self._watches[watch.prefix]


def _resource(key: str) -> str:
    """Return the part of a key that names the resource: `/<group>/<plural>`."""
    return key[: key.index("/", key.index("/", 1) + 1)]
