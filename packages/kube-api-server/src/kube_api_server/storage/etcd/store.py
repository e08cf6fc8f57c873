"""Store in etcd, followed by one watch. Several servers share one history.

The resourceVersion of an object is the revision of its last change. An offset is added if the
objects came from another engine, so that versions never decrease.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import os
import weakref
from collections.abc import AsyncIterator, Iterator
from typing import Any, Self

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
from kube_api_server.storage.etcd import address as addresses
from kube_api_server.storage.etcd.client import EtcdClient, EtcdCompactedError, KeyChange
from kube_api_server.storage.names import Storage
from kube_api_server.storage.store import HISTORY, ObjectStore
from kube_base.runtime.time_limits import scaled
from kube_base.types.objects import Object

log = structlog.get_logger("apiserver")

OFFSET = b"/offset"
OBJECTS = b"/objects"
PROGRESS_KEY = b"/internal/mark"
"""Key that is written only to cause a watch event."""

COMPACT_SECONDS = 300.0
MARK_SECONDS = 0.02
"""Seconds without an event after which one is caused by a write."""

_RETRY_SECONDS = 0.2
VISIBLE_SECONDS = scaled(10.0)
"""Timeout in seconds until a write of this process must return through the watch."""


class EtcdStore(ObjectStore):
    """Store in an etcd."""

    shared = True

    def __init__(self, client: EtcdClient, prefix: str, cipher: IdentityTransformer) -> None:
        super().__init__()
        self._client, self._cipher = client, cipher
        self._root = prefix.encode()
        self._offset = 0
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []
        self._count = 0
        self._revision_request: asyncio.Task[int] | None = None
        self._next_revision_request: asyncio.Task[int] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    @classmethod
    async def open(cls, storage: Storage, cipher: IdentityTransformer) -> Self:
        """Connect and load all objects. Raises ValueError, UnavailableError."""
        address = addresses.parse_etcd_address(storage.address, storage.names)
        store = cls(EtcdClient(address), address.prefix, cipher)
        try:
            await store._start()
        except BaseException:
            await store._client.close()
            raise
        return store

    # Writes.

    async def put(self, key: str, value: Object, expected: int) -> StoredEntry:
        """Write an object, and wait until it is durable and visible."""
        metadata = {k: v for k, v in value["metadata"].items() if k != "resourceVersion"}
        data = msgspec.json.encode({**value, "metadata": metadata})
        sealed = self._cipher.encrypt(key, data)
        with self._space():
            revision = await self._client.put(self._key(key), sealed, self._remote_entry(expected))
        if revision is None:
            raise MismatchError(key)
        await self._visible(revision + self._offset)
        return entries.entry(revision + self._offset, value)

    async def delete(self, key: str, expected: int) -> StoredEntry:
        """Remove an object, and wait until the removal is durable and visible."""
        current = self.get(key)
        with self._space():
            revision = await self._client.delete(self._key(key), self._remote_entry(expected))
        if revision is None or current is None or current.revision != expected:
            raise MismatchError(key)
        await self._visible(revision + self._offset)
        return entries.removed(current, revision + self._offset)

    @contextlib.contextmanager
    def _space(self) -> Iterator[None]:
        """Record whether a write had space."""
        try:
            yield
        except StorageFullError:
            self.full = True
            raise
        self.full = False

    def _remote_entry(self, revision: int) -> int:
        return revision - self._offset if revision else 0

    def _key(self, key: str) -> bytes:
        return self._root + OBJECTS + key.encode()

    @contextlib.asynccontextmanager
    async def sync(self, key: str) -> AsyncIterator[None]:
        """Lock the key within this process: of concurrent writers etcd would reject all but one."""
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        async with lock:
            yield

    # Reads.

    async def read_fresh(self) -> None:
        """Read the newest revision and wait until it is visible. Concurrent callers share a
        request.
        """
        if self._revision_request is None or self._revision_request.done():
            self._revision_request = asyncio.create_task(self._client.revision())
            request = self._revision_request
        else:
            # The request in flight may have been answered before this call, so send another one.
            if self._next_revision_request is None or self._next_revision_request.done():
                self._next_revision_request = asyncio.create_task(
                    self._request_progress(self._revision_request)
                )
            request = self._next_revision_request
        await self._visible(await asyncio.shield(request) + self._offset)

    async def _request_progress(self, earlier: asyncio.Task[int]) -> int:
        await asyncio.wait({earlier})
        return await self._client.revision()

    async def check(self) -> None:
        """Check that etcd responds."""
        await self._client.revision()

    async def close(self) -> None:
        """Stop all tasks and close the connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.close()

    async def _visible(self, revision: int) -> None:
        """Wait until readers see a revision. Raises UnavailableError."""
        if self.revision >= revision:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._waiters, (revision, self._count, future))
        done, _ = await asyncio.wait({future}, timeout=MARK_SECONDS)
        if done:
            return
        # Other keys in etcd moved the revision. A write under our prefix makes the watch report it.
        # (etcd's own progress notifications may run ahead of events before 3.4.25 and 3.5.8.)
        await self._client.touch(self._root + OBJECTS + PROGRESS_KEY)
        try:
            async with asyncio.timeout(VISIBLE_SECONDS):
                await future
        except TimeoutError as error:
            raise UnavailableError("timeout waiting for the watch of etcd") from error

    def _advance(self, revision: int) -> None:
        self.revision = max(self.revision, revision)
        while self._waiters and self._waiters[0][0] <= self.revision:
            future = heapq.heappop(self._waiters)[2]
            if not future.done():
                future.set_result(None)

    # Watch.

    async def _start(self) -> None:
        await self._load_all()
        # Watch events before this revision are history.
        mark = await self._client.touch(self._root + OBJECTS + PROGRESS_KEY)
        self._tasks = [asyncio.create_task(self._follow()), asyncio.create_task(self._compact())]
        await self._visible(mark + self._offset)

    async def _load_all(self) -> None:
        _, pairs = await self._client.list_all(self._root + OFFSET)
        self._offset = int(pairs[0].value) if pairs else 0
        revision, items = await self._client.list_all(self._root + OBJECTS)
        self._entries.clear()
        self._by_namespace.clear()
        for item in items:
            key = item.key[len(self._root + OBJECTS) :].decode()
            if key == PROGRESS_KEY.decode():
                continue
            if self._cipher.needs_reencryption(key, item.value):
                self.stale.append(key)
            self._load(key, self._entry(key, item.value, item.revision))
        self.revision = self._horizon = revision + self._offset

    def _entry(self, key: str, value: bytes, revision: int) -> StoredEntry:
        decoded: Any = msgspec.json.decode(self._cipher.decrypt(key, value))
        return entries.entry(revision + self._offset, decoded)

    async def _follow(self) -> None:
        """Follow changes until cancelled. Starts in the past, so that watches can be resumed."""
        loaded = self.revision - self._offset
        start = max(1, loaded - HISTORY + 1)
        while True:
            if start <= loaded:
                self._horizon = start - 1 + self._offset
            try:
                async for changes in self._client.watch(self._root + OBJECTS, start).batches():
                    for change in changes:
                        self._process_change(change)
                        start = change.revision + 1
                    self._advance(start - 1 + self._offset)
            except EtcdCompactedError as error:
                if start <= loaded:
                    start = error.revision
                    continue
                log.warning("etcd compacted unseen revisions, reloading all objects")
                start = await self._reload()
            except UnavailableError as error:
                log.warning("etcd watch interrupted", error=str(error))
                await asyncio.sleep(_RETRY_SECONDS)

    def _process_change(self, change: KeyChange) -> None:
        key = change.key[len(self._root + OBJECTS) :].decode()
        if key == PROGRESS_KEY.decode():
            return
        revision = change.revision + self._offset
        try:
            now = None if change.value is None else self._entry(key, change.value, change.revision)
            if revision > self.revision:
                self._publish(StoreEvent(revision, key, self.get(key), now))
                return
            # History from before the objects were loaded.
            before = None
            if change.before is not None:
                before = self._entry(key, change.before, change.before_revision)
        except EncryptionError as error:
            if revision > self.revision:
                # Another server has a key that this one lacks, so its writes cannot be served.
                log.critical("change cannot be decrypted, exiting", error=str(error))
                os._exit(1)
            self._history.clear()
            self._horizon = revision
            return
        if now is not None or before is not None:
            self._history.append(StoreEvent(revision, key, before, now))

    async def _reload(self) -> int:
        """Load all objects again after a gap. Watchers are cut off and must list again."""
        while True:
            try:
                await self._load_all()
                break
            except UnavailableError:
                await asyncio.sleep(_RETRY_SECONDS)
        self._history.clear()
        for watching in list(self._watches.values()):
            for watch in list(watching):
                watch.end()
        self._advance(self.revision)
        return self.revision - self._offset + 1

    async def _compact(self) -> None:
        """Compact etcd periodically. Every server does so; repeated compaction is harmless."""
        while True:
            target = self.revision - self._offset - HISTORY
            await asyncio.sleep(COMPACT_SECONDS)
            try:
                if target > 0:
                    await self._client.compact(target)
            except UnavailableError as error:
                log.warning("etcd not compacted", error=str(error))
