"""Current state and recent history in memory, and watches without gaps.

Everything runs in one event loop. Readers and watches see changes that an engine has made durable.
A write is answered once they see it.
"""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager

from kube_api_server.storage.entries import CompactedError, StoredEntry, StoreEvent, Watch
from kube_api_server.storage.history import History
from kube_base.types.objects import Object

HISTORY = 10_000
"""Number of recent changes, for the resumption of watches and the continuation of lists."""

HISTORY_BYTES = 64 << 20
"""Maximum size in bytes of the objects of recent changes, as JSON."""


_Listener = Callable[[StoreEvent], None]


class ObjectStore(abc.ABC):
    """Objects by key, such as `/core/services/cafe/tea`."""

    shared = False
    """True if other servers may use the same objects."""

    def __init__(self) -> None:
        self.revision = 0
        """Revision of the last change that readers see."""
        self.full = False
        """True if the last write failed because no space was left."""
        self.stale: list[str] = []
        """Keys whose values must be encrypted again."""
        self._entries: dict[str, dict[str, StoredEntry]] = {}
        self._by_namespace: dict[str, dict[str, StoredEntry]] = {}
        """The same by resource and namespace, so that a list does not visit other namespaces."""
        self._history = History(HISTORY, HISTORY_BYTES)
        self._horizon = 0
        self._watches: dict[str, set[Watch]] = {}
        self._listeners: dict[str, tuple[_Listener, ...]] = {}
        self._global_listeners: tuple[_Listener, ...] = ()

    # Writes, implemented by engines.

    @abc.abstractmethod
    async def put(self, key: str, value: Object, expected: int) -> StoredEntry:
        """Write an object. `expected` is its current revision, 0 if it does not exist.

        The store takes ownership of `value` and sets its resourceVersion. Raises MismatchError,
        StorageFullError, UnavailableError.
        """

    @abc.abstractmethod
    async def delete(self, key: str, expected: int) -> StoredEntry:
        """Remove an object. Return its last state, with the revision of the removal.

        Raises MismatchError, StorageFullError, UnavailableError.
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

    def latest(self, key: str) -> StoredEntry | None:
        """Return an object in the state that the next write must be based on."""
        return self.get(key)

    async def known(self, key: str) -> StoredEntry | None:
        """Return an object like :meth:`latest`. Return None only if no process has written it by
        now.
        """
        entry = self.latest(key)
        if entry is None:
            await self.read_fresh()
            entry = self.latest(key)
        return entry

    async def outdated(self, key: str, entry: StoredEntry) -> bool:
        """Return whether an entry has been overwritten by now, possibly by another process."""
        await self.read_fresh()
        newest = self.latest(key)
        return newest is None or newest.revision != entry.revision

    # Reads.

    def get(self, key: str) -> StoredEntry | None:
        """Return an object as readers see it."""
        return self._bucket(key).get(key)

    def list(self, prefix: str) -> Iterator[tuple[str, StoredEntry]]:
        """Iterate over objects whose key starts with `prefix`, by key.

        `prefix` is that of a resource or of one of its namespaces.
        """
        bucket = self._at(prefix)
        return ((key, bucket[key]) for key in sorted(bucket))

    def at(self, prefix: str, revision: int) -> Iterator[tuple[str, StoredEntry]]:
        """Iterate over objects as of a revision, by key. Raises CompactedError."""
        if revision == self.revision:
            return self.list(prefix)
        if revision < self.compacted_revision:
            raise CompactedError
        result = dict(self.list(prefix))
        for event in reversed(self._history):
            if event.revision <= revision:
                break
            if not event.key.startswith(prefix):
                continue
            if event.before is None:
                result.pop(event.key, None)
            else:
                result[event.key] = event.before
        return iter(sorted(result.items()))

    def count(self, prefix: str) -> int:
        """Return the number of objects of a resource, or of one of its namespaces."""
        return len(self._at(prefix))

    def counts(self) -> dict[str, int]:
        """Return the number of objects by resource, which is named by a part of their keys."""
        return {resource: len(bucket) for resource, bucket in self._entries.items()}

    def resources(self) -> Iterator[str]:
        """Iterate over the key prefixes of all resources that have or had objects."""
        return (f"{resource}/" for resource in tuple(self._entries))

    @property
    def compacted_revision(self) -> int:
        """Oldest revision from which a watch can be resumed."""
        return max(self._horizon, self._history.evicted)

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

    def listen(self, prefix: str, listener: _Listener) -> None:
        """Call `listener` with every change of a resource, before its writer is answered."""
        resource = _resource(prefix)
        self._listeners[resource] = (*self._listeners.get(resource, ()), listener)

    def listen_all(self, listener: _Listener) -> None:
        """Call `listener` with every change of any resource."""
        self._global_listeners = (*self._global_listeners, listener)

    # Shared by engines.

    def _load(self, key: str, loaded: StoredEntry) -> None:
        self._bucket(key)[key] = loaded
        self._by_namespace.setdefault(key.rpartition("/")[0], {})[key] = loaded

    def _publish(self, event: StoreEvent) -> None:
        """Make a durable change visible to readers and watches."""
        namespace = event.key.rpartition("/")[0]
        if event.now is None:
            self._bucket(event.key).pop(event.key, None)
            remaining = self._by_namespace.get(namespace, {})
            remaining.pop(event.key, None)
            if not remaining:
                self._by_namespace.pop(namespace, None)
        else:
            self._load(event.key, event.now)
        self.revision = event.revision
        self._history.append(event)
        resource = _resource(event.key)
        for listener in (*self._listeners.get(resource, ()), *self._global_listeners):
            listener(event)
        for prefix in {f"{resource}/", f"{namespace}/"}:
            for watch in tuple(self._watches.get(prefix, ())):
                watch.offer(event)

    def _at(self, prefix: str) -> Mapping[str, StoredEntry]:
        """Return the objects of a resource, or of one of its namespaces."""
        scope = prefix.removesuffix("/")
        is_resource = scope == _resource(prefix)
        return (self._entries if is_resource else self._by_namespace).get(scope, {})

    def _bucket(self, key: str) -> dict[str, StoredEntry]:
        resource = _resource(key)
        result = self._entries.get(resource)
        if result is None:
            result = self._entries[resource] = {}
        return result

    def _remove_watch(self, watch: Watch) -> None:
        watching = self._watches.get(watch.prefix)
        if watching is not None:
            watching.discard(watch)
            if not watching:
                del self._watches[watch.prefix]


def _resource(key: str) -> str:
    """Return the part of a key that names the resource: `/<group>/<plural>`."""
    return key[: key.index("/", key.index("/", 1) + 1)]
