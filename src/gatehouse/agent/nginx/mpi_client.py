"""MPI client: the RPCs of the control plane on one channel."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterable, Iterator, Sequence
from typing import Any

import grpc
import grpc.aio

from gatehouse.agent.channel import Token, open_channel
from gatehouse.agent.options import AgentOptions
from gatehouse.wire.gatehouse.v1 import batches_pb2
from gatehouse.wire.mpi.v1 import command_pb2, files_pb2
from kube_base.runtime.time_limits import scaled

UNARY_SECONDS = scaled(10.0)
DOWNLOAD_SECONDS = scaled(60.0)
"""Timeouts in seconds as in NGINX Agent: of a unary call, and of each chunk of a stream."""

Requests = grpc.aio.StreamStreamCall[
    command_pb2.DataPlaneResponse, command_pb2.ManagementPlaneRequest
]
"""Stream of the control plane's requests."""

Metadata = tuple[tuple[str, str], ...]


@contextlib.contextmanager
def _closed_as_error() -> Iterator[None]:
    """Raise ConnectionError if the channel is closed during a call.

    gRPC raises CancelledError then, which would silently end a task that nothing has cancelled.
    """
    try:
        yield
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise ConnectionError("channel closed during the call") from None


class MPIClient:
    """One channel, with the credentials that were current when it was created."""

    def __init__(self, options: AgentOptions, token: Token | None, resource_id: str) -> None:
        """Create the channel, which connects at its first call. Raises OSError."""
        self._token = token
        self._labels = tuple((key.lower(), value) for key, value in options.labels.items())
        self._resource_id = resource_id
        self._channel = open_channel(options)
        self.serves_batches = True
        """False once the control plane has responded that it does not have :meth:`get_files`."""

    async def close(self) -> None:
        """Close the channel and end its calls."""
        await self._channel.close()

    def _metadata(self) -> Metadata:
        if self._token is None:
            return self._labels
        own = (("authorization", self._token.read()), ("uuid", self._resource_id))
        return (*own, *self._labels)

    async def _unary(self, path: str, request: Any, response: Any, seconds: float) -> Any:
        method: Any = self._channel.unary_unary(
            path,
            request_serializer=type(request).SerializeToString,
            response_deserializer=response.FromString,
        )
        with _closed_as_error():
            return await method(request, metadata=self._metadata(), timeout=seconds)

    async def create_connection(self, request: command_pb2.CreateConnectionRequest) -> None:
        """Register this agent. Like all calls below, raises grpc.aio.AioRpcError or OSError."""
        path = "/mpi.v1.CommandService/CreateConnection"
        await self._unary(path, request, command_pb2.CreateConnectionResponse, UNARY_SECONDS)

    async def update_status(self, request: command_pb2.UpdateDataPlaneStatusRequest) -> None:
        """Report the current resource and its instances."""
        path = "/mpi.v1.CommandService/UpdateDataPlaneStatus"
        await self._unary(path, request, command_pb2.UpdateDataPlaneStatusResponse, UNARY_SECONDS)

    async def update_health(self, request: command_pb2.UpdateDataPlaneHealthRequest) -> None:
        """Report the health of the instances."""
        path = "/mpi.v1.CommandService/UpdateDataPlaneHealth"
        await self._unary(path, request, command_pb2.UpdateDataPlaneHealthResponse, UNARY_SECONDS)

    async def update_overview(
        self, request: files_pb2.UpdateOverviewRequest
    ) -> files_pb2.UpdateOverviewResponse:
        """Report the applied files."""
        response: files_pb2.UpdateOverviewResponse = await self._unary(
            "/mpi.v1.FileService/UpdateOverview",
            request,
            files_pb2.UpdateOverviewResponse,
            UNARY_SECONDS,
        )
        return response

    async def get_file(self, request: files_pb2.GetFileRequest) -> bytes:
        """Download a file in one message."""
        response: files_pb2.GetFileResponse = await self._unary(
            "/mpi.v1.FileService/GetFile", request, files_pb2.GetFileResponse, DOWNLOAD_SECONDS
        )
        return response.contents.contents

    async def get_files(self, request: batches_pb2.GetFilesRequest) -> Sequence[bytes]:
        """Download the first files of a request in one message; none if :attr:`serves_batches`
        becomes false."""
        path, response = "/gatehouse.v1.FileService/GetFiles", batches_pb2.GetFilesResponse
        try:
            message = await self._unary(path, request, response, DOWNLOAD_SECONDS)
        except grpc.aio.AioRpcError as error:
            if error.code() != grpc.StatusCode.UNIMPLEMENTED:
                raise
            self.serves_batches = False
            return ()
        contents: Sequence[bytes] = message.contents
        return contents

    async def get_file_stream(self, request: files_pb2.GetFileRequest) -> bytes:
        """Download a file in chunks, joined in the order of their IDs."""
        method: Any = self._channel.unary_stream(
            "/mpi.v1.FileService/GetFileStream",
            request_serializer=files_pb2.GetFileRequest.SerializeToString,
            response_deserializer=files_pb2.FileDataChunk.FromString,
        )
        chunks: dict[int, bytes] = {}
        call = method(request, metadata=self._metadata())
        try:
            while True:
                with _closed_as_error():
                    async with asyncio.timeout(DOWNLOAD_SECONDS):
                        chunk = await call.read()
                if chunk is grpc.aio.EOF:
                    break
                if chunk.HasField("content"):
                    chunks[chunk.content.chunk_id] = chunk.content.data
        finally:
            call.cancel()
        return b"".join(data for _, data in sorted(chunks.items()))

    def subscribe(self, responses: AsyncIterable[command_pb2.DataPlaneResponse]) -> Requests:
        """Open the stream of requests. It carries the agent's responses in the other direction."""
        method: Any = self._channel.stream_stream(
            "/mpi.v1.CommandService/Subscribe",
            request_serializer=command_pb2.DataPlaneResponse.SerializeToString,
            response_deserializer=command_pb2.ManagementPlaneRequest.FromString,
        )
        call: Requests = method(responses, metadata=self._metadata())
        return call
