"""Call to an endpoint picker about one request and its response (``ext_proc``, streamed bodies)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Literal

from envoy.extensions.filters.http.ext_proc.v3 import processing_mode_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as protocol
from google.protobuf.message import DecodeError

from gatehouse.dataplane.endpoint_pickers import PICKED_ENDPOINT, PICKER_NAMESPACE
from gatehouse.sidecars.picker import mutations
from gatehouse.sidecars.picker.grpc_call import CallFailedError, GrpcCall
from gatehouse.sidecars.picker.mutations import Fields

METHOD = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"

PART_BYTES = 1 << 16
"""Maximum size of a part of a body that is sent to a picker."""

_BodyField = Literal["request_body", "response_body"]

_DUPLEX = processing_mode_pb2.ProcessingMode.FULL_DUPLEX_STREAMED


class CallEndedError(CallFailedError):
    """The picker ended the call without an error, and without an answer."""


class ImmediateResponseError(Exception):
    """The picker answers the request itself."""

    def __init__(self, response: protocol.ImmediateResponse) -> None:
        super().__init__("the picker answers itself")
        self.response = response


class Direction:
    """Answers of a picker about the request, or about its response."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._answer: protocol.HeadersResponse | None = None
        self._parts: deque[tuple[bytes, bool]] = deque()
        self._failure: BaseException | None = None
        self._changed = asyncio.Event()
        self._space = asyncio.Event()
        self._is_sent = False
        self.is_abandoned = False

    def note_sent(self) -> None:
        """Note that the picker has everything: from now on, its answers have a time limit."""
        self._is_sent = True
        self._changed.set()

    async def answer(self) -> protocol.HeadersResponse:
        """Return the answer to the headers. Raises CallFailedError or ImmediateResponseError."""
        await self._until(lambda: self._answer is not None)
        assert self._answer is not None
        return self._answer

    async def parts(self) -> AsyncIterator[bytes]:
        """Yield the parts of the body. Raises CallFailedError or ImmediateResponseError."""
        end = False
        while not end:
            await self._until(lambda: bool(self._parts))
            part, end = self._parts.popleft()
            self._space.set()
            if part:
                yield part

    async def _until(self, ready: Callable[[], bool]) -> None:
        while not ready():
            if self._failure is not None:
                raise self._failure
            self._changed.clear()
            try:
                async with asyncio.timeout(self._seconds if self._is_sent else None):
                    await self._changed.wait()
            except TimeoutError as error:
                raise CallFailedError(f"no answer within {self._seconds:g} s") from error

    def set_answer(self, answer: protocol.HeadersResponse) -> None:
        """Set the answer to the headers. Further ones are ignored."""
        self._answer = self._answer or answer
        self._changed.set()

    async def add(self, response: protocol.BodyResponse) -> None:
        """Add a part of the body when the one before it was taken. Raises CallFailedError."""
        mutation = response.response.body_mutation
        if mutation.WhichOneof("mutation") != "streamed_response":
            raise CallFailedError("a body in another mode than FULL_DUPLEX_STREAMED")
        part = mutation.streamed_response
        while self._parts and not self.is_abandoned:
            self._space.clear()
            await self._space.wait()
        if not self.is_abandoned:
            end = part.end_of_stream or part.end_of_stream_without_message
            self._parts.append((part.body, end))
            self._changed.set()

    def fail(self, failure: BaseException) -> None:
        """Raise an exception for what was not received yet."""
        self._failure = self._failure or failure
        self._changed.set()

    def abandon(self) -> None:
        """Discard the parts that come."""
        self.is_abandoned = True
        self._space.set()


class PickerCall:
    """A call to a picker."""

    def __init__(self, call: GrpcCall, seconds: float) -> None:
        self.request, self.response = Direction(seconds), Direction(seconds)
        self.picked = ""
        """Endpoints that the picker named with its answer."""
        self.is_open = True
        self._call = call
        self._seconds = seconds
        self._receiver = asyncio.create_task(self._receive())

    async def close(self) -> None:
        """End the call."""
        self.is_open = False
        self._receiver.cancel()
        await asyncio.gather(self._receiver, return_exceptions=True)
        self._call.close()

    async def send_request(self, fields: Fields, body: AsyncIterator[bytes] | None) -> None:
        """Send headers and body of the request. Raises CallFailedError."""
        message = protocol.ProcessingRequest(
            request_headers=mutations.to_message(fields, end=body is None)
        )
        modes = message.protocol_config
        modes.request_body_mode = modes.response_body_mode = _DUPLEX
        await self._send(message)
        if body is not None:
            await self._send_body("request_body", body)
        self.request.note_sent()

    async def send_response(
        self, fields: Fields, body: AsyncIterator[bytes] | None, served: str
    ) -> None:
        """Send headers and body of the response, and who `served` it. Raises CallFailedError."""
        message = protocol.ProcessingRequest(
            response_headers=mutations.to_message(fields, end=body is None)
        )
        metadata = message.metadata_context.filter_metadata[PICKER_NAMESPACE]
        metadata.update({f"{PICKED_ENDPOINT}-served": served})
        await self._send(message)
        if body is not None:
            await self._send_body("response_body", body)
        self.response.note_sent()

    async def _send_body(self, field: _BodyField, body: AsyncIterator[bytes]) -> None:
        async for chunk in body:
            for start in range(0, len(chunk), PART_BYTES):
                await self._send(_part(field, chunk[start : start + PART_BYTES]))
        await self._send(_part(field, b"", end=True))

    async def _send(self, message: protocol.ProcessingRequest) -> None:
        try:
            async with asyncio.timeout(self._seconds):
                await self._call.send(message.SerializeToString())
        except TimeoutError as error:
            raise CallFailedError(f"the picker read nothing for {self._seconds:g} s") from error

    async def _receive(self) -> None:
        try:
            while (message := await self._call.receive()) is not None:
                await self._process(protocol.ProcessingResponse.FromString(message))
            raise CallEndedError("the picker ended the call without an answer")
        except (CallFailedError, ImmediateResponseError) as failure:
            self._fail(failure)
        except DecodeError:
            self._fail(CallFailedError("a message that is no ProcessingResponse"))

    def _fail(self, failure: Exception) -> None:
        self.is_open = False
        self.request.fail(failure)
        self.response.fail(failure)

    async def _process(self, message: protocol.ProcessingResponse) -> None:
        match message.WhichOneof("response"):
            case "request_headers":
                try:
                    self.picked = self.picked or mutations.picked_text(message)
                except mutations.InvalidMutationError as error:
                    raise CallFailedError(str(error)) from error
                self.request.set_answer(message.request_headers)
            case "request_body":
                await self.request.add(message.request_body)
            case "response_headers":
                self.response.set_answer(message.response_headers)
            case "response_body":
                await self.response.add(message.response_body)
            case "immediate_response":
                raise ImmediateResponseError(message.immediate_response)


def _part(field: _BodyField, content: bytes, *, end: bool = False) -> protocol.ProcessingRequest:
    message = protocol.ProcessingRequest()
    body = message.request_body if field == "request_body" else message.response_body
    body.body, body.end_of_stream = content, end
    return message
