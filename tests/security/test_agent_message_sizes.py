"""Attacks of an agent with large messages on the memory of the control plane.

Each attack runs against the real gRPC server. What the server keeps of it is counted in the state
of the attacker's stream or instance, and an agent of another Gateway gets its configuration.
"""

from __future__ import annotations

from typing import Any

import grpc.aio
import pytest
from envoy.config.core.v3 import base_pb2
from google.rpc import status_pb2

from fakes.agent_attack import (
    ATTACKER,
    STREAMS,
    UNARY,
    ads,
    attackers_stream,
    channel,
    stream_statuses,
)
from fakes.agent_control_plane import GATEWAY, ControlPlane
from fakes.agent_wire import answer, nginx_agent_resource, wire_agent
from fakes.patience import until
from gatehouse.dataplane import agent_limits
from gatehouse.dataplane.file_set import File, FileSet
from gatehouse.dataplane.xds.delta import DELTA_METHOD, DeltaStream, health_request
from gatehouse.dataplane.xds.resources import (
    CLUSTER_TYPE_URL,
)
from gatehouse.transports.agents.session import Register
from gatehouse.transports.agents.token_auth import Identity
from gatehouse.transports.commander import main_file, messages, payload
from gatehouse.transports.xds.fleet import TOO_MANY_NAMES
from gatehouse.transports.xds.services import ADS_SERVICE, TOO_LARGE_HEAD


