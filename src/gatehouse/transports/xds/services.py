"""The RPCs of ADS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Container
from typing import Any, TypeVar

import grpc
import grpc.aio
from envoy.service.discovery.v3 import discovery_pb2

from gatehouse.dataplane.agent_limits import (
    ENTRY_BYTES,
    MAX_NAMES_PER_SECOND,
    MAX_REQUEST_HEAD_BYTES,
    MAX_SUBSCRIPTION_BYTES,
    MessageRefused,
)
from gatehouse.dataplane.xds import delta, protobuf_wire, sotw
from gatehouse.dataplane.xds.snapshot_cache import SnapshotCache
from gatehouse.runtime.deadline import DeadlineWaiter
from gatehouse.transports.agents.call_auth import (
    CallAuthorizer,
    CallContext,
    abort,
)
from gatehouse.transports.xds.fleet import (
    TOO_MANY_NAMES,
    AdsStream,
    AnyStream,
    Dialogue,
    EnvoyFleet,
)

TOO_LARGE_HEAD = f"the message has more than {MAX_REQUEST_HEAD_BYTES} bytes besides its names"

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
    ) -> grpc.RpcMethodHandler[bytes, bytes]:
        async def serve(requests: AsyncIterator[bytes], context: CallContext) -> None:
            await self._serve(make, parse, requests, context)

        # Requests are parsed once they are known to be small enough; responses are serialised
        # already.
        return grpc.stream_stream_rpc_method_handler(serve)

    async def _serve(
        self,
        make: Callable[[SnapshotCache], Dialogue[RequestT]],
        parse: Callable[[bytes], RequestT],
        requests: AsyncIterator[bytes],
        context: CallContext,
    ) -> None:
        identity = await self._callers.identify(context)
        await self._callers.count(context, identity)
        # Clients may wait for this before they send a request.
        await context.send_initial_metadata((delta.INITIAL_RESPONSE,))
        stream = self._fleet.open(identity, make)
        if stream is None:
            await abort(
                context,
                grpc.StatusCode.UNAVAILABLE,
                "too many streams of this instance are still open",
            )
        try:
            async with self._callers.until_revoked(identity, context, stream.end):
                await self._exchange(stream, parse, requests, context)
            # A client that reads nothing delays the end of the call, and then keeps no state.
            stream.release()
            if stream.refusal is not None:
                await self._callers.abort_refused(context, identity, stream.refusal)
            if stream.ended:
                await abort(context, grpc.StatusCode.UNAVAILABLE, "stream ended by the server")
        finally:
            self._fleet.close(stream)

    async def _exchange(
        self,
        stream: AdsStream[RequestT],
        parse: Callable[[bytes], RequestT],
        requests: AsyncIterator[bytes],
        context: CallContext,
    ) -> None:
        """Serve both directions of a stream until either ends."""
        reading = asyncio.create_task(self._read(stream, parse, requests))
        writing = asyncio.create_task(self._write(stream, context))
        stream.on_end = writing.cancel
        try:
            done, _ = await asyncio.wait({reading, writing}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if not stream.ended:
                    task.result()
        finally:
            for task in (reading, writing):
                task.cancel()
            await asyncio.gather(reading, writing, return_exceptions=True)

    async def _read(
        self,
        stream: AdsStream[RequestT],
        parse: Callable[[bytes], RequestT],
        requests: AsyncIterator[bytes],
    ) -> None:
        try:
            async for request in requests:
                names = self._receive(stream, parse, request)
                # An idle stream does not keep its last request.
                del request
                await asyncio.sleep(names / MAX_NAMES_PER_SECOND)
        except MessageRefused as refused:
            stream.refusal = refused

    def _receive(
        self, stream: AdsStream[RequestT], parse: Callable[[bytes], RequestT], request: bytes
    ) -> int:
        """Process a request and return the number of its names. Raises MessageRefused."""
        names = _check_size(request, stream.dialogue.list_fields)
        message = parse(request)
        # Their number is that of the responses.
        if not stream.dialogue.is_answer(message):
            published = self._fleet.published_resources(stream.identity)
            self._callers.count_request(stream.identity, len(request), published)
        if message.HasField("node"):
            stream.node = delta.node_info(message.node)
        stream.receive(message)
        return names

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


def _check_size(request: bytes, list_fields: Container[int]) -> int:
    """Return the number of names in a request. Raises MessageRefused if it is too large.

    A parsed message of many empty parts takes up to 46 times as much memory as its bytes.
    """
    names = head_bytes = 0
    max_names = (MAX_SUBSCRIPTION_BYTES - len(request)) // ENTRY_BYTES
    try:
        for field, length in protobuf_wire.field_lengths(request):
            if field in list_fields:
                names += 1
            else:
                head_bytes += length
            if names > max_names:
                raise MessageRefused(TOO_MANY_NAMES)
            if head_bytes > MAX_REQUEST_HEAD_BYTES:
                raise MessageRefused(TOO_LARGE_HEAD)
    except ValueError as error:
        raise MessageRefused(f"the message is not valid protobuf: {error}") from None
    return names
