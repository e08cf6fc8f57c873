"""Comparison of real answers with expected ones."""

from __future__ import annotations

import ssl

import aiohttp
import pytest

from gatehouse.cli.request_sender import compare_grpc_status
from gatehouse.cli.sent_response import failure_text
from gatehouse.compiler.evaluation.explanation import ExpectedResponse

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
    ],
)
def test_grpc_status_is_compared(number: int, expected: ExpectedResponse, agrees: bool) -> None:
    assert compare_grpc_status(number, "NAME", expected).agrees is agrees


async def test_missing_answer_has_its_reason() -> None:
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectorError) as refused:
            await session.get("https://127.0.0.1:1/", ssl=ssl.create_default_context())
    assert failure_text(refused.value).startswith("Connect call failed")
    assert "object at" not in failure_text(refused.value)
    assert failure_text(TimeoutError()) == "TimeoutError"
    assert failure_text(ConnectionResetError(104, "reset by peer")) == "reset by peer"
