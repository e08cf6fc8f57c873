"""Download of missing file contents from the control plane into the store."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import math
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Sequence,
)
from typing import TypeVar

import grpc
import grpc.aio

from gatehouse.agent.nginx import instance_info
from gatehouse.agent.nginx.apply_errors import ApplyError
from gatehouse.agent.nginx.manifests import ManifestEntry
from gatehouse.agent.nginx.mpi_client import MPIClient
from gatehouse.agent.nginx.revision_store import RevisionStore
from gatehouse.agent.options import CONFIG_DIR
from gatehouse.wire.gatehouse.v1 import batches_pb2
from gatehouse.wire.mpi.v1 import files_pb2
from kube_base.runtime.backoff import BackoffPolicy

_T = TypeVar("_T")

PARALLEL_LARGE = 4

SMALL_BYTES = 4 << 10
"""Size in bytes up to which a file is small. Small files are fetched together, beside the others.
"""

BATCH_KIB = 64
"""Total size in KiB of the small files that are fetched with one call. Each counts as 1 KiB at
least.
"""

SMALL_IN_FLIGHT = 64
"""Total size in KiB of the small files that are fetched at one time at first."""

MAX_SMALL_IN_FLIGHT = 512
"""Limit to which that total grows, by each batch that arrives quickly."""

QUICK_SECONDS = 5.0
"""Time in seconds in which a batch arrives quickly. A busy control plane takes a second for a
response. On a slow link the limit grows by at most what arrives in this time.
"""

MAX_UNARY_BYTES = 64 << 10
"""Size in bytes up to which a file is fetched in one message. Larger ones are streamed.

