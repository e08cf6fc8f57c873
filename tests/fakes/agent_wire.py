"""Agent v3 on the wire and nothing behind it: it does just what a test has it do.

``test_transports_recorded_agents.py`` compares its messages with those of the real agent.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import itertools
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc.aio

from fakes.agent_control_plane import ControlPlane
from gatehouse.wire.mpi.v1 import command_pb2, common_pb2, files_pb2

NGINX_ID = "16ea1164-0925-328c-a38a-313891854149"
POD_ID = "8ef7dc7f-e2eb-31a7-9d10-a350c47e34cb"
AGENT_ID = "51de336f-d209-344c-93da-6cca69c96264"

Request = command_pb2.ManagementPlaneRequest

_STATUS = common_pb2.CommandResponse.CommandStatus
_TYPES = command_pb2.InstanceMeta.InstanceType


def agent_resource(version: str = "1.31.3") -> command_pb2.Resource:
    """Describe a Pod with one NGINX."""
    nginx = command_pb2.Instance(
        instance_meta=command_pb2.InstanceMeta(
            instance_id=NGINX_ID, instance_type=_TYPES.INSTANCE_TYPE_NGINX, version=version
        )
    )
    return command_pb2.Resource(resource_id=POD_ID, instances=[nginx])


def nginx_agent_resource(
    pid: int = 18, conf: str = "/etc/nginx/nginx.conf", *, nginx: bool = True
) -> command_pb2.Resource:
    """Describe a Pod as NGINX's own agent does; ``pid``: of NGINX's master, 0 if there is none."""
    result = agent_resource() if nginx else command_pb2.Resource(resource_id=POD_ID)
    for instance in result.instances:
        instance.instance_runtime.process_id = pid
        instance.instance_runtime.binary_path = "/usr/sbin/nginx"
        instance.instance_runtime.config_path = conf
        instance.instance_runtime.nginx_runtime_info.dynamic_modules.append("http_ssl_module")
        instance.instance_runtime.instance_children.add(process_id=pid + 1)
    agent = result.instances.add()
    agent.instance_meta.instance_id = AGENT_ID
    agent.instance_meta.instance_type = _TYPES.INSTANCE_TYPE_AGENT
    agent.instance_meta.version = "v3.11.3"
    agent.instance_runtime.process_id = 4
    agent.instance_runtime.binary_path = "/usr/bin/nginx-agent"
    agent.instance_runtime.config_path = "/etc/nginx-agent/nginx-agent.conf"
    agent.instance_config.agent_config.features.extend(["configuration", "certificates"])
    return result


def message_meta(correlation: str = "") -> common_pb2.MessageMeta:
    """Return the metadata of a message."""
    result = common_pb2.MessageMeta(
        message_id=str(uuid.uuid4()), correlation_id=correlation or str(uuid.uuid4())
    )
    result.timestamp.GetCurrentTime()
    return result


def answer(
    correlation: str, error: str = "", *, rolling_back: bool = False
) -> command_pb2.DataPlaneResponse:
    """Make an answer to a request, the final one unless the agent is rolling back."""
    status, message = _STATUS.COMMAND_STATUS_OK, "Config apply successful"
    if rolling_back:
        status, message = _STATUS.COMMAND_STATUS_ERROR, "Config apply failed, rolling back config"
    elif error:
        status, message = _STATUS.COMMAND_STATUS_FAILURE, "Config apply failed, rollback successful"
    return command_pb2.DataPlaneResponse(
        message_meta=message_meta(correlation),
        command_response=common_pb2.CommandResponse(status=status, message=message, error=error),
        instance_id=NGINX_ID,
        request_type=command_pb2.DataPlaneResponse.RequestType.CONFIG_APPLY_REQUEST,
    )


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _described(name: str) -> files_pb2.File:
    """Return a file of the agent's own overview."""
    meta = files_pb2.FileMeta(name=name, hash=_digest(name), permissions="0644", size=len(name))
    meta.modified_time.GetCurrentTime()
    return files_pb2.File(file_meta=meta)


