"""Client end of the relay: the ADS stream to the control plane."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TypeAlias

import grpc.aio
import structlog
from envoy.service.discovery.v3 import discovery_pb2

from gatehouse.agent.channel import configured_token, open_channel
from gatehouse.agent.envoy.relay import DeltaRequest, Relay
from gatehouse.agent.options import AgentOptions
from gatehouse.agent.reconnect import ReconnectLoop
from gatehouse.dataplane.xds import delta

log = structlog.get_logger("gatehouse.agent")

_METHOD = f"/envoy.service.discovery.v3.AggregatedDiscoveryService/{delta.DELTA_METHOD}"

Call: TypeAlias = "grpc.aio.StreamStreamCall[DeltaRequest, discovery_pb2.DeltaDiscoveryResponse]"

Method: TypeAlias = (
    "grpc.aio.StreamStreamMultiCallable[DeltaRequest, discovery_pb2.DeltaDiscoveryResponse]"
)


class ControlPlaneStream:
    """Keeps one stream to the control plane."""

    def __init__(
        self,
        options: AgentOptions,
        relay: Relay,
        on_response: Callable[[], None],
        holds_requests: Callable[[], bool],
    ) -> None:
        """``on_response``: called after each response. Nothing is sent while ``holds_requests``
        returns true. Call :meth:`flush` when it no longer does."""
        self._reconnecting = ReconnectLoop(options.server_host)
        self._options = options
        self._relay = relay
        self._on_response, self._holds_requests = on_response, holds_requests
        self._token = configured_token(options)
        self._woken = asyncio.Event()

    def flush(self) -> None:
        """Send the pending requests of the relay."""
        self._woken.set()

    @property
    def connected(self) -> bool:
        """Return whether the control plane has accepted the stream."""
        return self._reconnecting.connected

    async def run(self) -> None:
        """Stay connected until cancelled. No error of the control plane ends this."""
        await self._reconnecting.run(self._connect_once)

    async def _connect_once(self) -> None:
        while self._relay.node is None:
            # The first request needs Envoy's node message.
            await self._wait()
        channel = open_channel(self._options)
        sending: asyncio.Task[None] | None = None
        try:
            method: Method = channel.stream_stream(
                _METHOD,
                request_serializer=DeltaRequest.SerializeToString,
                response_deserializer=discovery_pb2.DeltaDiscoveryResponse.FromString,
            )
            call = method(metadata=self._metadata())
            # A rejected call has no initial metadata. An accepted one may not get a response soon.
            if delta.INITIAL_RESPONSE in tuple(await call.initial_metadata() or ()):
                self._reconnecting.established()
            self._relay.connected()
            sending = asyncio.create_task(self._send_requests(call))
            async for response in self._responses(call, sending):
                self._reconnecting.established()
                self._relay.on_message(response)
                self._on_response()
        finally:
            if sending is not None:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
            await channel.close()

    async def _responses(
        self, call: Call, sending: asyncio.Task[None]
    ) -> AsyncIterator[discovery_pb2.DeltaDiscoveryResponse]:
        """Yield responses until the stream ends or a new stream is needed."""
        reading = asyncio.ensure_future(call.read())
        try:
            while True:
                done, _ = await asyncio.wait(
                    {reading, sending}, return_when=asyncio.FIRST_COMPLETED
                )
                if sending in done:
                    sending.result()
                    return
                response = reading.result()
                if not isinstance(response, discovery_pb2.DeltaDiscoveryResponse):
                    # The end of the stream, grpc.aio.EOF.
                    return
                yield response
                reading = asyncio.ensure_future(call.read())
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _send_requests(self, call: Call) -> None:
        """Send requests until a new stream is needed."""
        while True:
            while self._relay.requests and not self._holds_requests():
                try:
                    await call.write(self._relay.requests.pop(0))
                except asyncio.InvalidStateError:
                    # The call has ended. Reading from it raises the reason.
                    await asyncio.Event().wait()
            if self._relay.needs_resubscribe:
                log.warning("acknowledged resources missing, resubscribing")
                return
            await self._wait()

    async def _wait(self) -> None:
        await self._woken.wait()
        self._woken.clear()

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        labels = tuple((key.lower(), value) for key, value in self._options.labels.items())
        if self._token is None:
            return labels
        return (("authorization", self._token.read()), *labels)
