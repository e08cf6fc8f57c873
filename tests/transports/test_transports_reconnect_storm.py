"""Many concurrent agents and slow agents: none is rejected or blocked."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from fakes import patience
from fakes.agent_control_plane import GATEWAY, ControlPlane, error_of
from gatehouse.dataplane.file_set import File, FileSet
from gatehouse.transports.mpi import messages
from gatehouse.wire.mpi.v1 import command_pb2, common_pb2, files_pb2

NGINX_ID = "cd2d5dc0-c528-3f37-b83c-727fd4010777"


@pytest.fixture
async def plane(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ControlPlane]:
    async with ControlPlane(
        tmp_path, apply_deadline=getattr(request, "param", patience.SECONDS)
    ) as plane:
        yield plane


def bundle(text: str, files: int = 1) -> FileSet:
    return FileSet(
        [File.make(f"gatehouse/{number}", f"{text} {number}") for number in range(files)]
    )


def channel(plane: ControlPlane, *, slow: bool = False) -> grpc.aio.Channel:
    """Return a client with its own connection. A slow one buffers little ahead of its reader."""
    return grpc.aio.secure_channel(
        f"127.0.0.1:{plane.port}",
        grpc.ssl_channel_credentials(plane.cert.read_bytes()),
        [
            ("grpc.ssl_target_name_override", "control.plane"),
            ("grpc.max_receive_message_length", -1),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.http2.bdp_probe", 0 if slow else 1),
        ],
    )


class Agent:
    """An agent that sends and reads only on request of a test."""

    def __init__(self, grpc_channel: grpc.aio.Channel, pod: str) -> None:
        self._made = grpc_channel
        self._metadata = (("authorization", f"good:{pod}"),)

    async def call(self, method: str, request: Any, seconds: float = 20.0) -> bytes:
        method_call: Any = self._made.unary_unary(f"/mpi.v1.{method}")
        reply: bytes = await method_call(
            request.SerializeToString(), metadata=self._metadata, timeout=seconds
        )
        return reply

    async def subscribe(self) -> Any:
        meta = command_pb2.InstanceMeta(
            instance_id=NGINX_ID,
            instance_type=command_pb2.InstanceMeta.InstanceType.INSTANCE_TYPE_NGINX,
            version="1.31.3",
        )
        resource = command_pb2.Resource(instances=[command_pb2.Instance(instance_meta=meta)])
        await self.call(
            "CommandService/CreateConnection",
            command_pb2.CreateConnectionRequest(resource=resource),
        )
        method: Any = self._made.stream_stream("/mpi.v1.CommandService/Subscribe")
        return method(metadata=self._metadata)


async def taken(call: Any) -> command_pb2.ManagementPlaneRequest:
    async with patience.limit():
        return command_pb2.ManagementPlaneRequest.FromString(await call.read())


async def confirm(call: Any) -> str:
    request = await taken(call)
    status = common_pb2.CommandResponse.CommandStatus.COMMAND_STATUS_OK
    answer = command_pb2.DataPlaneResponse(
        message_meta=request.message_meta,
        command_response=common_pb2.CommandResponse(status=status),
    )
    await call.write(answer.SerializeToString())
    return request.config_apply_request.overview.config_version.version


async def confirm_until(call: Any, version: str) -> None:
    """Confirm requests, of which one may come twice where its answer took long, up to one."""
    while await confirm(call) != version:
        pass


async def test_burst_of_calls_gets_all_responses(
    plane: ControlPlane,
) -> None:
    file_set = bundle("one")
    plane.server.publish(GATEWAY, file_set)
    digest = file_set.files["gatehouse/0"].digest
    request = files_pb2.GetFileRequest(file_meta=files_pb2.FileMeta(hash=digest))
    answers: Counter[object] = Counter()

    async def fetch(agent: Agent) -> None:
        try:
            answers[await agent.call("FileService/GetFile", request, 60.0)] += 1
        except grpc.aio.AioRpcError as error:
            answers[error.code()] += 1

    async with contextlib.AsyncExitStack() as stack:
        agents = [
            Agent(
                await stack.enter_async_context(channel(plane)),
                f"pod-{number}",
            )
            for number in range(50)
        ]
        await asyncio.gather(*(fetch(agent) for agent in agents for _ in range(100)))
    assert answers == {messages.file_response(file_set.files["gatehouse/0"]): 5000}


async def test_stream_sends_initial_metadata_at_once(plane: ControlPlane) -> None:
    async with channel(plane) as grpc_channel:
        call = await Agent(grpc_channel, "pod-1").subscribe()
        async with patience.limit():
            await call.initial_metadata()
        assert not call.done()
        await plane.until(lambda report: bool(report.instances))


@pytest.mark.long
@pytest.mark.parametrize("plane", [2.0], indirect=True)
async def test_stuck_agent_delays_no_other_agent_and_then_gets_newest_version(
    plane: ControlPlane,
) -> None:
    async with (
        channel(plane, slow=True) as one,
        channel(plane) as other,
    ):
        stuck = await Agent(one, "stuck").subscribe()
        good = await Agent(other, "good").subscribe()
        await plane.until(lambda report: len(report.instances) == 2)
        # Far more than flow control lets through to a client that does not read.
        versions = []
        for text in ("one", "two", "three"):
            file_set = bundle(text, files=5_000)
            versions.append(file_set.version)
            plane.server.publish(GATEWAY, file_set)
            await confirm_until(good, file_set.version)
            # Its deadline has passed, and so the next is put on its way.
            report = await plane.until(lambda report: bool(error_of(report, "stuck")))
            assert error_of(report, "stuck") == "no response within 2 s"
        plane.server.publish(GATEWAY, last := bundle("last"))
        await confirm_until(good, last.version)
        versions_seen = list[str]()
        while not versions_seen or versions_seen[-1] != last.version:
            versions_seen.append(await confirm(stuck))
        assert versions_seen[0] == versions[0]
        assert not {*versions[1:-1]} & {*versions_seen}
        await plane.until(lambda report: report.programmed)


@pytest.mark.parametrize("plane", [2.0], indirect=True)
async def test_replaced_stream_ends_even_if_client_does_not_read(
    plane: ControlPlane,
) -> None:
    async with (
        channel(plane, slow=True) as one,
        channel(plane) as other,
    ):
        stuck = await Agent(one, "pod-1").subscribe()
        plane.server.publish(GATEWAY, bundle("one", files=5_000))
        await plane.until(lambda report: bool(report.error))
        call = await Agent(other, "pod-1").subscribe()
        plane.server.publish(GATEWAY, file_set := bundle("two"))
        await confirm_until(call, file_set.version)
        await plane.until(lambda report: report.programmed)
        # What was on its way still comes; then it is over.
        with contextlib.suppress(grpc.aio.AioRpcError):
            while isinstance(await asyncio.wait_for(stuck.read(), patience.SECONDS), bytes):
                pass
        assert await stuck.code() == grpc.StatusCode.UNAVAILABLE
