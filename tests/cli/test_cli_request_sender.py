"""Comparison of real answers with expected ones."""

from __future__ import annotations

import asyncio
import ssl

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from gatehouse.cli.request_sender import compare_grpc_status, exchange_request
from gatehouse.cli.sent_response import failure_text
from gatehouse.compiler.evaluation.explanation import ExpectedResponse
from gatehouse.compiler.evaluation.http_request import HttpRequest

FORWARDED = ExpectedResponse("forwarded", "", (), "", grpc=True)


@pytest.mark.parametrize(
    ("number", "expected", "agrees"),
    [
        (0, FORWARDED, True),
        (12, FORWARDED, True),
        (14, FORWARDED, False),
        (14, ExpectedResponse("answered", "", (503,)), True),
        (14, ExpectedResponse("mixed", "", (503,)), True),
        (0, ExpectedResponse("answered", "", (503,)), False),
        (12, ExpectedResponse("answered", "", (404,)), True),
        (16, ExpectedResponse("answered", "", (401,)), True),
        (14, ExpectedResponse("answered", "", (429,)), True),
        (14, ExpectedResponse("answered", "", (500,)), True),
        (2, ExpectedResponse("answered", "", (413,)), True),
    ],
)
def test_grpc_status_is_compared(number: int, expected: ExpectedResponse, agrees: bool) -> None:
    assert compare_grpc_status(number, "NAME", expected).agrees is agrees


@pytest.mark.parametrize(
    ("status", "expected", "text"),
    [
        ("12", ExpectedResponse("answered", "", (404,)), "UNIMPLEMENTED, as expected"),
        ("14", ExpectedResponse("answered", "", (503,)), "UNAVAILABLE, as expected"),
        ("14", ExpectedResponse("answered", "", (404,)), "UNAVAILABLE, unlike the expected answer"),
        ("14", ExpectedResponse("forwarded", ""), "UNAVAILABLE, unlike the expected answer"),
        ("5", ExpectedResponse("forwarded", ""), "NOT_FOUND, as expected"),
        ("x", ExpectedResponse("answered", "", (404,)), "UNKNOWN, unlike the expected answer"),
    ],
)
async def test_grpc_status_in_a_response_is_compared(
    status: str, expected: ExpectedResponse, text: str
) -> None:
    """A proxy that knows calls answers them so, whatever the route expects."""

    async def respond(_: web.Request) -> web.Response:
        return web.Response(headers={"grpc-status": status}, content_type="application/grpc")

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", respond)
    async with TestServer(application, host="127.0.0.1") as server:
        assert server.port is not None
        request = HttpRequest("POST", "a.example", "/shop.Api/Get", server.port)
        sent = await asyncio.to_thread(exchange_request, request, "127.0.0.1", expected)
    assert sent.text == f"gRPC status {text}"


async def test_missing_answer_has_its_reason() -> None:
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectorError) as refused:
            await session.get("https://127.0.0.1:1/", ssl=ssl.create_default_context())
    assert failure_text(refused.value).startswith("Connect call failed")
    assert "object at" not in failure_text(refused.value)
    assert failure_text(TimeoutError()) == "TimeoutError"
    assert failure_text(ConnectionResetError(104, "reset by peer")) == "reset by peer"
