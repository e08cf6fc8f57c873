"""Gate of a starting Envoy, with the gRPC client of a test in place of Envoy."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TypeAlias

import grpc.aio
import pytest
from envoy.config.route.v3 import route_pb2
from envoy.service.discovery.v3 import discovery_pb2

from fakes.patience import until
from gatehouse.agent.envoy.bootstrap import START
from gatehouse.agent.envoy.downstream import Downstream
from gatehouse.agent.envoy.relay import Relay
from gatehouse.agent.envoy.start_gate import StartGate
from gatehouse.dataplane.xds.resources import ROUTES_TYPE_URL, ResourceSet

Request: TypeAlias = discovery_pb2.DeltaDiscoveryRequest
Response: TypeAlias = discovery_pb2.DeltaDiscoveryResponse
Method: TypeAlias = "grpc.aio.StreamStreamMultiCallable[Request, Response]"
Call: TypeAlias = "grpc.aio.StreamStreamCall[Request, Response]"

METHOD = "/envoy.service.route.v3.RouteDiscoveryService/DeltaRoutes"
FIRST = Request(type_url=ROUTES_TYPE_URL, resource_names_subscribe=[START])
AGAIN = Request(
    type_url=ROUTES_TYPE_URL,
    resource_names_subscribe=[START],
    initial_resource_versions={START: "1"},
)
"""First request on a stream of an Envoy that has the routes."""


class World:
    """A gate and its clients."""

    def __init__(self, socket: Path) -> None:
        self.changes = 0
        """Number of times that the gate said that it has changed."""
        self.gate = StartGate(self._count)
        self.channel = grpc.aio.insecure_channel(f"unix:{socket}")

    def _count(self) -> None:
        self.changes += 1

    async def connect(self, request: Request) -> Call:
        """Send the first request of an Envoy."""
        method: Method = self.channel.stream_stream(
            METHOD,
            request_serializer=Request.SerializeToString,
            response_deserializer=Response.FromString,
        )
        call: Call = method()
        await call.write(request)
        return call


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    result = World(tmp_path / "s")
    relay = Relay(ResourceSet())
    server = Downstream(relay, lambda: None, result.gate.handler())
    await server.start(tmp_path / "s")
    async with result.channel:
        yield result
    await server.stop()


async def test_envoy_starts_when_the_gate_opens(world: World) -> None:
    call = await world.connect(FIRST)
    await until(lambda: world.gate.closed)
    world.gate.open()
    response = await call.read()
    assert isinstance(response, Response)
    (resource,) = response.resources
    routes = route_pb2.RouteConfiguration()
    assert resource.resource.Unpack(routes)
    assert (resource.name, routes.name) == (START, START)
    assert (world.gate.closed, world.gate.opening) == (False, True)
    changes = world.changes
    await call.write(Request(type_url=ROUTES_TYPE_URL, response_nonce=response.nonce))
    await until(lambda: not world.gate.opening)
    assert world.changes == changes + 1


async def test_gate_opens_before_an_envoy_waits_without_effect(world: World) -> None:
    world.gate.open()
    await world.connect(FIRST)
    await until(lambda: world.gate.closed)


async def test_envoy_that_started_with_an_earlier_agent_does_not_wait(world: World) -> None:
    call = await world.connect(AGAIN)
    await call.write(Request(type_url=ROUTES_TYPE_URL, response_nonce="1"))
    await call.wait_for_connection()
    assert (world.gate.closed, world.gate.opening, world.changes) == (False, False, 0)


@pytest.mark.parametrize("opened", [False, True], ids=["waiting", "starting"])
async def test_gate_forgets_an_envoy_that_dies(world: World, opened: bool) -> None:
    call = await world.connect(FIRST)
    await until(lambda: world.gate.closed)
    if opened:
        world.gate.open()
        await call.read()
    call.cancel()
    await until(lambda: not (world.gate.closed or world.gate.opening))


async def test_end_of_an_earlier_envoy_leaves_the_gate_closed_for_the_next(world: World) -> None:
    first = await world.connect(FIRST)
    await until(lambda: world.gate.closed)
    second = await world.connect(FIRST)
    await until(lambda: world.changes == 2)
    first.cancel()
    # The server processes what comes on one connection in order.
    await (await world.connect(AGAIN)).wait_for_connection()
    assert world.gate.closed
    world.gate.open()
    assert isinstance(await second.read(), Response)
