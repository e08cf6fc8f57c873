"""Download of missing file contents from the control plane into the store."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import math
import time
from collections.abc import AsyncIterator, Callable, Sequence

import grpc
import grpc.aio

from gatehouse.agent.nginx import instance_info
from gatehouse.agent.nginx.apply_errors import ApplyError
from gatehouse.agent.nginx.manifests import ManifestEntry
from gatehouse.agent.nginx.mpi_client import MPIClient
from gatehouse.agent.nginx.revision_store import RevisionStore
from gatehouse.agent.options import CONFIG_DIR
from gatehouse.runtime.backoff import BackoffPolicy
from gatehouse.wire.mpi.v1 import files_pb2

PARALLEL_LARGE = 4

SMALL_BYTES = 4 << 10
"""Size in bytes up to which a file is small. Small files are fetched beside the others."""

SMALL_IN_FLIGHT = 64
"""Total size in KiB of the small files that are fetched at one time at first. Each counts as 1 KiB
at least.
"""

MAX_SMALL_IN_FLIGHT = 512
"""Limit to which that total grows, by each file that arrives quickly. A control plane of Gatehouse
handles 100 calls of a connection at a time; others wait in the agent.
"""

QUICK_SECONDS = 5.0
"""Time in seconds in which a small file arrives quickly. A busy control plane takes a second for a
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
    async def hold(self, size: int) -> AsyncIterator[None]:
        """Wait until a file of `size` bytes may be fetched."""
        taken = max(1, math.ceil(size / 1024))
        # Two files with a part of what they need would wait for each other.
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
        large, small = asyncio.Semaphore(PARALLEL_LARGE), self._small

        async def fetch_one(entry: ManifestEntry) -> None:
            async with small.hold(entry.size) if entry.size <= SMALL_BYTES else large:
                content = await self._fetch_with_retry(entry, correlation)
            await asyncio.to_thread(self._revisions.put, entry, content)

        tasks = [asyncio.ensure_future(fetch_one(entry)) for entry in entries]
        try:
            await asyncio.gather(*tasks)
        except BaseException:
            # The link may be a slower one now.
            self._small = _InFlight()
            raise
        finally:
            for task in tasks:
                task.cancel()

    async def _fetch_with_retry(self, entry: ManifestEntry, correlation: str) -> bytes:
        reason = "not connected"
        for attempt in range(_ATTEMPTS):
            if attempt:
                await asyncio.sleep(_RETRIES.delay(attempt))
            connection = self._connection()
            if connection is None:
                continue
            try:
                return await _get(connection, entry, correlation)
            except grpc.aio.AioRpcError as error:
                reason = f"{error.code().name}: {error.details()}"
                if error.code() in _FINAL:
                    break
            except (OSError, grpc.aio.UsageError, asyncio.InvalidStateError) as error:
                # The channel was closed during the call; there will be another.
                reason = str(error)
        raise ApplyError(f"{entry.path} could not be fetched: {reason}")


async def _get(connection: MPIClient, entry: ManifestEntry, correlation: str) -> bytes:
    request = files_pb2.GetFileRequest(
        message_meta=instance_info.message_metadata(correlation),
        file_meta=files_pb2.FileMeta(
            name=f"{CONFIG_DIR}/{entry.path}",
            hash=base64.b64encode(bytes.fromhex(entry.digest)).decode(),
            permissions="0600" if entry.secret else "0644",
            size=entry.size,
        ),
    )
    if entry.size <= MAX_UNARY_BYTES:
        return await connection.get_file(request)
    return await connection.get_file_stream(request)
