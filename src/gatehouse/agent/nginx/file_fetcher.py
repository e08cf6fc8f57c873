"""Brings missing contents from the control plane into the store."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Sequence

import grpc
import grpc.aio

from gatehouse.agent.nginx import instance_info
from gatehouse.agent.nginx.manifests import Entry
from gatehouse.agent.nginx.mpi_client import MPIClient
from gatehouse.agent.nginx.revision_store import RevisionStore
from gatehouse.agent.nginx.staging import ApplyError
from gatehouse.agent.options import CONFIG_DIR
from gatehouse.wire.mpi.v1 import files_pb2

PARALLEL = 4

SMALL = 4 << 10
PARALLEL_SMALL = 16
"""Bytes up to which a file is small, and how many of those are fetched beside the others: a control
plane that has thousands of statuses to write may take 0.2 s to answer."""

UNARY_MAX = 64 << 10
"""Bytes up to which a file is fetched in one message; larger ones are streamed.

All bound what is on its way: at 10 kB/s it is 32 s, and all of it is fetched anew when the
connection is lost."""

ATTEMPTS = 4
PAUSE_SECONDS = 0.5
"""Tries of one file, and the pause before the second; it doubles."""

_FINAL = (
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.PERMISSION_DENIED,
)


class Fetcher:
    """Fetches over whichever connection there is at the moment, so it outlives one."""

    def __init__(
        self, connection: Callable[[], MPIClient | None], generations: RevisionStore
    ) -> None:
        self._connection = connection
        self._generations = generations

    async def fetch(self, entries: Sequence[Entry], correlation: str) -> None:
        """Fetch every entry; raises :class:`ApplyError` naming the first that failed."""
        large, small = asyncio.Semaphore(PARALLEL), asyncio.Semaphore(PARALLEL_SMALL)

        async def one(entry: Entry) -> None:
            async with small if entry.size <= SMALL else large:
                content = await self._persist(entry, correlation)
            await asyncio.to_thread(self._generations.put, entry, content)

        tasks = [asyncio.ensure_future(one(entry)) for entry in entries]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def _persist(self, entry: Entry, correlation: str) -> bytes:
        pause, reason = PAUSE_SECONDS, "there is no connection"
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(pause)
                pause *= 2
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
                # The channel was closed under the call: there will be another.
                reason = str(error)
        raise ApplyError(f"{entry.path} could not be fetched: {reason}")


async def _get(connection: MPIClient, entry: Entry, correlation: str) -> bytes:
    request = files_pb2.GetFileRequest(
        message_meta=instance_info.meta(correlation),
        file_meta=files_pb2.FileMeta(
            name=f"{CONFIG_DIR}/{entry.path}",
            hash=base64.b64encode(bytes.fromhex(entry.digest)).decode(),
            permissions="0600" if entry.secret else "0644",
            size=entry.size,
        ),
    )
    if entry.size <= UNARY_MAX:
        return await connection.get_file(request)
    return await connection.get_file_stream(request)
