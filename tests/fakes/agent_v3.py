"""A client of agent v3's protocol that sends arbitrary messages."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from gatehouse.wire.gatehouse.v1 import batches_pb2
from gatehouse.wire.mpi.v1 import command_pb2, files_pb2


class Claimant:
    """A client with one token and labels that may be forged."""

    def __init__(self, channel: grpc.aio.Channel, token: str, labels: dict[str, str]) -> None:
        self._channel = channel
        self._labels = labels
        self._metadata = (("authorization", token), ("uuid", "claimed"), *labels.items())

    async def _call(self, path: str, request: Any, reply: Any) -> Any:
        method: Any = self._channel.unary_unary(
            path,
            request_serializer=type(request).SerializeToString,
            response_deserializer=reply.FromString,
        )
        return await method(request, metadata=self._metadata, timeout=10)

    async def connect(self, **labels: str) -> None:
        """Announce an agent; ``labels`` are those of its description, without dashes."""
        config = command_pb2.AgentConfig()
        for key, value in labels.items():
            config.labels.add().update({key.replace("_", "-"): value})
        instance = command_pb2.Instance(
            instance_config=command_pb2.InstanceConfig(agent_config=config)
        )
        request = command_pb2.CreateConnectionRequest(
            resource=command_pb2.Resource(resource_id="claimed", instances=[instance])
        )
        path = "/mpi.v1.CommandService/CreateConnection"
        await self._call(path, request, command_pb2.CreateConnectionResponse)

    async def file(self, digest: str, name: str = "/etc/nginx/gatehouse/http.conf") -> bytes:
        """Fetch a file."""
        about = files_pb2.FileMeta(name=name, hash=digest)
        request = files_pb2.GetFileRequest(file_meta=about)
        path = "/mpi.v1.FileService/GetFile"
        reply = await self._call(path, request, files_pb2.GetFileResponse)
        contents: bytes = reply.contents.contents
        return contents

    async def files(self, *digests: str) -> list[bytes]:
        """Fetch the first of some files in one message, as agents of Gatehouse do."""
        metas = (files_pb2.FileMeta(name=f"/{digest}", hash=digest) for digest in digests)
        request = batches_pb2.GetFilesRequest(file_metas=metas)
        path = "/gatehouse.v1.FileService/GetFiles"
        reply = await self._call(path, request, batches_pb2.GetFilesResponse)
        return list(reply.contents)

    async def streamed(self, digest: str) -> None:
        """Fetch a file in pieces."""
        method: Any = self._channel.unary_stream(
            "/mpi.v1.FileService/GetFileStream",
            request_serializer=files_pb2.GetFileRequest.SerializeToString,
            response_deserializer=files_pb2.FileDataChunk.FromString,
        )
        request = files_pb2.GetFileRequest(file_meta=files_pb2.FileMeta(name="/x", hash=digest))
        async for _ in method(request, metadata=self._metadata, timeout=10):
            pass

    async def overview(self, version: str = "") -> list[str]:
        """Return the names of the files of a version."""
        about = files_pb2.ConfigVersion(instance_id="claimed", version=version)
        request = files_pb2.GetOverviewRequest(config_version=about)
        path = "/mpi.v1.FileService/GetOverview"
        reply = await self._call(path, request, files_pb2.GetOverviewResponse)
        return [file.file_meta.name for file in reply.overview.files]


@contextlib.asynccontextmanager
async def claimant(
    port: int, ca: Path, server_name: str, token: str, **labels: str
) -> AsyncIterator[Claimant]:
    """Connect; ``labels`` are metadata of every call, without dashes."""
    credentials = grpc.ssl_channel_credentials(ca.read_bytes())  # noqa: ASYNC240 (a small file)
    options = (("grpc.ssl_target_name_override", server_name),)
    async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials, options) as channel:
        yield Claimant(
            channel, token, {key.replace("_", "-"): value for key, value in labels.items()}
        )
