"""The channel to the control plane, and its RPCs with their types."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from gatehouse.agent import system_trust
from gatehouse.agent.options import Options
from gatehouse.wire.mpi.v1 import command_pb2, files_pb2

UNARY_SECONDS = 10.0
DOWNLOAD_SECONDS = 60.0
"""Deadlines of one call, as the field's agent has them; of a stream: of each of its pieces."""

_OPTIONS = (
    ("grpc.keepalive_time_ms", 20_000),
    # How long bytes may stay without a TCP acknowledgement. What a middlebox acknowledges and
    # loses is noticed by the ping alone: its answer waits behind whatever is on its way, so that a
    # line of 10 kB/s needs these 60 s.
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 60_000),
    # Else windows grow until minutes of a slow line are on their way.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", -1),
    # Else a new channel may get an old connection, made with an old CA.
    ("grpc.use_local_subchannel_pool", 1),
)

Requests = grpc.aio.StreamStreamCall[
    command_pb2.DataPlaneResponse, command_pb2.ManagementPlaneRequest
]
"""The stream of what the control plane asks for."""

Metadata = tuple[tuple[str, str], ...]


class Token:
    """The token: in a file, which the kubelet replaces now and then, or one that never changes."""

    def __init__(self, path: Path | None, fixed: str = "") -> None:
        self._path = path
        self._stamp: tuple[int, int] | None = None
        self._text = fixed

    def read(self) -> str:
        """Give the present token; raises OSError."""
        if self._path is None:
            return self._text
        stat = self._path.stat()
        if self._stamp != (stat.st_mtime_ns, stat.st_ino):
            content = self._path.read_bytes().strip()
            if not content or any(not 0x20 < each < 0x7F for each in content):
                raise OSError(f"{self._path} has no token in it")
            self._text = content.decode("ascii")
            self._stamp = (stat.st_mtime_ns, stat.st_ino)
        return self._text


def _credentials(options: Options) -> grpc.ChannelCredentials:
    """Read what the server is judged by, and what is shown to it; raises OSError."""
    trusted = options.ca or system_trust.bundle()
    return grpc.ssl_channel_credentials(
        trusted.read_bytes() if trusted else None,
        options.key.read_bytes() if options.key else None,
        options.cert.read_bytes() if options.cert else None,
    )


def open_channel(options: Options) -> grpc.aio.Channel:
    """Make a channel, which is dialled at its first call; raises OSError."""
    target = f"{options.server_host}:{options.server_port}"
    if not options.tls:
        return grpc.aio.insecure_channel(target, options=_OPTIONS)
    name = options.server_name or options.server_host
    return grpc.aio.secure_channel(
        target,
        _credentials(options),
        options=(*_OPTIONS, ("grpc.ssl_target_name_override", name)),
    )


class Connection:
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
