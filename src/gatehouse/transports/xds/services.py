"""The RPCs of aggregated discovery."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import grpc.aio

from gatehouse.dataplane.xds import delta, sotw
from gatehouse.dataplane.xds.snapshot_cache import SnapshotCache
from gatehouse.runtime.deadline import DeadlineWaiter
from gatehouse.transports.agents.call_auth import CallAuthorizer, Context, abort, cancel_at_expiry
from gatehouse.transports.xds.fleet import Dialogue, Fleet, Stream

SERVICE = "envoy.service.discovery.v3.AggregatedDiscoveryService"


class Services:
    """AggregatedDiscoveryService."""

    def __init__(self, fleet: Fleet, callers: CallAuthorizer) -> None:
        self._fleet = fleet
        self._callers = callers

    def handlers(self) -> list[grpc.GenericRpcHandler]:
        """Give the service, to be added to a server."""
        methods = {
            delta.METHOD: self._method(delta.DeltaStream),
            sotw.METHOD: self._method(sotw.SotwStream),
        }
        return [grpc.method_handlers_generic_handler(SERVICE, methods)]

    def _method(self, dialogue: Any) -> grpc.RpcMethodHandler[Any, Any]:
        async def serve(requests: AsyncIterator[Any], context: Context) -> None:
            await self._serve(dialogue, requests, context)

        # Responses are bytes already.
        return grpc.stream_stream_rpc_method_handler(
            serve,
            request_deserializer=dialogue.Message.FromString,
        )

    async def _serve(
        self,
        make: Callable[[SnapshotCache], Dialogue],
        requests: AsyncIterator[Any],
        context: Context,
    ) -> None:
        identity = await self._callers.identify(context)
        # Clients may wait for this before they say anything.
        await context.send_initial_metadata((delta.INITIAL_RESPONSE,))
        stream = self._fleet.open(identity, make)
        if stream is None:
            await abort(context, grpc.StatusCode.UNAVAILABLE, "older streams have not ended yet")
        reading = asyncio.create_task(_read(stream, requests))
        writing = asyncio.create_task(self._write(stream, context))
        stream.on_end = writing.cancel
        try:
            with cancel_at_expiry(identity, stream.end):
                done, _ = await asyncio.wait(
                    {reading, writing}, return_when=asyncio.FIRST_COMPLETED
                )
            if stream.ended:
                await abort(context, grpc.StatusCode.UNAVAILABLE, "this stream was ended here")
            for task in done:
                task.result()
        finally:
            self._fleet.close(stream)
            for task in (reading, writing):
                task.cancel()
            await asyncio.gather(reading, writing, return_exceptions=True)

    async def _write(self, stream: Stream, context: Context) -> None:
        conversation, patience = stream.dialogue.conversation, DeadlineWaiter()
        while True:
            stream.woken.clear()
            message = stream.dialogue.next()
            self._fleet.note(stream)
            if message is not None:
                await context.write(message)
            elif not await patience.wait(stream.woken, conversation.deadline):
                conversation.on_deadline()


async def _read(stream: Stream, requests: AsyncIterator[Any]) -> None:
    async for message in requests:
        if message.HasField("node"):
            stream.speaker = delta.node_info(message.node)
        stream.dialogue.receive(message)
        stream.woken.set()