These limits bound the data in flight: at 10 kB/s it takes 37 s, and all of it is fetched again
after the connection is lost.
"""

_ATTEMPTS = 4
"""Maximum number of attempts for one file."""

_RETRIES = BackoffPolicy(first=0.5, maximum=2.0)
"""Back-off between these attempts."""

_FINAL = (
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.PERMISSION_DENIED,
)


class _InFlight:
    """Limit of the small files that are fetched at one time.

    A control plane that compiles the changes of thousands of objects responds late. Hundreds of
    files that wait for each other's responses delay the changes of other tenants.
    """

    def __init__(self) -> None:
        self._limit = SMALL_IN_FLIGHT
        self._free = asyncio.Semaphore(self._limit)
        self._turn = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def hold(self, taken: int) -> AsyncIterator[None]:
        """Wait until files of `taken` KiB may be fetched."""
        # Two batches with a part of what they need would wait for each other.
        async with self._turn:
            for _ in range(taken):
                await self._free.acquire()
        started = time.monotonic()
        try:
            yield
            if time.monotonic() - started < QUICK_SECONDS:
                self._grow(taken)
        finally:
            self._release(taken)

    def _grow(self, units: int) -> None:
        more = min(units, MAX_SMALL_IN_FLIGHT - self._limit)
        self._limit += more
        self._release(more)

    def _release(self, units: int) -> None:
        for _ in range(units):
            self._free.release()


class FileFetcher:
    """Downloads missing files over the current connection, so it outlives a connection."""

    def __init__(
        self, connection: Callable[[], MPIClient | None], revisions: RevisionStore
    ) -> None:
        self._connection = connection
        self._revisions = revisions
        self._small = _InFlight()

    async def fetch(self, entries: Sequence[ManifestEntry], correlation: str) -> None:
        """Fetch every entry. Raises :class:`ApplyError` naming the first that failed."""
        small = [entry for entry in entries if entry.size <= SMALL_BYTES]
        others = [entry for entry in entries if entry.size > SMALL_BYTES]
        large = asyncio.Semaphore(PARALLEL_LARGE)

        async def fetch_large(entry: ManifestEntry) -> None:
            async with large:
                await self._fetch_one(entry, correlation)

        async def fetch_batch(batch: list[ManifestEntry]) -> None:
            async with self._small.hold(sum(map(_kib, batch))):
                await self._fetch_batch(batch, correlation)

        try:
            await _all([*map(fetch_batch, _batches(small)), *map(fetch_large, others)])
        except BaseException:
            # The link may be a slower one now.
            self._small = _InFlight()
            raise

    async def _fetch_batch(self, batch: Sequence[ManifestEntry], correlation: str) -> None:
        """Fetch entries together, or one by one from a control plane that does not serve that."""
        while len(batch) > 1:
            get = functools.partial(_get_first, batch=batch, correlation=correlation)
            contents = await self._with_retry(batch[0], get)
            if not contents:
                break
            received, batch = batch[: len(contents)], batch[len(contents) :]
            await asyncio.to_thread(self._store, received, contents)
        await _all([self._fetch_one(entry, correlation) for entry in batch])

    async def _fetch_one(self, entry: ManifestEntry, correlation: str) -> None:
        get = functools.partial(_get, entry=entry, correlation=correlation)
        await asyncio.to_thread(self._revisions.put, entry, await self._with_retry(entry, get))

    def _store(self, entries: Sequence[ManifestEntry], contents: Sequence[bytes]) -> None:
        for entry, content in zip(entries, contents, strict=True):
            self._revisions.put(entry, content)

    async def _with_retry(
        self, entry: ManifestEntry, call: Callable[[MPIClient], Awaitable[_T]]
    ) -> _T:
        """Return the result of a call, repeated after errors of the connection.

        Raises :class:`ApplyError` naming `entry`.
        """
        reason = "not connected"
        for attempt in range(_ATTEMPTS):
            if attempt:
                await asyncio.sleep(_RETRIES.delay(attempt))
            connection = self._connection()
            if connection is None:
                continue
            try:
                return await call(connection)
            except grpc.aio.AioRpcError as error:
                reason = f"{error.code().name}: {error.details()}"
                if error.code() in _FINAL:
                    break
            except (OSError, grpc.aio.UsageError, asyncio.InvalidStateError) as error:
                # The channel was closed during the call; there will be another.
                reason = str(error)
        raise ApplyError(f"{entry.path} could not be fetched: {reason}")


def _kib(entry: ManifestEntry) -> int:
    return max(1, math.ceil(entry.size / 1024))


def _batches(entries: Iterable[ManifestEntry]) -> Iterator[list[ManifestEntry]]:
    """Yield the entries in batches of at most :data:`BATCH_KIB`."""
    batch, size = list[ManifestEntry](), 0
    for entry in entries:
        size += _kib(entry)
        if batch and size > BATCH_KIB:
            yield batch
            batch, size = [], _kib(entry)
        batch.append(entry)
    if batch:
        yield batch


async def _all(calls: Iterable[Coroutine[None, None, None]]) -> None:
    """Await all calls. Cancel the others if one fails."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def _get_first(
    connection: MPIClient, batch: Sequence[ManifestEntry], correlation: str
) -> Sequence[bytes]:
    """Download the first entries of a batch, as many as the control plane sends at once.

    Return nothing if it does not serve batches.
    """
    if not connection.serves_batches:
        return ()
    request = batches_pb2.GetFilesRequest(
        message_meta=instance_info.message_metadata(correlation),
        file_metas=map(_file_meta, batch),
    )
    return (await connection.get_files(request))[: len(batch)]


async def _get(connection: MPIClient, entry: ManifestEntry, correlation: str) -> bytes:
    request = files_pb2.GetFileRequest(
        message_meta=instance_info.message_metadata(correlation), file_meta=_file_meta(entry)
    )
    if entry.size <= MAX_UNARY_BYTES:
        return await connection.get_file(request)
    return await connection.get_file_stream(request)


def _file_meta(entry: ManifestEntry) -> files_pb2.FileMeta:
    return files_pb2.FileMeta(
        name=f"{CONFIG_DIR}/{entry.path}",
        hash=base64.b64encode(bytes.fromhex(entry.digest)).decode(),
        permissions="0600" if entry.secret else "0644",
        size=entry.size,
    )
