"""Comparison of real answers with expected ones."""

from __future__ import annotations

import pytest

from gatehouse.cli.request_sender import compare_grpc_status
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
