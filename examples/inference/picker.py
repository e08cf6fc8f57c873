"""An endpoint picker that sends all requests of a conversation to the same model server.

It chooses by the first message, so that the server has it in its cache. A real one knows the Pods
of the pool and their load. This one has fixed endpoints, and neither TLS nor health checks:

    python picker.py 127.0.0.1:9002 127.0.0.11:8000 127.0.0.12:8000
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
from envoy.service.ext_proc.v3 import external_processor_pb2 as protocol
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc as service

DESTINATION = "x-gateway-destination-endpoint"


class Picker(service.ExternalProcessorServicer):
    """Chooses an endpoint by the body of a request."""

    def __init__(self, endpoints: list[str]) -> None:
        self._endpoints = endpoints

    async def Process(
        self,
        request_iterator: AsyncIterator[protocol.ProcessingRequest],
        _context: grpc.aio.ServicerContext[Any, Any],
    ) -> AsyncIterator[protocol.ProcessingResponse]:
        """Answer the messages about one request and its response."""
        body = b""
        async for message in request_iterator:
            kind, answer = message.WhichOneof("request"), protocol.ProcessingResponse()
            if kind == "request_headers" and message.request_headers.end_of_stream:
                yield self._picked(body)
            elif kind == "request_body":
                body += message.request_body.body
                if message.request_body.end_of_stream:
                    # The headers go to the server after the choice, and then the body.
                    yield self._picked(body)
                    for answer in _sent_on("request_body", body, ends=True):
                        yield answer
            elif kind == "response_headers":
                answer.response_headers.SetInParent()
                yield answer
            elif kind == "response_body":
                part = message.response_body
                for answer in _sent_on("response_body", part.body, ends=part.end_of_stream):
                    yield answer
            elif kind == "response_trailers":
                answer.response_trailers.SetInParent()
                yield answer

    def _picked(self, body: bytes) -> protocol.ProcessingResponse:
        endpoint = self._endpoints[self._number(body) % len(self._endpoints)]
        answer = protocol.ProcessingResponse()
        option = answer.request_headers.response.header_mutation.set_headers.add()
        option.header.key, option.header.raw_value = DESTINATION, endpoint.encode()
        answer.dynamic_metadata.update({"envoy.lb": {DESTINATION: endpoint}})
        return answer

    @staticmethod
    def _number(body: bytes) -> int:
        try:
            first = str(json.loads(body)["messages"][0]["content"])
        except (ValueError, LookupError, TypeError):
            return 0
        return int.from_bytes(hashlib.sha256(first.encode()).digest()[:4])


def _sent_on(field: str, content: bytes, *, ends: bool) -> Iterator[protocol.ProcessingResponse]:
    """Yield the messages that pass a part of a body on: at most 64 KiB each."""
    parts = [content[start : start + 65536] for start in range(0, len(content), 65536)] or [b""]
    for index, part in enumerate(parts):
        answer = protocol.ProcessingResponse()
        streamed = getattr(answer, field).response.body_mutation.streamed_response
        streamed.body, streamed.end_of_stream = part, ends and index == len(parts) - 1
        yield answer


async def main(address: str, endpoints: list[str]) -> None:
    """Serve the picker until the process ends."""
    server = grpc.aio.server()
    service.add_ExternalProcessorServicer_to_server(Picker(endpoints), server)
    server.add_insecure_port(address)
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
