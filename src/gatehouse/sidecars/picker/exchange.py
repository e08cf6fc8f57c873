"""One request of a pool: the picker's choice, the endpoint, and the response."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Sequence

import aiohttp
from aiohttp import web
from envoy.service.ext_proc.v3 import external_processor_pb2 as protocol
from multidict import CIMultiDict

from gatehouse.dataplane.endpoint_pickers import PICKED_ENDPOINT
from gatehouse.dataplane.endpoints import WeightedEndpoint
from gatehouse.sidecars.base.failure_log import FailureLog
from gatehouse.sidecars.picker import endpoint_http, mutations
from gatehouse.sidecars.picker.config import Pool
from gatehouse.sidecars.picker.endpoint_choice import PoolEndpoints
from gatehouse.sidecars.picker.endpoint_http import EndpointRequest, EndpointResponse
from gatehouse.sidecars.picker.ext_proc import CallEndedError, ImmediateResponseError, PickerCall
from gatehouse.sidecars.picker.grpc_call import CallFailedError
from gatehouse.sidecars.picker.mutations import Fields, InvalidMutationError
from gatehouse.sidecars.picker.picker_calls import PickerCalls
from gatehouse.sidecars.picker.replayable_body import ReplayableBody

_GRACE_SECONDS = 1.0
"""Time in seconds for which a request is sent on after its response has begun."""


class ServedPool:
    """A pool with its endpoints and its connections to pickers."""

    def __init__(self, pool: Pool, http: aiohttp.ClientSession, failures: FailureLog) -> None:
        self.pool, self.http, self.failures = pool, http, failures
        self.endpoints, self.pickers = PoolEndpoints(), PickerCalls()


class _Plan:
    """A request as it goes to an endpoint."""

    def __init__(
        self,
        fields: Fields,
        endpoints: Sequence[WeightedEndpoint],
        body: AsyncIterator[bytes] | None,
    ) -> None:
        self.fields, self.endpoints, self.body = fields, endpoints, body
        self.failure: Exception | None = None
        """Why the body could not be read to its end."""

    async def content(self) -> AsyncIterator[bytes]:
        """Yield the body. Any failure, and a length that is not the announced one, ends it."""
        assert self.body is not None
        size = 0
        try:
            async for chunk in self.body:
                size += len(chunk)
                yield chunk
            self._check_size(size)
        except Exception as error:
            self.failure = error
            raise

    def _check_size(self, size: int) -> None:
        announced = dict(self.fields).get("content-length")
        if announced is not None and size != int(announced):
            raise CallFailedError(f"a body of {size} bytes in place of {announced}")


class Exchange:
    """One request and its response."""

    def __init__(self, served: ServedPool, request: web.BaseRequest) -> None:
        self._served, self._request = served, request
        self._call: PickerCall | None = None
        self._sending: asyncio.Task[None] | None = None
        """Sends the request, and then the response, to the picker."""
        self._fields = _request_fields(request)
        self._body = ReplayableBody(request.content.iter_any()) if request.body_exists else None
        self._started: web.StreamResponse | None = None

    async def run(self) -> web.StreamResponse:
        """Return the response, which was sent if it has begun."""
        try:
            plan = await self._planned()
            if not plan.endpoints:
                return web.Response(status=503)
            async with contextlib.AsyncExitStack() as stack:
                endpoint, response = await self._sent(plan, stack)
                return await self._answered(endpoint, response)
        except ImmediateResponseError as answer:
            return self._immediate(answer.response)
        except (CallFailedError, InvalidMutationError) as error:
            return self._broken(503, str(error))
        except (*endpoint_http.ENDPOINT_FAILURES, OSError) as error:
            return self._broken(502, str(error) or type(error).__name__)
        except Exception as error:
            # Other requests are served.
            return self._broken(500, f"{type(error).__name__}: {error}")
        finally:
            await self._stop_sending()
            if self._call is not None:
                await self._call.close()

    async def _planned(self) -> _Plan:
        """Ask the picker.

        Raises CallFailedError, ImmediateResponseError or InvalidMutationError.
        """
        try:
            return await self._asked()
        except CallFailedError as error:
            await self._continue_without(error, self._body)
        await self._hang_up()
        body = self._body.replay() if self._body is not None else None
        return _Plan(self._fields, self._served.endpoints.own_choice(), body)

    async def _continue_without(self, error: CallFailedError, body: ReplayableBody | None) -> None:
        """Stop asking the picker, if the request can do without it. Raises CallFailedError."""
        ended = isinstance(error, CallEndedError)
        usable = body is None or body.is_complete
        if not (ended or self._served.pool.fail_open) or not usable:
            raise error
        if not ended:
            self._record(str(error))
        await self._stop_sending()

    async def _asked(self) -> _Plan:
        call = self._call = await self._served.pickers.open()
        fields = [field for field in self._fields if field[0] != "content-length"]
        body = self._body.read() if self._body is not None else None
        self._send(call, call.send_request(fields if body is not None else self._fields, body))
        answer = await call.request.answer()
        mutation = answer.response.header_mutation
        fields = mutations.mutated(fields if body is not None else self._fields, mutation)
        endpoints = self._served.endpoints.picked(call.picked)
        own = self._served.endpoints.own_choice()
        if body is None:
            return _Plan(fields, endpoints or own, None)
        length = mutations.announced_length(mutation)
        if length is not None:
            fields = [*fields, ("content-length", str(length))]
        return _Plan(fields, endpoints or own, call.request.parts())

    def _send(self, call: PickerCall, sending: Coroutine[None, None, None]) -> None:
        self._sending = asyncio.create_task(sending)

        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                # Also of an endpoint: nothing more comes.
                call.request.fail(error)
                call.response.fail(error)

        self._sending.add_done_callback(ended)

    async def _stop_sending(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
            self._sending = None

    async def _hang_up(self) -> None:
        if self._call is not None:
            await self._call.close()
            self._call = None

    async def _sent(
        self, plan: _Plan, stack: contextlib.AsyncExitStack
    ) -> tuple[WeightedEndpoint, EndpointResponse]:
        """Send the request to the first endpoint that accepts the connection.

        Raises an error of an endpoint, or CallFailedError.
        """
        last = plan.endpoints[-1]
        for endpoint in plan.endpoints:
            counted = stack.enter_context(self._served.endpoints.counted(endpoint))
            try:
                response = await stack.enter_async_context(self._sending_to(endpoint, plan))
            except endpoint_http.REFUSALS:
                if endpoint == last:
                    raise
            except endpoint_http.ENDPOINT_FAILURES:
                if plan.failure is not None:
                    raise plan.failure from None
                raise
            else:
                return endpoint, response
            del counted
        raise AssertionError("no endpoint")

    def _sending_to(
        self, endpoint: WeightedEndpoint, plan: _Plan
    ) -> contextlib.AbstractAsyncContextManager[EndpointResponse]:
        request = EndpointRequest(plan.fields, plan.content() if plan.body is not None else None)
        if self._served.pool.http2:
            return endpoint_http.send_http2(endpoint, request)
        return endpoint_http.send_http1(self._served.http, endpoint, request)

    async def _answered(
        self, endpoint: WeightedEndpoint, response: EndpointResponse
    ) -> web.StreamResponse:
        """Send the response of an endpoint on, as the picker changes it."""
        fields = response.fields
        is_empty = self._request.method == "HEAD" or not response.has_body
        body = None if is_empty else ReplayableBody(response.content)
        call = self._call
        if call is None or not call.is_open:
            return await self._passed(fields, body.read() if body is not None else None)
        try:
            answer = await self._processed(call, endpoint, fields, body)
        except CallFailedError as error:
            await self._continue_without(error, body)
            return await self._passed(fields, body.replay() if body is not None else None)
        if body is None:
            return await self._passed(answer, None)
        body.forget()
        unsized = [field for field in answer if field[0] != "content-length"]
        return await self._passed(unsized, call.response.parts())

    async def _processed(
        self,
        call: PickerCall,
        endpoint: WeightedEndpoint,
        fields: Fields,
        body: ReplayableBody | None,
    ) -> Fields:
        """Send the response to the picker, and return its header fields as it changes them."""
        await self._finish_request(call)
        content = body.read() if body is not None else None
        self._send(call, call.send_response(fields, content, endpoint.encoded))
        answer = await call.response.answer()
        return mutations.mutated(fields, answer.response.header_mutation)

    async def _finish_request(self, call: PickerCall) -> None:
        """Wait until the picker has the request, whose end comes before the response.

        An endpoint may respond before it has read the whole request. Parts from the picker are then
        discarded, so that the picker can continue to read.
        """
        if self._sending is not None:
            await asyncio.wait({self._sending}, timeout=_GRACE_SECONDS)
            if not self._sending.done():
                call.request.abandon()
                await self._sending

    async def _passed(
        self, fields: Fields, body: AsyncIterator[bytes] | None
    ) -> web.StreamResponse:
        """Send a response, and return it."""
        status = int(dict(fields)[":status"])
        headers = CIMultiDict(field for field in fields if not field[0].startswith(":"))
        # NGINX sends every part at once.
        headers["X-Accel-Buffering"] = "no"
        response = self._started = web.StreamResponse(status=status, headers=headers)
        await response.prepare(self._request)
        if body is not None:
            async for chunk in body:
                await response.write(chunk)
        await response.write_eof()
        return response

    def _immediate(self, answer: protocol.ImmediateResponse) -> web.StreamResponse:
        if self._started is not None:
            return self._broken(502, "an immediate response after the headers")
        status = int(answer.status.code) or 200
        if not 200 <= status <= 599:
            return self._broken(502, f"an immediate response with status {status}")
        try:
            fields = mutations.mutated([], answer.headers)
        except InvalidMutationError as error:
            return self._broken(503, str(error))
        headers = CIMultiDict(field for field in fields if not field[0].startswith(":"))
        return web.Response(status=status, headers=headers, body=answer.body)

    def _broken(self, status: int, why: str) -> web.StreamResponse:
        """Return a response for a failure, or cut off the one that has begun."""
        self._record(why)
        if self._started is None:
            return web.Response(status=status)
        if self._request.transport is not None:
            self._request.transport.abort()
        return self._started

    def _record(self, why: str) -> None:
        self._served.failures.record(self._served.pool.description, why)


def _request_fields(request: web.BaseRequest) -> Fields:
    raw = ((mutations.text(name), mutations.text(value)) for name, value in request.raw_headers)
    fields = mutations.end_to_end(raw)
    return [
        (":authority", request.headers.get("Host", "")),
        (":method", request.method),
        (":path", request.raw_path),
        (":scheme", request.headers.get("X-Forwarded-Proto", "http")),
        *(field for field in _unpicked(fields) if field[0] not in ("host", "expect")),
    ]


def _unpicked(fields: Fields) -> Fields:
    """Return fields without the one of pickers: clients do not choose."""
    return [field for field in fields if field[0] != PICKED_ENDPOINT]
