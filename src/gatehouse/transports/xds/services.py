"""The RPCs of ADS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import grpc
import grpc.aio
from envoy.service.discovery.v3 import discovery_pb2

from gatehouse.dataplane.xds import delta, sotw
from gatehouse.dataplane.xds.snapshot_cache import SnapshotCache
from gatehouse.runtime.deadline import DeadlineWaiter
from gatehouse.transports.agents.call_auth import (
    CallAuthorizer,
    CallContext,
    abort,
)
from gatehouse.transports.xds.fleet import AdsStream, AnyStream, Dialogue, EnvoyFleet

ADS_SERVICE = "envoy.service.discovery.v3.AggregatedDiscoveryService"

RequestT = TypeVar("RequestT", discovery_pb2.DeltaDiscoveryRequest, discovery_pb2.DiscoveryRequest)


class XdsServices:
    """AggregatedDiscoveryService."""

    def __init__(self, fleet: EnvoyFleet, callers: CallAuthorizer) -> None:
        self._fleet = fleet
        self._callers = callers

    def handlers(self) -> list[grpc.GenericRpcHandler]:
        """Return the handlers of the service."""
        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            delta.DELTA_METHOD: self._method(
                delta.DeltaStream, delta.DeltaStream.Message.FromString
            ),
            sotw.SOTW_METHOD: self._method(sotw.SotwStream, sotw.SotwStream.Message.FromString),
        }
        return [grpc.method_handlers_generic_handler(ADS_SERVICE, methods)]

    def _method(
        self,
        make: Callable[[SnapshotCache], Dialogue[RequestT]],
        parse: Callable[[bytes], RequestT],
    ) -> grpc.RpcMethodHandler[RequestT, bytes]:
        async def serve(requests: AsyncIterator[RequestT], context: CallContext) -> None:
            await self._serve(make, requests, context)

        # Responses are serialised already.
        return grpc.stream_stream_rpc_method_handler(
            serve,
            request_deserializer=parse,
        )

    async def _serve(
        self,
        make: Callable[[SnapshotCache], Dialogue[RequestT]],
        requests: AsyncIterator[RequestT],
        context: CallContext,
    ) -> None:
        identity = await self._callers.identify(context)
        # Clients may wait for this before they send a request.
        await context.send_initial_metadata((delta.INITIAL_RESPONSE,))
        stream = self._fleet.open(identity, make)
        if stream is None:
            await abort(
                context,
                grpc.StatusCode.UNAVAILABLE,
                "too many streams of this instance are still open",
            )
        reading = asyncio.create_task(_read(stream, requests))
        writing = asyncio.create_task(self._write(stream, context))
        stream.on_end = writing.cancel
        try:
            async with self._callers.until_revoked(identity, context, stream.end):
                done, _ = await asyncio.wait(
                    {reading, writing}, return_when=asyncio.FIRST_COMPLETED
                )
            if stream.ended:
                await abort(context, grpc.StatusCode.UNAVAILABLE, "stream ended by the server")
            for task in done:
                task.result()
        finally:
            self._fleet.close(stream)
            for task in (reading, writing):
                task.cancel()
            await asyncio.gather(reading, writing, return_exceptions=True)

    async def _write(self, stream: AnyStream, context: CallContext) -> None:
        session, waiter = stream.dialogue.conversation, DeadlineWaiter()
        while True:
            stream.woken.clear()
            message = stream.dialogue.next()
            self._fleet.update_report(stream)
            if message is not None:
                await context.write(message)
            elif not await waiter.wait(stream.woken, session.deadline):
                session.on_deadline()


async def _read(stream: AdsStream[RequestT], requests: AsyncIterator[RequestT]) -> None:
    async for message in requests:
        if message.HasField("node"):
            stream.node = delta.node_info(message.node)
        stream.dialogue.receive(message)
        stream.woken.set()
