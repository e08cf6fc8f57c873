"""The RPCs of agent v2's services, each a few lines between the wire and the fleet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
from google.protobuf import empty_pb2

from gatehouse.transports.agents.call_auth import CallAuthorizer, Context, serve_stream
from gatehouse.transports.agents.fleet import Fleet
from gatehouse.transports.agents.session import Answer, Restarted
from gatehouse.transports.agents.stream import Apply, Stream
from gatehouse.transports.commander import main_file, messages, payload
from gatehouse.wire.agent_sdk import commander_pb2

_PACKAGE = "f5.nginx.agent.sdk"


class Services:
    """Commander, and a MetricsService that drops what it gets."""

    def __init__(self, fleet: Fleet, callers: CallAuthorizer) -> None:
        self._fleet = fleet
        self._callers = callers

    def handlers(self) -> list[grpc.GenericRpcHandler]:
        """Give both services, to be added to a server."""
        commander: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "CommandChannel": grpc.stream_stream_rpc_method_handler(
                self._channel, request_deserializer=commander_pb2.Command.FromString
            ),
            "Download": grpc.unary_stream_rpc_method_handler(
                self._download,
                request_deserializer=commander_pb2.DownloadRequest.FromString,
                response_serializer=commander_pb2.DataChunk.SerializeToString,
            ),
            "Upload": grpc.stream_unary_rpc_method_handler(
                self._upload,
                request_deserializer=commander_pb2.DataChunk.FromString,
                response_serializer=commander_pb2.UploadStatus.SerializeToString,
            ),
        }
        # Without a deserializer: what is dropped need not be read.
        drop: grpc.RpcMethodHandler[bytes, empty_pb2.Empty] = grpc.stream_unary_rpc_method_handler(
            self._drop, response_serializer=empty_pb2.Empty.SerializeToString
        )
        metrics: dict[str, grpc.RpcMethodHandler[Any, Any]] = {"Stream": drop, "StreamEvents": drop}
        return [
            grpc.method_handlers_generic_handler(f"{_PACKAGE}.Commander", commander),
            grpc.method_handlers_generic_handler(f"{_PACKAGE}.MetricsService", metrics),
        ]

    async def _channel(
        self, commands: AsyncIterator[commander_pb2.Command], context: Context
    ) -> None:
        identity = await self._callers.identify(context)
        await serve_stream(
            self._fleet,
            identity,
            context,
            lambda stream: self._read_commands(stream, commands),
            lambda asked: messages.apply(asked.correlation, asked.about.nginx_id, asked.version),
        )

    async def _read_commands(
        self, stream: Stream, commands: AsyncIterator[commander_pb2.Command]
    ) -> None:
        wished = False
        async for command in commands:
            match command.WhichOneof("data"):
                case "agent_connect_request":
                    self._register(stream, command)
                case "dataplane_status":
                    status = command.dataplane_status
                    for event in messages.told_by_status(status):
                        self._fleet.receive(stream.identity, event)
                    if not wished and not self._fleet.knows(stream.identity):
                        wished = _wish_for_upload(stream, status)
                case "nginx_config_response":
                    refusal = messages.refusal(command.nginx_config_response.status)
                    if refusal is not None:
                        answer = Answer(command.meta.message_id, refusal)
                        self._fleet.receive(stream.identity, answer)

    def _register(self, stream: Stream, command: commander_pb2.Command) -> None:
        # An agent does this once in its life: one that only reconnects does not.
        stream.say(messages.connected(command.meta.message_id))
        about = messages.registered(command.agent_connect_request)
        self._fleet.receive(stream.identity, Restarted(about))

    async def _download(
        self, request: commander_pb2.DownloadRequest, context: Context
    ) -> AsyncIterator[commander_pb2.DataChunk]:
        identity = await self._callers.identify(context)
        correlation = request.meta.message_id
        asked = self._fleet.asked(identity, correlation)
        if asked is None:
            # The other instances of its own gateway are asked for the same bundle.
            holder = self._fleet.pending_for(correlation)
            await self._callers.missing(
                context,
                identity,
                "a configuration",
                "" if holder == identity.gateway else holder,
                "nothing was asked under this id",
            )
        for chunk in payload.chunks(await _document(asked), messages.meta(correlation)):
            self._fleet.fetching(identity)
            yield chunk

    async def _upload(
        self, chunks: AsyncIterator[commander_pb2.DataChunk], context: Context
    ) -> commander_pb2.UploadStatus:
        # After each apply an agent sends what it has then, again and again until that is taken.
        identity = await self._callers.identify(context)
        message_id, uploaded = "", bytearray()
        async for chunk in chunks:
            message_id = message_id or chunk.header.meta.message_id
            if not self._fleet.knows(identity) and len(uploaded) < payload.UPLOAD_MAX:
                uploaded += chunk.data.data
        about = main_file.described(payload.beginning(bytes(uploaded))) if uploaded else None
        if about is not None:
            self._fleet.receive(identity, about)
        status = commander_pb2.UploadStatus.TransferStatus.OK
        return commander_pb2.UploadStatus(meta=messages.meta(message_id), status=status)

    async def _drop(self, reports: AsyncIterator[bytes], context: Context) -> empty_pb2.Empty:
        await self._callers.identify(context)
        async for _ in reports:
            pass
        return empty_pb2.Empty()


def _wish_for_upload(stream: Stream, status: commander_pb2.DataplaneStatus) -> bool:
    """Have an agent that registered with another control plane show what it was given there.

    Its reports name its NGINX, and describe it only once a day.
    """
    if len(status.healths) != 1:
        return False
    nginx_id = status.healths[0].nginx_id
    stream.say(messages.wish_for_upload(status.system_id, nginx_id))
    return True


async def _document(asked: Apply) -> bytes:
    """Give what is fetched for ``asked``, compressed once for all instances, in another thread."""
    published = asked.published
    bundle = published.bundle
    main = main_file.make(asked.about, bundle)
    packing = published.derive(
        main, lambda: asyncio.ensure_future(asyncio.to_thread(payload.archive, bundle, main))
    )
    # One that waits may be cancelled; the others go on waiting.
    packed = await asyncio.shield(packing)
    return payload.document(bundle, packed, main, asked.about)