class WireAgent:
    """An agent whose calls use one token."""

    def __init__(self, channel: grpc.aio.Channel, token: str) -> None:
        self._channel = channel
        self._metadata = (("authorization", token), ("uuid", POD_ID))

    async def _unary(self, service: str, request: Any, reply: Any) -> Any:
        if not request.HasField("message_meta"):
            request.message_meta.CopyFrom(message_meta())
        name = type(request).__name__.removesuffix("Request")
        method: Any = self._channel.unary_unary(
            f"/mpi.v1.{service}/{name}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=reply.FromString,
        )
        return await method(request, metadata=self._metadata, timeout=30)

    async def connect(self, version: str = "1.31.3") -> None:
        """Say which NGINX there is."""
        request = command_pb2.CreateConnectionRequest(resource=agent_resource(version))
        await self._unary("CommandService", request, command_pb2.CreateConnectionResponse)

    async def send_status(self, version: str = "1.31.3") -> None:
        """Say it again."""
        request = command_pb2.UpdateDataPlaneStatusRequest(resource=agent_resource(version))
        await self._unary("CommandService", request, command_pb2.UpdateDataPlaneStatusResponse)

    async def create_connection(self, resource: command_pb2.Resource) -> None:
        """Make a connection, with this description."""
        request = command_pb2.CreateConnectionRequest(resource=resource)
        await self._unary("CommandService", request, command_pb2.CreateConnectionResponse)

    async def update_status(self, resource: command_pb2.Resource) -> None:
        """Replace the description."""
        request = command_pb2.UpdateDataPlaneStatusRequest(resource=resource)
        await self._unary("CommandService", request, command_pb2.UpdateDataPlaneStatusResponse)

    async def update_overview(self, *names: str) -> None:
        """Report the files that NGINX reads."""
        files = [_described(name) for name in names]
        config = files_pb2.ConfigVersion(instance_id=NGINX_ID, version=_digest("".join(names)))
        overview = files_pb2.FileOverview(
            files=files, config_version=config, config_path=next(iter(names), "")
        )
        request = files_pb2.UpdateOverviewRequest(overview=overview)
        await self._unary("FileService", request, files_pb2.UpdateOverviewResponse)

    async def get_file(self, about: files_pb2.FileMeta, correlation: str) -> bytes:
        """Fetch a file as part of what was asked under ``correlation``."""
        request = files_pb2.GetFileRequest(message_meta=message_meta(correlation), file_meta=about)
        reply = await self._unary("FileService", request, files_pb2.GetFileResponse)
        content: bytes = reply.contents.contents
        return content

    async def send_health(
        self, description: str, status: str = "INSTANCE_HEALTH_STATUS_UNSPECIFIED"
    ) -> None:
        """Say how NGINX is."""
        health = command_pb2.InstanceHealth(
            instance_id=NGINX_ID,
            description=description,
            instance_health_status=status,
        )
        request = command_pb2.UpdateDataPlaneHealthRequest(instance_healths=[health])
        await self._unary("CommandService", request, command_pb2.UpdateDataPlaneHealthResponse)

    async def send_served_version(self, version: str) -> None:
        """Say which version is served."""
        config = files_pb2.ConfigVersion(instance_id=NGINX_ID, version=version)
        request = files_pb2.UpdateOverviewRequest(
            overview=files_pb2.FileOverview(config_version=config)
        )
        await self._unary("FileService", request, files_pb2.UpdateOverviewResponse)

    def subscribe(self) -> Any:
        """Open the stream; nothing is read of it, or written to it, but by the caller."""
        method: Any = self._channel.stream_stream(
            "/mpi.v1.CommandService/Subscribe",
            request_serializer=command_pb2.DataPlaneResponse.SerializeToString,
            response_deserializer=Request.FromString,
        )
        return method(metadata=self._metadata)

    @contextlib.asynccontextmanager
    async def applying(
        self, reply: Callable[[str], list[command_pb2.DataPlaneResponse]] = lambda c: [answer(c)]
    ) -> AsyncIterator[list[str]]:
        """Answer every request. Yield the versions requested so far."""
        await self.connect()
        versions: list[str] = []
        call = self.subscribe()

        async def obey() -> None:
            while (request := await call.read()) is not grpc.aio.EOF:
                versions.append(request.config_apply_request.overview.config_version.version)
                for response in reply(request.message_meta.correlation_id):
                    await call.write(response)

        task = asyncio.create_task(obey())
        try:
            yield versions
        finally:
            call.cancel()
            await asyncio.gather(task, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def serving(self, conf: str, error: Callable[[str], str]) -> AsyncIterator[None]:
        """Behave as the real agent: report, fetch changed files, answer, report again.

        ``error`` returns the error of a version, empty for success.
        """
        await self.create_connection(nginx_agent_resource(conf=conf))
        await self.update_overview(conf)
        call = self.subscribe()

        async def obey() -> None:
            known: set[str] = set()
            while (request := await call.read()) is not grpc.aio.EOF:
                correlation = request.message_meta.correlation_id
                overview = request.config_apply_request.overview
                for file in overview.files:
                    if not file.unmanaged and file.file_meta.hash not in known:
                        await self.get_file(file.file_meta, correlation)
                        known.add(file.file_meta.hash)
                rejection = error(overview.config_version.version)
                if rejection:
                    await call.write(answer(correlation, rejection, rolling_back=True))
                await call.write(answer(correlation, rejection))
                if not rejection:
                    await self.update_overview(*(file.file_meta.name for file in overview.files))

        task = asyncio.create_task(obey())
        try:
            yield
        finally:
            call.cancel()
            await asyncio.gather(task, return_exceptions=True)


_numbers = itertools.count()


@contextlib.asynccontextmanager
async def wire_agent(plane: ControlPlane, token: str) -> AsyncIterator[WireAgent]:
    """Yield an agent with a connection of its own."""
    credentials = grpc.ssl_channel_credentials(plane.cert.read_bytes())
    options = (
        ("grpc.ssl_target_name_override", "control.plane"),
        ("grpc.max_receive_message_length", -1),
        ("gatehouse.test", next(_numbers)),
    )
    target = f"127.0.0.1:{plane.port}"
    async with grpc.aio.secure_channel(target, credentials, options=options) as channel:
        yield WireAgent(channel, token)
