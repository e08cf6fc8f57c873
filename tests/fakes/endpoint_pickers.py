"""Endpoint pickers of InferencePools (Envoy's ext_proc) that record what they get.

The header ``x-pick`` of a request is the answer: endpoints, separated by commas; ``none`` names
none, and a number of three digits is the status of an immediate response.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

import grpc
import msgspec
from envoy.config.core.v3 import base_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as protocol
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc as service

from gatehouse.compiler.backends.envoy.protobufs import http_status

DESTINATION = "x-gateway-destination-endpoint"


class Exchange(msgspec.Struct):
    """A request and its response as a picker gets them."""

    headers: dict[str, str] = {}
    body: bytes = b""
    status: str = ""
    served: str = ""
    """Endpoint that answered."""
    response: bytes = b""
    """Body of the response."""
    responses: int = 0
    """Number of messages with a part of it."""
    peer: str = ""
    """Connection of the call."""


class Picker(service.ExternalProcessorServicer):
    """A picker. ``default``: the endpoint of requests that ask for none."""

    def __init__(self, default: str) -> None:
        self.default = default
        self.exchanges: list[Exchange] = []
        self.options: list[base_pb2.HeaderValueOption] = []
        """Further changes of header fields of requests."""
        self.in_header_only = False
        """True: the endpoints are in the header, and not in the metadata."""

    async def Process(
        self,
        request_iterator: AsyncIterator[protocol.ProcessingRequest],
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> AsyncIterator[protocol.ProcessingResponse]:
        exchange = Exchange(peer=context.peer())
        self.exchanges.append(exchange)
        async for message in request_iterator:
            async for answer in self._answers(exchange, message):
                yield answer

    async def pick(self, headers: Mapping[str, str]) -> str | int:
        """Return the endpoints of a request, or the status of an immediate response."""
        pick = headers.get("x-pick", self.default)
        if pick.isdigit():
            return int(pick)
        return "" if pick == "none" else pick

    def response_options(self, exchange: Exchange) -> Iterable[base_pb2.HeaderValueOption]:
        """Return changes of header fields of a response, whose header ``exchange`` has."""
        return ()

    async def _answers(
        self, exchange: Exchange, message: protocol.ProcessingRequest
    ) -> AsyncIterator[protocol.ProcessingResponse]:
        match message.WhichOneof("request"):
            case "request_headers":
                exchange.headers = _headers(message.request_headers)
                if message.request_headers.end_of_stream:
                    yield await self._picked(exchange)
            case "request_body":
                exchange.body += message.request_body.body
                if message.request_body.end_of_stream:
                    yield await self._picked(exchange)
                    yield _body("request_body", exchange.body, ends=True)
            case "response_headers":
                exchange.status = _headers(message.response_headers)[":status"]
                metadata = message.metadata_context.filter_metadata["envoy.lb"]
                exchange.served = str(dict(metadata.items()).get(f"{DESTINATION}-served", ""))
                answer = protocol.ProcessingResponse()
                mutation = answer.response_headers.response.header_mutation
                mutation.set_headers.extend(self.response_options(exchange))
                yield answer
            case "response_body":
                part = message.response_body
                exchange.response += part.body
                exchange.responses += 1
                yield _body("response_body", part.body, ends=part.end_of_stream)
            case "response_trailers":
                answer = protocol.ProcessingResponse()
                answer.response_trailers.SetInParent()
                yield answer

    async def _picked(self, exchange: Exchange) -> protocol.ProcessingResponse:
        """Return the response to the headers of a request."""
        answer, pick = protocol.ProcessingResponse(), await self.pick(exchange.headers)
        if isinstance(pick, int):
            answer.immediate_response.status.CopyFrom(http_status(pick))
            return answer
        answer.request_headers.SetInParent()
        if not pick:
            return answer
        mutation = answer.request_headers.response.header_mutation
        mutation.set_headers.append(header_option(DESTINATION, pick))
        mutation.set_headers.extend(self.options)
        if not self.in_header_only:
            answer.dynamic_metadata.update({"envoy.lb": {DESTINATION: pick}})
        return answer


def header_option(name: str, value: str) -> base_pb2.HeaderValueOption:
    """Return the change that sets a header field."""
    header = base_pb2.HeaderValue(key=name, raw_value=value.encode())
    return base_pb2.HeaderValueOption(header=header)


def _headers(message: protocol.HttpHeaders) -> dict[str, str]:
    return {
        item.key: item.raw_value.decode(errors="surrogateescape")
        for item in message.headers.headers
    }


def _body(field: str, content: bytes, *, ends: bool) -> protocol.ProcessingResponse:
    answer = protocol.ProcessingResponse()
    streamed = getattr(answer, field).response.body_mutation.streamed_response
    streamed.body, streamed.end_of_stream = content, ends
    return answer


@contextlib.asynccontextmanager
async def picking(
    picker: Picker, address: str, pair: tuple[bytes, bytes] | None, port: int = 0
) -> AsyncIterator[int]:
    """Serve a picker on an address; yield the port, a free one for 0.

    ``pair``: key and certificate, None for HTTP/2 without TLS.
    """
    server = grpc.aio.server()
    service.add_ExternalProcessorServicer_to_server(picker, server)
    if pair is None:
        port = server.add_insecure_port(f"{address}:{port}")
    else:
        port = server.add_secure_port(f"{address}:{port}", grpc.ssl_server_credentials([pair]))
    await server.start()
    try:
        yield port
    finally:
        await server.stop(0)
