"""`gatehouse explain --send`: the real answer to a request, compared with the expected one."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import aiohttp
from yarl import URL

from gatehouse.cli.connection_sender import TIMEOUT_SECONDS, plain_socket, unverified
from gatehouse.cli.sent_response import SentResponse, failure_text
from gatehouse.compiler.evaluation.explanation import ExpectedResponse
from gatehouse.compiler.evaluation.http_request import HttpRequest
from gatehouse.compiler.ir.grpc_status import grpc_status_name, grpc_status_of
from kube_base.types.ip_addresses import bracketed

_GATEWAY_STATUSES = (502, 503, 504)
"""Statuses that tell that no backend answered, if one was expected to."""

_UNKNOWN, _UNAVAILABLE = 2, 14
_INVALID_STATUS = 500
"""Status of an invalid rule. Calls get UNAVAILABLE for it."""

_OWN_HEADERS = ("host", "content-type", "te", "user-agent")
"""Headers that a gRPC client sets itself."""


def exchange_request(
    request: HttpRequest, address: str, expected: ExpectedResponse
) -> SentResponse:
    """Send a request to an address of the Gateway and compare the answer."""
    return asyncio.run((_call if expected.grpc else _exchange)(request, address, expected))


def is_error(sent: SentResponse, expected: ExpectedResponse) -> bool:
    """Return whether a response may be an error of the data plane that was not expected."""
    if sent.status is None or (sent.agrees and expected.verdict != "forwarded"):
        return False
    return not sent.agrees or sent.status >= 400 or (expected.grpc and sent.status != 0)


async def _exchange(request: HttpRequest, address: str, expected: ExpectedResponse) -> SentResponse:
    scheme = "https" if request.tls else "http"
    url = URL(f"{scheme}://{bracketed(address)}:{request.port}{request.target}", encoded=True)
    headers = [(name, value) for name, value in request.headers if name.lower() != "host"]
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)) as session,
            session.request(
                request.method,
                url,
                headers=[("Host", request.host), *headers],
                allow_redirects=False,
                ssl=unverified(),
                server_hostname=request.sni or None if request.tls else None,
            ) as response,
        ):
            if response.status == 200 and (sent := response.headers.get("grpc-status", "")):
                # A gRPC call that no backend answered, or that failed there at once.
                number = int(sent) if sent.isdecimal() else _UNKNOWN
                return compare_grpc_status(number, grpc_status_name(number), expected)
            return compare_response(response.status, response.headers.get("Location", ""), expected)
    except (aiohttp.ClientError, TimeoutError, ssl.SSLError) as error:
        return _no_answer(error, expected)


def _no_answer(error: Exception, expected: ExpectedResponse) -> SentResponse:
    text = f"no answer ({failure_text(error)})"
    return SentResponse.compared(text, expected.verdict == "no-answer")


async def _call(request: HttpRequest, address: str, expected: ExpectedResponse) -> SentResponse:
    """Send a gRPC call with an empty message, and compare its status with the expected one."""
    if not request.tls:
        return await _call_at(f"{bracketed(address)}:{request.port}", request, expected)
    try:
        async with plain_socket(address, request.port, request.sni) as path:
            return await _call_at(f"unix:{path}", request, expected)
    except (OSError, TimeoutError) as error:
        return _no_answer(error, expected)


async def _call_at(target: str, request: HttpRequest, expected: ExpectedResponse) -> SentResponse:
    # Imported here because most commands do not need it.
    import grpc
    import grpc.aio

    options = [("grpc.default_authority", request.host), ("grpc.enable_http_proxy", 0)]
    headers = [
        (name.lower(), value) for name, value in request.headers if name.lower() not in _OWN_HEADERS
    ]
    async with grpc.aio.insecure_channel(target, options=options) as channel:
        # Its stub lacks methods without serializers.
        method: Any = channel.unary_stream(request.target)
        call = method(b"", metadata=headers, timeout=TIMEOUT_SECONDS)
        try:
            message = await call.read()
            code = await call.code() if message is grpc.aio.EOF else grpc.StatusCode.OK
        except grpc.aio.AioRpcError as error:
            code = error.code()
    return compare_grpc_status(code.value[0], code.name, expected)


def compare_grpc_status(number: int, name: str, expected: ExpectedResponse) -> SentResponse:
    """Return whether a status of gRPC is one of the expected ones.

    Clients derive it from the HTTP status if the gateway answers without a status of gRPC.
    """
    agrees = number in {
        _UNAVAILABLE if status == _INVALID_STATUS else grpc_status_of(status)
        for status in expected.statuses
    }
    if expected.verdict in ("forwarded", "mixed"):
        agrees = agrees or number != _UNAVAILABLE
    return SentResponse.compared(f"gRPC status {name}", agrees, number)


def compare_response(status: int, location: str, expected: ExpectedResponse) -> SentResponse:
    """Return whether a response is one of the expected ones.

    The status of a forwarded request is that of the backend, except for those by which proxies
    report that no backend answered.
    """
    agrees = status in expected.statuses
    if expected.verdict in ("forwarded", "mixed"):
        agrees = agrees or status not in _GATEWAY_STATUSES
    if expected.location and agrees:
        agrees = location == expected.location
    text = f"{status}{f' to {location}' if location else ''}"
    return SentResponse.compared(text, agrees, status)
