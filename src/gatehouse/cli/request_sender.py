"""`gatehouse explain --send`: the real answer to a request, compared with the expected one."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import aiohttp
import msgspec
from yarl import URL

from gatehouse.cli.errors import CLIError
from gatehouse.cli.logged_request import LoggedRequest
from gatehouse.compiler.evaluation.explanation import ExpectedResponse, Explanation
from gatehouse.compiler.evaluation.http_request import HttpRequest
from gatehouse.compiler.evaluation.l4_matching import L4Connection

_TIMEOUT_SECONDS = 15.0
_GATEWAY_STATUSES = (502, 503, 504)
"""Statuses that tell that no backend answered, if one was expected to."""

AGREES, DIFFERS = "as expected", "unlike the expected answer"

_UNAVAILABLE = 14
_GRPC_STATUSES = {204: 2, 400: 13, 401: 16, 403: 7, 404: 12, 421: 2}
"""Statuses of gRPC by HTTP status (grpc/doc/http-grpc-status-mapping.md). Others: unavailable."""

_OWN_HEADERS = ("host", "content-type", "te", "user-agent")
"""Headers that a gRPC client sets itself."""


class SentResponse(msgspec.Struct, frozen=True, rename="camel"):
    """The answer to a request that was sent."""

    agrees: bool
    """The answer is one of the expected ones."""
    text: str
    status: int | None = None
    """Status of HTTP, or of gRPC for a gRPC call; None if there was no response."""
    logged: LoggedRequest | msgspec.UnsetType = msgspec.UNSET
    """Access log entry of the request, if the data plane may have answered itself."""

    def explained(self, logged: LoggedRequest, expected: ExpectedResponse) -> SentResponse:
        """Return the answer with its entry in the access log.

        An answer of the data plane itself is unlike that of a backend.
        """
        agrees = self.agrees and not (logged.reason and expected.verdict == "forwarded")
        text = self.text if agrees == self.agrees else self.text.replace(AGREES, DIFFERS)
        return msgspec.structs.replace(self, agrees=agrees, text=text, logged=logged)


def exchange_request(
    subject: HttpRequest | L4Connection, host: str, explanation: Explanation
) -> SentResponse:
    """Send a request to the Gateway and compare the answer.

    ``host``: host of the URL, which is used if the Gateway has no address. Raises CLIError for what
    cannot be sent.
    """
    address = explanation.addresses[0] if explanation.addresses else host
    if isinstance(subject, L4Connection):
        raise CLIError(
            f"--send: {subject.protocol} connections cannot be sent, only http and https"
        )
    if explanation.answer.grpc:
        if subject.tls:
            raise CLIError("--send: gRPC calls over TLS cannot be sent, only over http")
        return asyncio.run(_call(subject, address, explanation.answer))
    return asyncio.run(_exchange(subject, address, explanation.answer))


def is_error(sent: SentResponse, expected: ExpectedResponse) -> bool:
    """Return whether a response may be an error of the data plane that was not expected."""
    if sent.status is None or (sent.agrees and expected.verdict != "forwarded"):
        return False
    return not sent.agrees or sent.status >= 400 or (expected.grpc and sent.status != 0)


async def _exchange(request: HttpRequest, address: str, expected: ExpectedResponse) -> SentResponse:
    scheme = "https" if request.tls else "http"
    host = f"[{address}]" if ":" in address else address
    url = URL(f"{scheme}://{host}:{request.port}{request.target}", encoded=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # The certificate of a test or a redirect by DNS is not what is asked about.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    headers = [(name, value) for name, value in request.headers if name.lower() != "host"]
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_TIMEOUT_SECONDS)) as session,
            session.request(
                request.method,
                url,
                headers=[("Host", request.host), *headers],
                allow_redirects=False,
                ssl=context,
                server_hostname=request.sni or None if request.tls else None,
            ) as response,
        ):
            return compare_response(response.status, response.headers.get("Location", ""), expected)
    except (aiohttp.ClientError, TimeoutError, ssl.SSLError) as error:
        text = f"no answer ({failure_text(error)})"
        if expected.verdict == "no-answer":
            return SentResponse(True, f"{text}, {AGREES}")
        return SentResponse(False, f"{text}, {DIFFERS}")


def failure_text(error: Exception) -> str:
    """Return why a request has no response, without addresses of objects in memory."""
    if isinstance(error, aiohttp.ClientConnectorError):
        error = error.os_error
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


async def _call(request: HttpRequest, address: str, expected: ExpectedResponse) -> SentResponse:
    """Send a gRPC call with an empty message, and compare its status with the expected one."""
    # Imported here because most commands do not need it.
    import grpc
    import grpc.aio

    host = f"[{address}]" if ":" in address else address
    options = [("grpc.default_authority", request.host), ("grpc.enable_http_proxy", 0)]
    headers = [
        (name.lower(), value) for name, value in request.headers if name.lower() not in _OWN_HEADERS
    ]
    async with grpc.aio.insecure_channel(f"{host}:{request.port}", options=options) as channel:
        # Its stub lacks methods without serializers.
        method: Any = channel.unary_stream(request.target)
        call = method(b"", metadata=headers, timeout=_TIMEOUT_SECONDS)
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
    agrees = number in {_GRPC_STATUSES.get(status, _UNAVAILABLE) for status in expected.statuses}
    if expected.verdict in ("forwarded", "mixed"):
        agrees = agrees or number != _UNAVAILABLE
    verdict = AGREES if agrees else DIFFERS
    return SentResponse(agrees, f"gRPC status {name}, {verdict}", number)


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
    verdict = AGREES if agrees else DIFFERS
    return SentResponse(agrees, f"{text}, {verdict}", status)
