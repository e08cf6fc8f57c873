"""The relay's end towards the control plane."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc.aio
import structlog
from envoy.service.discovery.v3 import discovery_pb2

from gatehouse.agent.channel import Token, open_channel
from gatehouse.agent.envoy.relay import DeltaRequest, Relay
from gatehouse.agent.options import Options
from gatehouse.agent.reconnect import Backoff, ReconnectLoop
from gatehouse.dataplane.xds import delta

log = structlog.get_logger("gatehouse.agent")

METHOD = f"/envoy.service.discovery.v3.AggregatedDiscoveryService/{delta.METHOD}"

BACKOFF = Backoff(first=0.25, max_seconds=10.0)


class Upstream:
    """Keeps one stream to the control plane. ``wake``: called when Envoy may have to be told."""

    def __init__(self, options: Options, relay: Relay, wake: Callable[[], None]) -> None:
        self._reconnecting = ReconnectLoop(options.server_host, BACKOFF)
        self._options = options
        self._relay = relay
        self._wake = wake
        self._token = Token(options.token_path) if options.token_path else None
        self._woken = asyncio.Event()

    def flush(self) -> None:
        """Say what the relay has to say to the control plane."""
        self._woken.set()

    @property
    def connected(self) -> bool:
        """Whether the control plane has taken up the stream."""
        return self._reconnecting.connected

    async def run(self) -> None:
        """Stay connected until cancelled. Nothing the control plane does ends this."""
        await self._reconnecting.run(self._converse)

    async def _converse(self) -> None:
        while self._relay.node is None:
            # Nothing can be asked before Envoy has said who it is.
            await self._wait()
        channel = open_channel(self._options)
        asking: asyncio.Task[None] | None = None
        try:
            method: Any = channel.stream_stream(
                METHOD,
                request_serializer=DeltaRequest.SerializeToString,
                response_deserializer=discovery_pb2.DeltaDiscoveryResponse.FromString,
            )
            call = method(metadata=self._metadata())
            # Of a call that is refused there is none; one that is taken up may have nothing to say.
            if delta.INITIAL_RESPONSE in tuple(await call.initial_metadata() or ()):
                self._reconnecting.established()
            self._relay.connected()
            asking = asyncio.create_task(self._say(call))
            async for response in self._responses(call, asking):
                self._reconnecting.established()
                self._relay.on_message(response)
                self._woken.set()
                self._wake()
        finally:
            if asking is not None:
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
            await channel.close()

    async def _responses(
        self, call: Any, asking: asyncio.Task[None]
    ) -> AsyncIterator[discovery_pb2.DeltaDiscoveryResponse]:
        """Give what comes until the stream ends, or the control plane is to be asked anew."""
        reading: asyncio.Task[Any] = asyncio.ensure_future(call.read())
        try:
            while True:
                done, _ = await asyncio.wait({reading, asking}, return_when=asyncio.FIRST_COMPLETED)
                if asking in done:
                    asking.result()
                    return
                response = reading.result()
                if response is grpc.aio.EOF:
                    return
                yield response
                reading = asyncio.ensure_future(call.read())
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _say(self, call: Any) -> None:
        """Say what there is to say; returns when the control plane is to be asked anew."""
        while True:
            while self._relay.asks:
                try:
                    await call.write(self._relay.asks.pop(0))
                except asyncio.InvalidStateError:
                    # The call has ended, and reading from it says why.
                    await asyncio.Event().wait()
            if self._relay.doubtful:
                log.warning("what was said to be taken is not; asking the control plane anew")
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
