"""Simulated agents, v3: their messages and downloads are real, but they run no NGINX.

They announce themselves, say which version they serve, listen, fetch what differs by content, check
it and confirm at once. On errors they wait as NGINX Agent does. A line on the input is
answered with a line of JSON: what happened since the one before.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import uvloop

from gatehouse.dataplane.file_set import base64_sha256
from gatehouse.standalone.pki import CONTROLLER_NAME
from gatehouse.wire.mpi.v1 import command_pb2, common_pb2, files_pb2

UNARY_SECONDS, DOWNLOAD_SECONDS = 10.0, 60.0
BACKOFF_FIRST, MAX_BACKOFF_SECONDS, BACKOFF_FACTOR = 1.0, 20.0, 3
"""Intervals of real agents in seconds, with a jitter of 50 %."""
PARALLEL = 5

OPTIONS = (
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.ssl_target_name_override", CONTROLLER_NAME),
)
COMMAND, FILE = "/mpi.v1.CommandService/", "/mpi.v1.FileService/"
NGINX_ID = "cd2d5dc0-c528-3f37-b83c-727fd4010777"
MODULES = ("http_ssl_module", "http_v2_module", "http_auth_request_module", "stream_ssl_module")
FEATURES = ("configuration", "connectors", "authenticators", "endpoints")
_STATUS = common_pb2.CommandResponse.CommandStatus
_TYPES = command_pb2.InstanceMeta.InstanceType


class Record:
    """Events of all agents of this process."""

    def __init__(self) -> None:
        self.confirmed: list[float] = []
        self.requests = 0
        self.files = 0
        self.errors: Counter[str] = Counter()


def announcement(resource_id: str) -> bytes:
    """Return the message by which an agent announces itself and its NGINX."""
    agent = command_pb2.Instance(
        instance_meta=command_pb2.InstanceMeta(
            instance_id=resource_id, instance_type=_TYPES.INSTANCE_TYPE_AGENT, version="3.0.0"
        ),
        instance_config=command_pb2.InstanceConfig(
            agent_config=command_pb2.AgentConfig(features=FEATURES)
        ),
    )
    nginx = command_pb2.Instance(
        instance_meta=command_pb2.InstanceMeta(
            instance_id=NGINX_ID, instance_type=_TYPES.INSTANCE_TYPE_NGINX, version="1.31.3"
        ),
        instance_runtime=command_pb2.InstanceRuntime(
            nginx_runtime_info=command_pb2.NGINXRuntimeInfo(dynamic_modules=MODULES)
        ),
    )
    resource = command_pb2.Resource(resource_id=resource_id, instances=[agent, nginx])
    return command_pb2.CreateConnectionRequest(resource=resource).SerializeToString()


class Agent:
    """One simulated agent."""

    def __init__(
        self, target: str, credentials: grpc.ChannelCredentials, token: str, record: Record
    ) -> None:
        self.connected = False
        self._record = record
        self._channel = grpc.aio.secure_channel(target, credentials, options=OPTIONS)
        resource_id = str(uuid.uuid3(uuid.NAMESPACE_DNS, token))
        self._metadata = (("authorization", token), ("uuid", resource_id))
        self._announcement = announcement(resource_id)
        self._version = ""
        self._have: dict[str, str] = {}

    async def run(self) -> None:
        """Stay connected until cancelled."""
        failures = 0
        while True:
            try:
                await self._connect_once()
            except grpc.aio.AioRpcError as error:
                self._record.errors[error.code().name] += 1
            failures = 0 if self.connected else failures + 1
            self.connected = False
            pause = min(BACKOFF_FIRST * BACKOFF_FACTOR ** min(failures, 3), MAX_BACKOFF_SECONDS)
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))

    async def _unary(self, path: str, request: bytes, seconds: float) -> bytes:
        method: Any = self._channel.unary_unary(path)
        reply: bytes = await method(request, metadata=self._metadata, timeout=seconds)
        return reply

    async def _connect_once(self) -> None:
        await self._unary(COMMAND + "CreateConnection", self._announcement, UNARY_SECONDS)
        version = files_pb2.ConfigVersion(instance_id=NGINX_ID, version=self._version)
        has = files_pb2.UpdateOverviewRequest(
            overview=files_pb2.FileOverview(config_version=version)
        )
        await self._unary(FILE + "UpdateOverview", has.SerializeToString(), UNARY_SECONDS)
        call: Any = self._channel.stream_stream(COMMAND + "Subscribe")(metadata=self._metadata)
        self.connected = True
        while isinstance(raw := await call.read(), bytes):
            request = command_pb2.ManagementPlaneRequest.FromString(raw)
            if request.HasField("config_apply_request"):
                await call.write(await self._apply(request))

    async def _apply(self, request: command_pb2.ManagementPlaneRequest) -> bytes:
        self._record.requests += 1
        overview = request.config_apply_request.overview
        hashes = {file.file_meta.name: file.file_meta.hash for file in overview.files}
        slots = asyncio.Semaphore(PARALLEL)
        missing = [
            file.file_meta
            for file in overview.files
            if self._have.get(file.file_meta.name) != file.file_meta.hash
        ]
        await asyncio.gather(*(self._fetch(meta, slots) for meta in missing))
        self._have, self._version = hashes, overview.config_version.version
        self._record.confirmed.append(time.monotonic())
        return command_pb2.DataPlaneResponse(
            message_meta=request.message_meta,
            command_response=common_pb2.CommandResponse(status=_STATUS.COMMAND_STATUS_OK),
            instance_id=NGINX_ID,
            request_type=command_pb2.DataPlaneResponse.RequestType.CONFIG_APPLY_REQUEST,
        ).SerializeToString()

    async def _fetch(self, meta: files_pb2.FileMeta, slots: asyncio.Semaphore) -> None:
        async with slots:
            raw = await self._unary(
                FILE + "GetFile",
                files_pb2.GetFileRequest(file_meta=meta).SerializeToString(),
                DOWNLOAD_SECONDS,
            )
        self._record.files += 1
        content = files_pb2.GetFileResponse.FromString(raw).contents.contents
        if base64_sha256(content) != meta.hash:
            raise RuntimeError(f"{meta.name}: another content than asked for")


def tokens(instances: Iterable[str]) -> list[str]:
    """Return a token for each instance of ``gateway=number``."""
    return [
        f"p{number}@{gateway}"
        for gateway, _, count in (instance_text.partition("=") for instance_text in instances)
        for number in range(int(count))
    ]


async def run(options: argparse.Namespace) -> None:
    """Run agents until the input ends."""
    record = Record()
    credentials = grpc.ssl_channel_credentials((options.pki / "ca.crt").read_bytes())
    target = f"127.0.0.1:{options.port}"
    agents = [
        Agent(target, credentials, token, record) for token in tokens(options.instances.split(","))
    ]
    running = asyncio.gather(*(agent.run() for agent in agents))
    loop = asyncio.get_running_loop()
    input_line = loop.run_in_executor(None, sys.stdin.readline)
    while True:
        await asyncio.wait({running, input_line}, return_when=asyncio.FIRST_COMPLETED)
        if running.done() or not await input_line:
            break
        progress = {**vars(record), "connected": sum(agent.connected for agent in agents)}
        vars(record).update(vars(Record()))
        print(json.dumps(progress), flush=True)
        input_line = loop.run_in_executor(None, sys.stdin.readline)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def main() -> None:
    """Run them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pki", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--instances", required=True, help="<gateway>=<number>,...")
    uvloop.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
