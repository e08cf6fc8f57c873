"""An agent with a valid token that attacks a control plane, and an agent of another Gateway."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from envoy.service.discovery.v3 import discovery_pb2

from fakes.agent_control_plane import GATEWAY, ControlPlane
from gatehouse.dataplane.xds.delta import DELTA_METHOD
from gatehouse.dataplane.xds.resources import (
    CLUSTER_TYPE_URL,
    ResourceSet,
    XdsResource,
)
from gatehouse.dataplane.xds.subscription import Subscription
from gatehouse.transports.xds.fleet import AnyStream
from gatehouse.transports.xds.services import ADS_SERVICE

ATTACKER, OTHER = "good:evil", "shop/other"
UNARY = {
    "connection": "/mpi.v1.CommandService/CreateConnection",
    "status": "/mpi.v1.CommandService/UpdateDataPlaneStatus",
    "overview": "/mpi.v1.FileService/UpdateOverview",
    "file": "/mpi.v1.FileService/GetFile",
}
STREAMS = {
    "v3": "/mpi.v1.CommandService/Subscribe",
    "v3-upload": "/mpi.v1.FileService/UpdateFileStream",
    "v2": "/f5.nginx.agent.sdk.Commander/CommandChannel",
    "v2-upload": "/f5.nginx.agent.sdk.Commander/Upload",
}
_OPTIONS = (
    ("grpc.ssl_target_name_override", "control.plane"),
    ("grpc.max_send_message_length", -1),
)


@pytest.fixture(name="plane")
async def attacked_plane(tmp_path: Path) -> AsyncIterator[ControlPlane]:
    """Yield a running control plane."""
    async with ControlPlane(tmp_path) as control_plane:
        yield control_plane


@contextlib.asynccontextmanager
async def channel(plane: ControlPlane) -> AsyncIterator[grpc.aio.Channel]:
    """Open a connection to a control plane."""
    trusted = grpc.ssl_channel_credentials(plane.cert.read_bytes())
    async with grpc.aio.secure_channel(f"127.0.0.1:{plane.port}", trusted, _OPTIONS) as opened:
        yield opened


async def stream_statuses(
    plane: ControlPlane, path: str, calls: list[list[bytes]]
) -> list[tuple[grpc.StatusCode, str]]:
    """Make calls, one after the other, as the attacker. Return their statuses, with messages.

    Each call sends its messages in one stream, and its responses are read to the end. The asyncio
    client would replace the status of a stream that the server ends while a message is sent.
    """
    trusted = grpc.ssl_channel_credentials(plane.cert.read_bytes())
    metadata = (("authorization", ATTACKER),)

    def make() -> list[tuple[grpc.StatusCode, str]]:
        results = []
        with grpc.secure_channel(f"127.0.0.1:{plane.port}", trusted, _OPTIONS) as opened:
            for messages in calls:
                method: Any = opened.stream_stream(path)
                call = method(iter(messages), metadata=metadata)
                with contextlib.suppress(grpc.RpcError):
                    for _ in call:
                        pass
                results.append((call.code(), call.details()))
        return results

    return await asyncio.to_thread(make)


def ads(opened: grpc.aio.Channel, token: str, method: str = DELTA_METHOD) -> Any:
    """Open an ADS stream of raw messages."""
    call: Any = opened.stream_stream(f"/{ADS_SERVICE}/{method}")
    return call(metadata=(("authorization", token),))


def attackers_stream(plane: ControlPlane) -> AnyStream:
    """Return what the server has of the attacker's stream."""
    return plane.server.envoys.fleet._gateways[GATEWAY].streams["evil"]


def subscriptions(stream: AnyStream) -> dict[str, Subscription]:
    """Return the subscriptions of a stream by type."""
    return stream.dialogue.conversation._types


async def refusal(call: Any) -> tuple[grpc.StatusCode, str]:
    """Return the status of a call and its message."""
    return await call.code(), await call.details()


async def assert_other_gateway_is_served(plane: ControlPlane) -> None:
    """Serve an Envoy of another Gateway."""
    cluster = XdsResource.make(CLUSTER_TYPE_URL, "web", b"cluster")
    plane.server.envoys.publish(OTHER, ResourceSet([cluster]))
    async with channel(plane) as opened:
        call = ads(opened, f"good:pod-1@{OTHER}")
        request = discovery_pb2.DeltaDiscoveryRequest(type_url=CLUSTER_TYPE_URL)
        await call.write(request.SerializeToString())
        response = discovery_pb2.DeltaDiscoveryResponse.FromString(await call.read())
        assert [resource.name for resource in response.resources] == ["web"]
        call.cancel()