def empty_parts(field: int, size: int) -> bytes:
    """Return a message of empty parts: each takes two bytes, and many more once parsed."""
    return bytes([field << 3 | 2, 0]) * (size // 2)


@pytest.mark.parametrize(
    ("request_bytes", "reason"),
    [
        (empty_parts(3, 30 << 20), TOO_MANY_NAMES),
        (empty_parts(5, 30 << 20), TOO_MANY_NAMES),
        (empty_parts(8, 30 << 20), TOO_LARGE_HEAD),
        (
            DeltaStream.Message(
                node=base_pb2.Node(client_features=["x" * 1000] * 2000)
            ).SerializeToString(),
            TOO_LARGE_HEAD,
        ),
        (DeltaStream.Message(response_nonce="1" * (2 << 20)).SerializeToString(), TOO_LARGE_HEAD),
        (
            DeltaStream.Message(
                error_detail=status_pb2.Status(message="x" * (2 << 20))
            ).SerializeToString(),
            TOO_LARGE_HEAD,
        ),
        (b"\x1a\xff\xff\xff", "the message is not valid protobuf: truncated message"),
    ],
    ids=["names", "versions", "locators", "node", "nonce", "error", "invalid"],
)
async def test_oversized_ads_request_is_refused_before_it_is_parsed(
    plane: ControlPlane, request_bytes: bytes, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One message that would take up to 1.5 GB once parsed."""
    parsed: list[object] = []
    monkeypatch.setattr(DeltaStream, "receive", lambda _stream, message: parsed.append(message))
    results = await stream_statuses(plane, f"/{ADS_SERVICE}/{DELTA_METHOD}", [[request_bytes]])
    assert results == [(grpc.StatusCode.RESOURCE_EXHAUSTED, reason)]
    assert not parsed


async def test_ads_texts_and_lists_are_cut(plane: ControlPlane) -> None:
    """Node and health of an Envoy's agent, as large as a message may be."""
    node = base_pb2.Node(
        user_agent_name="envoy",
        user_agent_version="9" * 100_000,
        client_features=[f"{number:04}" * 10 for number in range(5000)],
        extensions=[base_pb2.Extension(name=f"{number:04}" * 10) for number in range(5000)],
    )
    first = DeltaStream.Message(type_url=CLUSTER_TYPE_URL, node=node)
    unready = {"cluster" * 100: {"server" * 100: "reason" * 1000}}
    async with channel(plane) as opened:
        call = ads(opened, ATTACKER)
        await call.write(first.SerializeToString())
        await call.write(health_request("sick " * 10_000, unready).SerializeToString())
        fleet = plane.server.envoys
        await until(lambda: any(one.unhealthy for one in fleet.report(GATEWAY).instances))
        (report,) = fleet.report(GATEWAY).instances
        assert len(report.proxy) == agent_limits.MAX_TEXT_CHARACTERS
        assert len(report.modules) == len(report.features) == agent_limits.MAX_LISTED
        conversation = attackers_stream(plane).dialogue.conversation
        assert len(conversation.unhealthy) == agent_limits.MAX_ERROR_CHARACTERS
        for cluster, servers in conversation.unready_servers.items():
            texts = (cluster, *servers, *servers.values())
            assert max(map(len, texts)) <= agent_limits.MAX_TEXT_CHARACTERS
        call.cancel()


async def test_nginx_agent_texts_and_lists_are_cut(plane: ControlPlane) -> None:
    """Everything that NGINX Agent v3 may report, as large as a message may be."""
    plane.server.publish(GATEWAY, FileSet([File.make("gatehouse/http.conf", "own")]))
    resource = nginx_agent_resource()
    nginx = resource.instances[0]
    nginx.instance_meta.version = "9" * 1_000_000
    runtime = nginx.instance_runtime.nginx_runtime_info
    runtime.dynamic_modules.extend(f"module-{number}" * 40 for number in range(5000))
    runtime.loadable_modules.extend(f"module-{number}" for number in range(5000))
    features = (f"feature-{number}" for number in range(5000))
    nginx.instance_config.agent_config.features.extend(features)
    async with wire_agent(plane, ATTACKER) as agent:
        await agent.create_connection(resource)
        call = agent.subscribe()
        request = await call.read()
        correlation = request.message_meta.correlation_id
        await call.write(answer(correlation, "broken " * 100_000))
        report = await plane.until(lambda report: bool(report.error))
        (instance,) = report.instances
        assert len(instance.error) == agent_limits.MAX_ERROR_CHARACTERS
        assert len(instance.proxy) == agent_limits.MAX_TEXT_CHARACTERS
        assert len(instance.modules) == len(instance.features) == agent_limits.MAX_LISTED
        assert max(map(len, instance.modules)) == agent_limits.MAX_TEXT_CHARACTERS
        await agent.update_overview(*(f"/etc/{number}" for number in range(10_000)))
        await agent.send_served_version("v" * 1_000_000)
        session = plane.server._fleet._gateways[GATEWAY].peers["evil"].session
        assert session._reported_version == ""
        assert len(session.unmanaged) <= agent_limits.MAX_UNMANAGED_FILES
        call.cancel()


TOO_LARGE = f"the message has more than {agent_limits.MAX_MESSAGE_BYTES} bytes"


@pytest.mark.parametrize("path", UNARY.values(), ids=UNARY)
async def test_oversized_request_of_an_nginx_agent_is_refused(
    plane: ControlPlane, path: str
) -> None:
    """Only a known caller's request is looked at, and not if it is too large."""
    message = bytes(agent_limits.MAX_MESSAGE_BYTES + 1)
    async with channel(plane) as opened:
        method: Any = opened.unary_unary(path)
        for token, code in (
            (ATTACKER, grpc.StatusCode.RESOURCE_EXHAUSTED),
            ("unknown", grpc.StatusCode.UNAUTHENTICATED),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await method(message, metadata=(("authorization", token),))
            assert refused.value.code() is code
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await method(b"\xff", metadata=(("authorization", ATTACKER),))
        assert refused.value.details() == "the message is not valid protobuf"


@pytest.mark.parametrize("path", STREAMS.values(), ids=STREAMS)
async def test_oversized_message_ends_the_stream_of_an_nginx_agent(
    plane: ControlPlane, path: str
) -> None:
    results = await stream_statuses(plane, path, [[bytes(agent_limits.MAX_MESSAGE_BYTES + 1)]])
    assert results == [(grpc.StatusCode.RESOURCE_EXHAUSTED, TOO_LARGE)]


def description_chunks() -> list[bytes]:
    """Return the messages of an upload whose main file describes an NGINX."""
    about = Register("id", "nginx/1.31.3", main_file="/etc/nginx/nginx.conf")
    main = main_file.build(about, FileSet([]))
    packed = payload.archive(FileSet([]), main)
    document = payload.document(FileSet([]), packed, main, about)
    head = messages.build_meta("upload")
    chunks = payload.payload_chunks(document, head)
    return [chunk.SerializeToString() for chunk in chunks]


async def test_one_upload_of_an_instance_is_kept_at_a_time(plane: ControlPlane) -> None:
    """Agent v2, with uploads at the same time: one is kept in memory, others are only read."""
    chunks = description_chunks()
    identity = Identity(GATEWAY, "evil")
    async with channel(plane) as opened:
        method: Any = opened.stream_unary(STREAMS["v2-upload"])
        metadata = (("authorization", ATTACKER),)
        first = method(metadata=metadata)
        await first.write(chunks[0])
        await first.wait_for_connection()
        await method(iter(chunks), metadata=metadata)
        assert not plane.server._fleet.knows(identity)
        for chunk in chunks[1:]:
            await first.write(chunk)
        await first.done_writing()
        await first
        assert plane.server._fleet.knows(identity)
