"""The RPCs of the control plane with their types, on one channel."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable
from typing import Any

import grpc.aio

from gatehouse.agent.channel import Token, open_channel
from gatehouse.agent.options import Options
from gatehouse.wire.mpi.v1 import command_pb2, files_pb2

UNARY_SECONDS = 10.0
DOWNLOAD_SECONDS = 60.0
"""Deadlines of one call, as the field's agent has them; of a stream: of each of its pieces."""

Requests = grpc.aio.StreamStreamCall[
    command_pb2.DataPlaneResponse, command_pb2.ManagementPlaneRequest
]
"""The stream of what the control plane asks for."""

Metadata = tuple[tuple[str, str], ...]


class MPIClient:
    """One channel with the credentials of the moment it was made."""

    def __init__(self, options: Options, token: Token | None, resource_id: str) -> None:
        """Prepare a connection, which is dialled at its first call; raises OSError."""
        self._token = token
        self._labels = tuple((key.lower(), value) for key, value in options.labels.items())
        self._resource_id = resource_id
        self._channel = open_channel(options)

    async def close(self) -> None:
        """Close the channel and end its calls."""
        await self._channel.close()

    def _metadata(self) -> Metadata:
        if self._token is None:
            return self._labels
        own = (("authorization", self._token.read()), ("uuid", self._resource_id))
        return (*own, *self._labels)

    async def _unary(self, path: str, request: Any, reply: Any, seconds: float) -> Any:
        method: Any = self._channel.unary_unary(
            path,
            request_serializer=type(request).SerializeToString,
            response_deserializer=reply.FromString,
        )
        return await method(request, metadata=self._metadata(), timeout=seconds)

    async def create_connection(self, request: command_pb2.CreateConnectionRequest) -> None:
        """Announce this agent. As all below, raises grpc.aio.AioRpcError or OSError."""
        path = "/mpi.v1.CommandService/CreateConnection"
        await self._unary(path, request, command_pb2.CreateConnectionResponse, UNARY_SECONDS)

    async def update_status(self, request: command_pb2.UpdateDataPlaneStatusRequest) -> None:
        """Say what there is now."""
        path = "/mpi.v1.CommandService/UpdateDataPlaneStatus"
        await self._unary(path, request, command_pb2.UpdateDataPlaneStatusResponse, UNARY_SECONDS)

    async def update_health(self, request: command_pb2.UpdateDataPlaneHealthRequest) -> None:
        """Say how it is."""
        path = "/mpi.v1.CommandService/UpdateDataPlaneHealth"
        await self._unary(path, request, command_pb2.UpdateDataPlaneHealthResponse, UNARY_SECONDS)

    async def update_overview(
        self, request: files_pb2.UpdateOverviewRequest
    ) -> files_pb2.UpdateOverviewResponse:
        """Say what is applied."""
        reply: files_pb2.UpdateOverviewResponse = await self._unary(
            "/mpi.v1.FileService/UpdateOverview",
            request,
            files_pb2.UpdateOverviewResponse,
            UNARY_SECONDS,
        )
        return reply

    async def get_file(self, request: files_pb2.GetFileRequest) -> bytes:
        """Fetch a file in one message."""
        reply: files_pb2.GetFileResponse = await self._unary(
            "/mpi.v1.FileService/GetFile", request, files_pb2.GetFileResponse, DOWNLOAD_SECONDS
        )
        return reply.contents.contents

    async def get_file_stream(self, request: files_pb2.GetFileRequest) -> bytes:
        """Fetch a file in pieces; gives what came in the order of the pieces' numbers."""
        method: Any = self._channel.unary_stream(
            "/mpi.v1.FileService/GetFileStream",
            request_serializer=files_pb2.GetFileRequest.SerializeToString,
            response_deserializer=files_pb2.FileDataChunk.FromString,
        )
        pieces: dict[int, bytes] = {}
        call = method(request, metadata=self._metadata())
        try:
            while True:
                async with asyncio.timeout(DOWNLOAD_SECONDS):
                    chunk = await call.read()
                if chunk is grpc.aio.EOF:
                    break
                if chunk.HasField("content"):
                    pieces[chunk.content.chunk_id] = chunk.content.data
        finally:
            call.cancel()
        return b"".join(data for _, data in sorted(pieces.items()))

    def subscribe(self, answers: AsyncIterable[command_pb2.DataPlaneResponse]) -> Requests:
        """Open the stream of requests; it carries our answers the other way."""
        method: Any = self._channel.stream_stream(
            "/mpi.v1.CommandService/Subscribe",
            request_serializer=command_pb2.DataPlaneResponse.SerializeToString,
            response_deserializer=command_pb2.ManagementPlaneRequest.FromString,
        )
        call: Requests = method(answers, metadata=self._metadata())
        return call
