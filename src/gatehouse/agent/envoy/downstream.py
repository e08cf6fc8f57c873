"""Server end of the relay: the ADS server for Envoy on a private Unix socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Protocol, TypeAlias

import grpc
import grpc.aio
import structlog
from envoy.service.discovery.v3 import discovery_pb2

from gatehouse.agent.envoy.relay import DeltaRequest
from gatehouse.dataplane.xds import delta
from gatehouse.runtime import grpc_limits
from gatehouse.runtime.deadline import DeadlineWaiter

log = structlog.get_logger("gatehouse.agent")

_SERVICE = "envoy.service.discovery.v3.AggregatedDiscoveryService"

OPTIONS = grpc_limits.server_options(grpc_limits.MAX_RESOURCE_LIST_BYTES, max_streams=4)

_Context: TypeAlias = "grpc.aio.ServicerContext[DeltaRequest, bytes]"


class ResourceSource(Protocol):
    """Source of the resources of one Envoy, such as a relay."""

    @property
    def stream(self) -> delta.DeltaStream | None:
        """The current stream; None if Envoy is not connected."""

    def opened(self) -> delta.DeltaStream:
        """Start a stream, which replaces the current one."""

    def closed(self, stream: delta.DeltaStream) -> None:
        """Process the end of a stream."""

    def receive(self, message: DeltaRequest) -> None:
        """Process a request of the current stream."""

    def next(self) -> bytes | None:
        """Return the next response, or None if there is nothing to send now."""

    def on_deadline(self) -> None:
        """Process that Envoy did not react in time."""


class Downstream:
    """ADS server for one Envoy. `flush` is called when there may be requests or changes to send."""

    def __init__(
        self,
        relay: ResourceSource,
        flush: Callable[[], None],
        *more: grpc.GenericRpcHandler,
    ) -> None:
        """`more`: handlers of other services for the same Envoy."""
        self._relay = relay
        self._flush = flush
        self._more = more
        self._woken = asyncio.Event()
        self._server: grpc.aio.Server | None = None

    @property
    def connected(self) -> bool:
        """Return whether Envoy is connected."""
        return self._relay.stream is not None

    def wake(self) -> None:
        """Check whether there is a message for Envoy."""
        self._woken.set()

    async def start(self, path: Path) -> None:
        """Listen on the socket `path`. Raises OSError."""
        server = grpc.aio.server(options=OPTIONS)
        method: grpc.RpcMethodHandler[DeltaRequest, bytes] = grpc.stream_stream_rpc_method_handler(
            self._serve,
            request_deserializer=discovery_pb2.DeltaDiscoveryRequest.FromString,
        )
        handler = grpc.method_handlers_generic_handler(_SERVICE, {delta.DELTA_METHOD: method})
        server.add_generic_rpc_handlers((handler, *self._more))
        try:
            server.add_insecure_port(f"unix:{path}")
        except RuntimeError as error:
            raise OSError(f"cannot listen on {path}: {error}") from error
        await server.start()
        self._server = server

    async def stop(self) -> None:
        """End the stream and close. Idempotent."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(0.1)

    async def _serve(
        self,
        requests: AsyncIterator[DeltaRequest],
        context: _Context,
    ) -> None:
        await context.send_initial_metadata(())
        stream = self._relay.opened()
        self._woken.set()
        log.info("envoy connected")
        tasks = (
            asyncio.create_task(self._read(stream, requests)),
            asyncio.create_task(self._write(stream, context)),
        )
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self._relay.closed(stream)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(
        self,
        stream: delta.DeltaStream,
        requests: AsyncIterator[DeltaRequest],
    ) -> None:
        async for message in requests:
            if self._relay.stream is not stream:
                return
            self._relay.receive(message)
            self._woken.set()
            self._flush()

    async def _write(self, stream: delta.DeltaStream, context: _Context) -> None:
        waiter = DeadlineWaiter()
        while self._relay.stream is stream:
            self._woken.clear()
            message = self._relay.next()
            self._flush()
            if message is not None:
                await context.write(message)
            elif not await waiter.wait(self._woken, stream.conversation.deadline):
                self._relay.on_deadline()
                self._flush()
