"""The relay's end towards Envoy: a server on a unix socket, which only its owner can reach."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import structlog
from envoy.service.discovery.v3 import discovery_pb2

from gatehouse.agent.envoy.relay import Relay
from gatehouse.dataplane.xds import delta
from gatehouse.runtime.deadline import DeadlineWaiter

log = structlog.get_logger("gatehouse.agent")

SERVICE = "envoy.service.discovery.v3.AggregatedDiscoveryService"

_OPTIONS = (
    ("grpc.max_send_message_length", -1),
    # An Envoy that comes back says the name and version of all that it has.
    ("grpc.max_receive_message_length", -1),
    ("grpc.http2.max_ping_strikes", 0),
)


class Downstream:
    """Serves one Envoy. ``flush``: called when there may be something for the control plane."""

    def __init__(self, relay: Relay, flush: Callable[[], None]) -> None:
        self._relay = relay
        self._flush = flush
        self._woken = asyncio.Event()
        self._server: grpc.aio.Server | None = None

    @property
    def connected(self) -> bool:
        """Whether Envoy listens."""
        return self._relay.dialogue is not None

    def wake(self) -> None:
        """See whether there is something to say to Envoy."""
        self._woken.set()

    async def start(self, path: Path) -> None:
        """Listen on the socket ``path``; raises OSError."""
        server = grpc.aio.server(options=_OPTIONS)
        method: grpc.RpcMethodHandler[Any, Any] = grpc.stream_stream_rpc_method_handler(
            self._serve,
            request_deserializer=discovery_pb2.DeltaDiscoveryRequest.FromString,
        )
        handler = grpc.method_handlers_generic_handler(SERVICE, {delta.METHOD: method})
        server.add_generic_rpc_handlers((handler,))
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
        requests: AsyncIterator[discovery_pb2.DeltaDiscoveryRequest],
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> None:
        await context.send_initial_metadata(())
        dialogue = self._relay.opened()
        self._woken.set()
        log.info("envoy connected")
        tasks = (
            asyncio.create_task(self._read(dialogue, requests)),
            asyncio.create_task(self._write(dialogue, context)),
        )
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self._relay.closed(dialogue)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(
        self,
        dialogue: delta.DeltaStream,
        requests: AsyncIterator[discovery_pb2.DeltaDiscoveryRequest],
    ) -> None:
        async for message in requests:
            if self._relay.dialogue is not dialogue:
                return
            self._relay.receive(message)
            self._woken.set()
            self._flush()

    async def _write(
        self, dialogue: delta.DeltaStream, context: grpc.aio.ServicerContext[Any, Any]
    ) -> None:
        patience = DeadlineWaiter()
        while self._relay.dialogue is dialogue:
            self._woken.clear()
            message = self._relay.next()
            self._flush()
            if message is not None:
                await context.write(message)
            elif not await patience.wait(self._woken, dialogue.conversation.deadline):
                self._relay.on_deadline()
                self._flush()
