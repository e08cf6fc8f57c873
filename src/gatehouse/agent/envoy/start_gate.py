"""Gate before the first connection: the route configuration without which Envoy does not start.

Envoy accepts connections once each of its listeners has its routes. It counts rejected routes as
received, and answers 404 then. So its bootstrap has a listener without a port, whose routes it gets
here: when those of the other listeners are accepted. Until then Envoy rejects connections and
calls itself not ready.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TypeAlias

import grpc
import grpc.aio
from envoy.config.route.v3 import route_pb2
from envoy.service.discovery.v3 import discovery_pb2

from gatehouse.agent.envoy.bootstrap import START
from gatehouse.dataplane.xds.resources import ROUTES_TYPE_URL

_SERVICE, _METHOD = "envoy.service.route.v3.RouteDiscoveryService", "DeltaRoutes"

_Request: TypeAlias = discovery_pb2.DeltaDiscoveryRequest
_Response: TypeAlias = discovery_pb2.DeltaDiscoveryResponse
_Context: TypeAlias = "grpc.aio.ServicerContext[_Request, _Response]"


class StartGate:
    """Gate of the Envoy that connected last."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        """``on_change``: called when an Envoy begins to wait, and when it has started."""
        self._on_change = on_change
        self.expected = False
        """True if an Envoy was started that does not wait yet."""
        self._opened: asyncio.Event | None = None
        """None if no Envoy is starting."""

    @property
    def closed(self) -> bool:
        """True if an Envoy waits."""
        return self._opened is not None and not self._opened.is_set()

    @property
    def opening(self) -> bool:
        """True if an Envoy may start and does not accept connections yet."""
        return self._opened is not None and self._opened.is_set()

    def open(self) -> None:
        """Let the waiting Envoy start."""
        if self._opened is not None:
            self._opened.set()

    def handler(self) -> grpc.GenericRpcHandler:
        """Return the handler of Envoy's requests."""
        method: grpc.RpcMethodHandler[_Request, _Response] = grpc.stream_stream_rpc_method_handler(
            self._serve,
            request_deserializer=_Request.FromString,
            response_serializer=_Response.SerializeToString,
        )
        return grpc.method_handlers_generic_handler(_SERVICE, {_METHOD: method})

    async def _serve(self, requests: AsyncIterator[_Request], context: _Context) -> None:
        await context.send_initial_metadata(())
        opened = asyncio.Event()
        try:
            async for request in requests:
                self.expected = False
                if request.response_nonce:
                    # Envoy has started its workers before it sends this.
                    self._end(opened)
                elif START not in request.initial_resource_versions:
                    # Otherwise it started with an earlier agent.
                    self._opened = opened
                    self._on_change()
                    await opened.wait()
                    await context.write(_routes())
        finally:
            self._end(opened)

    def _end(self, opened: asyncio.Event) -> None:
        if self._opened is opened:
            self._opened = None
            self._on_change()


def _routes() -> _Response:
    resource = discovery_pb2.Resource(name=START, version="1")
    resource.resource.Pack(route_pb2.RouteConfiguration(name=START))
    return _Response(type_url=ROUTES_TYPE_URL, nonce="1", resources=[resource])
