"""The RPCs of agent v2's services; they pass messages between the wire and the fleet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
from google.protobuf import empty_pb2

from gatehouse.transports.agents.call_auth import (
    CallAuthorizer,
    CallContext,
    serve_stream,
)
from gatehouse.transports.agents.fleet import AgentFleet
from gatehouse.transports.agents.session import Restarted
from gatehouse.transports.agents.stream import Apply, Stream
from gatehouse.transports.commander import main_file, messages, payload
from gatehouse.wire.agent_sdk import commander_pb2

_PACKAGE = "f5.nginx.agent.sdk"


class CommanderServices:
    """Commander, and a MetricsService that discards its input."""

    def __init__(self, fleet: AgentFleet, callers: CallAuthorizer) -> None:
        self._fleet = fleet
        self._callers = callers
        self._uploading: set[tuple[str, str]] = set()
        """Gateways and instances whose upload is in progress and kept in memory."""

    def handlers(self) -> list[grpc.GenericRpcHandler]:
        """Return the handlers of both services."""
        commander: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "CommandChannel": grpc.stream_stream_rpc_method_handler(self._channel),
            "Download": grpc.unary_stream_rpc_method_handler(
                self._download,
                response_serializer=commander_pb2.DataChunk.SerializeToString,
            ),
            "Upload": grpc.stream_unary_rpc_method_handler(
                self._upload,
                response_serializer=commander_pb2.UploadStatus.SerializeToString,
            ),
        }
        # No deserializer: discarded messages need no parsing.
        discard: grpc.RpcMethodHandler[bytes, empty_pb2.Empty] = (
            grpc.stream_unary_rpc_method_handler(
                self._discard, response_serializer=empty_pb2.Empty.SerializeToString
            )
        )
        metrics: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "Stream": discard,
            "StreamEvents": discard,
        }
        return [
            grpc.method_handlers_generic_handler(f"{_PACKAGE}.Commander", commander),
            grpc.method_handlers_generic_handler(f"{_PACKAGE}.MetricsService", metrics),
        ]

    async def _channel(self, commands: AsyncIterator[bytes], context: CallContext) -> None:
        identity = await self._callers.identify(context)
        await serve_stream(
            self._callers,
            self._fleet,
            identity,
            context,
            lambda stream: self._read_commands(stream, commands),
            lambda apply: messages.config_apply_request(
                apply.correlation, apply.about.nginx_id, apply.version
            ),
        )

    async def _read_commands(self, stream: Stream, commands: AsyncIterator[bytes]) -> None:
        upload_requested = False
        parse = commander_pb2.Command.FromString
        async for command in self._callers.parsed(stream.identity, parse, commands):
            match command.WhichOneof("data"):
                case "agent_connect_request":
                    self._register(stream, command)
                case "dataplane_status":
                    status = command.dataplane_status
                    about = self._fleet.about(stream.identity)
                    for event in messages.status_events(about, status):
                        self._fleet.receive(stream.identity, event)
                    if not upload_requested and not self._fleet.knows(stream.identity):
                        upload_requested = _request_upload(stream, status)
                case "nginx_config_response":
                    error = messages.commander_error(command.nginx_config_response.status)
                    if error is not None:
                        answer = messages.apply_response(command.meta.message_id, error)
                        self._fleet.receive(stream.identity, answer)

    def _register(self, stream: Stream, command: commander_pb2.Command) -> None:
        # An agent registers once in its lifetime, not on reconnection.
        stream.send_message(messages.registration_response(command.meta.message_id))
        about = messages.registered(command.agent_connect_request)
        self._fleet.receive(stream.identity, Restarted(about))

    async def _download(
        self, message: bytes, context: CallContext
    ) -> AsyncIterator[commander_pb2.DataChunk]:
        parse = commander_pb2.DownloadRequest.FromString
        identity, request = await self._callers.receive(context, parse, message)
        correlation = request.meta.message_id
        apply = self._fleet.request(identity, correlation)
        if apply is None:

            def holder() -> str:
                # Other instances of the caller's own Gateway have a request for the same file set.
                gateway = self._fleet.pending_for(correlation)
                return "" if gateway == identity.gateway else gateway

            await self._callers.abort_not_found(
                context, identity, "a configuration", holder, "no request with this id"
            )
        for chunk in payload.payload_chunks(
            await _document(apply), messages.build_meta(correlation)
        ):
            self._fleet.fetching(identity)
            yield chunk

    async def _upload(
        self, chunks: AsyncIterator[bytes], context: CallContext
    ) -> commander_pb2.UploadStatus:
        # After each apply, an agent uploads its configuration and retries until it succeeds.
        identity = await self._callers.identify(context)
        instance = (identity.gateway, identity.instance)
        is_first = instance not in self._uploading
        self._uploading.add(instance)
        message_id, uploaded = "", bytearray()
        parse, published = commander_pb2.DataChunk.FromString, self._fleet.fetch_units(identity)
        parsed = self._callers.parsed_to_end(context, identity, parse, chunks, published)
        try:
            async for chunk in parsed:
                message_id = message_id or chunk.header.meta.message_id
                needed = is_first and not self._fleet.knows(identity)
                if needed and len(uploaded) < payload.MAX_UPLOAD_BYTES:
                    uploaded += chunk.data.data
        finally:
            if is_first:
                self._uploading.discard(instance)
        about = (
            main_file.read_description(payload.uploaded_head(bytes(uploaded))) if uploaded else None
        )
        if about is not None:
            self._fleet.receive(identity, about)
        status = commander_pb2.UploadStatus.TransferStatus.OK
        return commander_pb2.UploadStatus(meta=messages.build_meta(message_id), status=status)

    async def _discard(
        self, reports: AsyncIterator[bytes], context: CallContext
    ) -> empty_pb2.Empty:
        identity = await self._callers.identify(context)
        async for _ in self._callers.parsed_to_end(context, identity, bytes, reports):
            pass
        return empty_pb2.Empty()


def _request_upload(stream: Stream, status: commander_pb2.DataplaneStatus) -> bool:
    """Request an upload from an agent that registered with another control plane.

    Its reports name its NGINX but describe it only once a day.
    """
    if len(status.healths) != 1:
        return False
    nginx_id = status.healths[0].nginx_id
    stream.send_message(messages.request_upload(status.system_id, nginx_id))
    return True


async def _document(apply: Apply) -> bytes:
    """Return the payload for ``apply``, compressed in a thread once for all instances."""
    published = apply.published
    file_set = published.file_set
    main = main_file.build(apply.about, file_set)
    packing = published.derive(
        main, lambda: asyncio.ensure_future(asyncio.to_thread(payload.archive, file_set, main))
    )
    # A cancelled call must not cancel the compression that others wait for.
    packed = await asyncio.shield(packing)
    return payload.document(file_set, packed, main, apply.about)
