"""Attacks of an agent with made-up types and names on the memory of the control plane.

Each attack runs against the real gRPC server. What the server keeps of it is counted in the state
of the attacker's stream or instance, and an agent of another Gateway gets its configuration.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from typing import Any

import grpc.aio
import pytest
import structlog

from fakes.agent_attack import (
    ATTACKER,
    ads,
    assert_other_gateway_is_served,
    attackers_stream,
    channel,
    subscriptions,
)
from fakes.agent_control_plane import GATEWAY, ControlPlane
from fakes.patience import until
from gatehouse.dataplane import agent_limits
from gatehouse.dataplane.xds.delta import DELTA_METHOD, DeltaStream
from gatehouse.dataplane.xds.resources import (
    ADD_ORDER,
    CLUSTER_TYPE_URL,
    ENDPOINTS_TYPE_URL,
)
from gatehouse.dataplane.xds.sotw import SOTW_METHOD, SotwStream
from gatehouse.dataplane.xds.subscription import Subscription
from gatehouse.transports.xds.fleet import TOO_MANY_NAMES

MANY = 100_000


def requested_bytes(plane: ControlPlane) -> int:
    data_plane = plane.server.envoys.fleet._gateways.get(GATEWAY)
    stream = data_plane.streams.get("evil") if data_plane else None
    return stream.dialogue.conversation.requested_bytes if stream else 0


@pytest.mark.parametrize("delta", [True, False])
async def test_made_up_types_are_ignored(plane: ControlPlane, delta: bool) -> None:
    """60 types that do not exist, with many names: nothing of them is kept."""
    async with channel(plane) as opened:
        call = ads(opened, ATTACKER, DELTA_METHOD if delta else SOTW_METHOD)
        for number in range(60):
            names = [f"name-{number}-{index}" for index in range(1000)]
            url = f"type.googleapis.com/evil.Type{number}"
            request = (
                DeltaStream.Message(type_url=url, resource_names_subscribe=names)
                if delta
                else SotwStream.Message(type_url=url, resource_names=names)
            )
            await call.write(request.SerializeToString())
        known = CLUSTER_TYPE_URL
        await call.write(
            (DeltaStream.Message if delta else SotwStream.Message)(
                type_url=known
            ).SerializeToString()
        )
        await until(lambda: known in subscriptions(attackers_stream(plane)))
        assert subscriptions(attackers_stream(plane)).keys() == {known}
        await assert_other_gateway_is_served(plane)
        call.cancel()


@pytest.mark.parametrize("delta", [True, False])
async def test_made_up_names_end_the_stream_and_free_its_memory(
    plane: ControlPlane, delta: bool
) -> None:
    """Many names of every known type: the stream ends before its state exceeds the limit, and
    nothing of the stream is kept, although its client reads nothing."""
    with structlog.testing.capture_logs() as logs:
        await _request_made_up_names(plane, logs, delta=delta)
    await assert_other_gateway_is_served(plane)


async def _request_made_up_names(plane: ControlPlane, logs: list[Any], *, delta: bool) -> None:
    async with channel(plane) as opened:
        call = ads(opened, ATTACKER, DELTA_METHOD if delta else SOTW_METHOD)
        state: weakref.ref[Any] | None = None
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            for number, url in enumerate(ADD_ORDER):
                names = [f"name-{number}-{index}" for index in range(MANY)]
                request = (
                    DeltaStream.Message(type_url=url, resource_names_subscribe=names)
                    if delta
                    else SotwStream.Message(type_url=url, resource_names=names)
                )
                await call.write(request.SerializeToString())
                if state is None:
                    await until(lambda: bool(requested_bytes(plane)))
                    conversation = attackers_stream(plane).dialogue.conversation
                    assert conversation.requested_bytes > MANY * agent_limits.ENTRY_BYTES
                    assert conversation.requested_bytes < agent_limits.MAX_SUBSCRIPTION_BYTES
                    state = weakref.ref(conversation)
                    del conversation
        assert state is not None
        # gRPC's client reports an error of its own for a write to a call that has ended.
        await until(lambda: any(log.get("reason") == TOO_MANY_NAMES for log in logs))
        gc.collect()
        await until(lambda: state() is None)


def test_names_and_versions_are_counted_once_and_given_back() -> None:
    state = Subscription(ENDPOINTS_TYPE_URL)
    state.subscribe(["a", "b"], {"old": "v" * 30})
    counted = state.requested_bytes
    assert counted == 3 * agent_limits.ENTRY_BYTES + len("abold") + 30
    state.subscribe(["b", "a"], {})
    assert state.requested_bytes == counted
    state.unsubscribe(["a", "b", "made-up"])
    assert state.requested_bytes == counted - 2 * agent_limits.ENTRY_BYTES - 2
    assert "made-up" not in state._dirty
