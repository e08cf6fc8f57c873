"""Requests of a pool whose picker fails, is late, or answers with what it must not."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from envoy.service.ext_proc.v3 import external_processor_pb2 as protocol

from fakes.durations import be_slow
from fakes.endpoint_pickers import DESTINATION
from fakes.model_pool import HOST, Answers, ModelPool, ScriptedPicker, model_pool
from fakes.patience import limit
from gatehouse.dataplane.endpoints import WeightedEndpoint
from gatehouse.sidecars.picker import http2, mutations, picker_calls, replayable_body
from gatehouse.sidecars.picker.grpc_call import MAX_CALL_MESSAGE_BYTES

Requests = AsyncIterator[protocol.ProcessingRequest]
Responses = AsyncIterator[protocol.ProcessingResponse]

LIMIT_SECONDS = 0.3
"""Time limit of an answer in these tests."""


@pytest.fixture
async def pool(tmp_path: Path) -> AsyncIterator[ModelPool]:
    async with model_pool(tmp_path, "a", "b") as result:
        yield result


def answer(endpoint: str = "", **fields: str) -> protocol.ProcessingResponse:
    """Return an answer to the headers of a request that picks an endpoint and sets fields."""
    message = protocol.ProcessingResponse()
    message.request_headers.SetInParent()
    if endpoint:
        message.dynamic_metadata.update({"envoy.lb": {DESTINATION: endpoint}})
    for name, value in fields.items():
        add(message.request_headers, name.replace("_", "-"), value)
    return message


def add(message: protocol.HeadersResponse, name: str, value: str) -> None:
    option = message.response.header_mutation.set_headers.add()
    option.header.key, option.header.raw_value = name, value.encode("latin-1")


def part(field: str, content: bytes, *, end: bool) -> protocol.ProcessingResponse:
    message = protocol.ProcessingResponse()
    streamed = getattr(message, field).response.body_mutation.streamed_response
    streamed.body, streamed.end_of_stream = content, end
    return message


def script(
    endpoint: str,
    *,
    first: protocol.ProcessingResponse | None = None,
    body: bytes | None = None,
    response: protocol.ProcessingResponse | None = None,
    response_body: bytes | None = None,
) -> Answers:
    """Return a picker that passes everything on, except for what is given."""

    async def answers(requests: Requests) -> Responses:
        async for request in requests:
            match request.WhichOneof("request"):
                case "request_headers":
                    yield first or answer(endpoint)
                case "request_body":
                    own, end = request.request_body, request.request_body.end_of_stream
                    if body is None:
                        yield part("request_body", own.body, end=end)
                    elif end:
                        yield part("request_body", body, end=True)
                case "response_headers":
                    passed = protocol.ProcessingResponse()
                    passed.response_headers.SetInParent()
                    yield response or passed
                case "response_body":
                    own, end = request.response_body, request.response_body.end_of_stream
                    if response_body is None:
                        yield part("response_body", own.body, end=end)
                    elif end:
                        yield part("response_body", response_body, end=True)

    return answers


async def silent(requests: Requests) -> Responses:
    """Read everything and answer nothing."""
    async for _ in requests:
        pass
    await asyncio.Event().wait()
    yield protocol.ProcessingResponse()


async def ending(requests: Requests) -> Responses:
    """End the call without an answer."""
    async for request in requests:
        if request.request_body.end_of_stream:
            return
    yield protocol.ProcessingResponse()


async def failing(requests: Requests) -> Responses:
    """Fail once it has the whole request."""
    async for request in requests:
        if request.request_body.end_of_stream:
            raise RuntimeError("no")
    yield protocol.ProcessingResponse()


@pytest.mark.parametrize("fail_open", [False, True])
@pytest.mark.parametrize("answers", [silent, failing])
async def test_picker_without_an_answer_fails_as_the_pool_says(
    pool: ModelPool, answers: Answers, fail_open: bool
) -> None:
    async with pool.picker(ScriptedPicker(answers)):
        await pool.configure(fail_open=fail_open, seconds=LIMIT_SECONDS)
        body = b"x" * 200_000
        async with limit():
            status, server, content = await pool.ask(body, headers={DESTINATION: "1.2.3.4:5"})
    if fail_open:
        # Nothing of the request is lost.
        assert (status, server in ("a", "b"), content) == (200, True, body)
        assert DESTINATION not in pool.models.requests[-1].headers
    else:
        assert (status, content) == (503, b"")
        assert not pool.models.requests
    [message] = pool.messages
    why = "no answer within 0.3 s" if answers is silent else "gRPC status 2: Unexpected"
    assert message.startswith(f"picker: cluster c: {why}")


@pytest.mark.parametrize("fail_open", [False, True])
async def test_picker_that_ends_the_call_leaves_the_choice(
    pool: ModelPool, fail_open: bool
) -> None:
    async with pool.picker(ScriptedPicker(ending)):
        await pool.configure(fail_open=fail_open)
        assert await pool.ask(b"body") in [(200, "a", b"body"), (200, "b", b"body")]
    assert pool.messages == []


async def test_long_body_is_lost_with_the_picker(pool: ModelPool) -> None:
    async with pool.picker(ScriptedPicker(failing)):
        await pool.configure(fail_open=True)
        body = b"x" * (replayable_body.COPY_BYTES + 1)
        async with limit():
            assert (await pool.ask(io.BytesIO(body)))[0] == 503


@pytest.mark.parametrize(("fail_open", "status"), [(False, 503), (True, 200)])
async def test_picker_that_accepts_no_connection_is_not_waited_for(
    pool: ModelPool, fail_open: bool, status: int
) -> None:
    async with pool.picker(ScriptedPicker(silent)):
        pass
    await pool.configure(fail_open=fail_open)
    for _ in range(3):
        assert (await pool.ask())[0] == status


async def test_picker_is_asked_again_after_a_pause(
    pool: ModelPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(picker_calls, "REFUSAL_SECONDS", 0.0)
    closed = ScriptedPicker(silent)
    async with pool.picker(closed):
        pass
    await pool.configure()
    assert (await pool.ask())[0] == 503
    async with pool.picker(ScriptedPicker(script(pool.endpoint("b")))):
        await pool.configure()
        assert (await pool.ask())[:2] == (200, "b")


async def test_another_picker_is_asked_in_place_of_one_that_is_away(pool: ModelPool) -> None:
    async with pool.picker(ScriptedPicker(silent)):
        away = pool.pickers
    async with pool.picker(ScriptedPicker(script(pool.endpoint("b")))):
        pool.pickers = (*away, *pool.pickers)
        await pool.configure()
        for _ in range(4):
            assert (await pool.ask())[:2] == (200, "b")


@pytest.mark.parametrize(("fail_open", "status"), [(False, 503), (True, 200)])
async def test_picker_that_dies_while_it_is_asked(
    pool: ModelPool, fail_open: bool, status: int
) -> None:
    picker = ScriptedPicker(silent)
    async with pool.picker(picker) as server, limit():
        await pool.configure(fail_open=fail_open)
        request = asyncio.create_task(pool.ask(b"body"))
        await picker.begun.wait()
        await server.stop(0)
        assert (await request)[0] == status


async def test_picker_that_dies_within_a_response_cuts_it_off(pool: ModelPool) -> None:
    async def stream(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"part")
        await asyncio.Event().wait()
        return response

    pool.models.handler = stream
    async with pool.picker(ScriptedPicker(script(pool.endpoint("a")))) as server, limit():
        await pool.configure(fail_open=True)
        async with pool.request(data=b"{}") as response:
            assert await response.content.readany() == b"part"
            await server.stop(0)
            with pytest.raises(aiohttp.ClientError):
                await response.read()


async def test_model_may_take_longer_than_the_limit_of_the_picker(pool: ModelPool) -> None:
    async def think(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for word in (b"one ", b"two"):
            await be_slow(2 * LIMIT_SECONDS)
            await response.write(word)
        return response

    pool.models.handler = think
    async with pool.picker(ScriptedPicker(script(pool.endpoint("a")))):
        await pool.configure(seconds=LIMIT_SECONDS)
        assert await pool.ask() == (200, "", b"one two")


async def test_picker_changes_request_and_response(pool: ModelPool) -> None:
    first = answer(pool.endpoint("b"), x_model="m", host="evil", content_length="3")
    add(first.request_headers, ":path", "/v2")
    for name in (":method", ":authority", ":scheme", "transfer-encoding", "connection", "upgrade"):
        add(first.request_headers, name, "evil")
    add(first.request_headers, "x-more", "2")
    first.request_headers.response.header_mutation.set_headers[-1].append.value = True
    first.request_headers.response.header_mutation.remove_headers.extend(["x-gone", "host"])
    response = protocol.ProcessingResponse()
    add(response.response_headers, "x-cost", "7")
    for name in (":status", "transfer-encoding", "x-accel-redirect"):
        add(response.response_headers, name, "500")
    answers = script(
        "", first=first, body=b"new", response=response, response_body=b"changed response"
    )
    async with pool.picker(ScriptedPicker(answers)):
        await pool.configure()
        headers = {"X-Gone": "1", "X-Model": "old", "X-More": "1"}
        async with pool.request(path="/v1", data=b"old", headers=headers) as sent:
            assert (sent.status, sent.headers["X-Cost"]) == (200, "7")
            assert await sent.read() == b"changed response"
    received = pool.models.requests[-1]
    assert (received.server, received.target, received.body) == ("b", "/v2", b"new")
    assert received.headers["x-model"] == "m"
    assert received.fields.count(("x-more", "1")) == received.fields.count(("x-more", "2")) == 1
    assert received.headers["host"] == "pool"
    assert received.headers["content-length"] == "3"
    assert not received.headers.keys() & {"x-gone", "transfer-encoding", "upgrade"}
    assert "evil" not in received.headers.values()


@pytest.mark.parametrize("length", ["2", "4"])
async def test_body_of_another_length_than_announced_is_not_sent_on(
    pool: ModelPool, length: str
) -> None:
    first = answer(pool.endpoint("a"), content_length=length)
    async with pool.picker(ScriptedPicker(script("", first=first, body=b"new"))), limit():
        await pool.configure()
        assert (await pool.ask())[0] == 503
    assert f"a body of 3 bytes in place of {length}" in pool.messages[0]


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("x-a", "1\r\nx-b: 2", "invalid value of the header field x-a"),
        ("x-a", "1\0", "invalid value of the header field x-a"),
        ("x-a\r\nx-b", "1", "invalid name of a header field: 'x-a\\r\\nx-b'"),
        ("", "1", "invalid name of a header field: ''"),
        (":path", "/ HTTP/1.1", "invalid value of the header field :path"),
        (":path", "http://evil/", "invalid value of the header field :path"),
        ("content-length", "-1", "invalid value of the header field content-length"),
        (DESTINATION, "\n", f"invalid value of the header field {DESTINATION}"),
        ("x-a", "x" * (mutations.MAX_FIELDS_BYTES + 1), "header fields of more than 65536 bytes"),
    ],
)
async def test_invalid_header_field_of_a_picker_is_refused(
    pool: ModelPool, name: str, value: str, problem: str
) -> None:
    first = answer()
    add(first.request_headers, name, value)
    async with pool.picker(ScriptedPicker(script("", first=first))):
        await pool.configure()
        assert (await pool.ask())[0] == 503
    assert problem in pool.messages[0]
    assert not pool.models.requests


@pytest.mark.parametrize(("name", "value"), [("x-a", "1\r\nx-b: 2"), ("x-a\r\nx-b", "1")])
async def test_invalid_header_field_of_a_response_of_the_picker_is_refused(
    pool: ModelPool, name: str, value: str
) -> None:
    first = protocol.ProcessingResponse()
    option = first.immediate_response.headers.set_headers.add()
    option.header.key, option.header.raw_value = name, value.encode()
    async with pool.picker(ScriptedPicker(script("", first=first))):
        await pool.configure()
        assert (await pool.ask())[0] == 503
    assert pool.messages[0].startswith("picker: cluster c: invalid")


@pytest.mark.parametrize("status", [1, 100, 199, 600, 999])
async def test_response_of_a_picker_has_a_status_of_a_final_response(
    pool: ModelPool, status: int
) -> None:
    first = protocol.ProcessingResponse()
    first.immediate_response.status.code = status  # type: ignore[assignment]
    async with pool.picker(ScriptedPicker(script("", first=first))):
        await pool.configure()
        assert (await pool.ask())[0] == 502


def oversized(_: ModelPool) -> Iterator[protocol.ProcessingResponse]:
    yield part("request_body", b"x" * (MAX_CALL_MESSAGE_BYTES + 1), end=True)


def in_another_mode(_: ModelPool) -> Iterator[protocol.ProcessingResponse]:
    message = protocol.ProcessingResponse()
    message.request_body.response.body_mutation.body = b"whole"
    yield message


@pytest.mark.parametrize("messages", [oversized, in_another_mode])
async def test_message_that_is_not_of_the_protocol_fails_the_call(
    pool: ModelPool, messages: object
) -> None:
    assert callable(messages)

    async def answers(requests: Requests) -> Responses:
        async for _ in requests:
            for message in messages(pool):
                yield message

    async with pool.picker(ScriptedPicker(answers)), limit():
        await pool.configure()
        assert (await pool.ask())[0] == 503


async def test_endless_body_of_a_picker_waits_for_the_endpoint(pool: ModelPool) -> None:
    sent = 0

    async def endless(requests: Requests) -> Responses:
        nonlocal sent
        yield answer(pool.endpoint("a"))
        while True:
            yield part("request_body", b"x" * 65536, end=False)
            sent += 65536
            await asyncio.sleep(0)

    async def slow(request: web.BaseRequest) -> web.StreamResponse:
        await be_slow(4 * LIMIT_SECONDS)
        return web.Response(status=413)

    pool.models.handler = slow
    async with pool.picker(ScriptedPicker(endless)), limit():
        await pool.configure(seconds=LIMIT_SECONDS)
        assert (await pool.ask())[0] in (413, 502, 503)
    # Buffers of sockets, and few parts in the sidecar.
    assert sent < 16 << 20


async def test_picker_that_speaks_no_http_2_fails(pool: ModelPool) -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(greet, HOST, 0)
    async with server, limit():
        port = server.sockets[0].getsockname()[1]
        pool.pickers = (WeightedEndpoint(HOST, port),)
        await pool.configure()
        assert (await pool.ask())[0] == 503
    assert len(pool.messages) == 1


async def test_picker_that_accepts_a_connection_and_says_nothing(pool: ModelPool) -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(say_nothing, HOST, 0)
    async with server, limit():
        pool.pickers = (WeightedEndpoint(HOST, server.sockets[0].getsockname()[1]),)
        await pool.configure(seconds=LIMIT_SECONDS, fail_open=True)
        start = time.monotonic()
        body = b"x" * 500_000
        assert (await pool.ask(body))[0::2] == (200, body)
        assert time.monotonic() - start >= LIMIT_SECONDS
    assert "0.3 s" in pool.messages[0]
    assert len(body) > http2.STREAM_WINDOW
