"""Requests to endpoints, over HTTP/1.1 or over HTTP/2 without TLS. Each has its own connection."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import aiohttp
import msgspec
from multidict import CIMultiDict
from yarl import URL

from gatehouse.dataplane.endpoints import WeightedEndpoint
from gatehouse.sidecars.base.failure_log import error_text
from gatehouse.sidecars.picker import mutations
from gatehouse.sidecars.picker.http2 import Http2Connection, Http2Stream, StreamFailedError
from gatehouse.sidecars.picker.mutations import Fields

ENDPOINT_CONNECT_SECONDS = 5.0
"""Time limit of a connection to an endpoint, in seconds, as for NGINX's own connections."""

_UNCHANGED = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
"""Fields that the HTTP client would add."""


class EndpointRefusedError(Exception):
    """An endpoint accepted no connection, so that another one can get the request."""


REFUSALS = (
    aiohttp.ClientConnectorError,
    aiohttp.ConnectionTimeoutError,
    EndpointRefusedError,
)
"""Errors of endpoints that got nothing."""

ENDPOINT_FAILURES = (aiohttp.ClientError, EndpointRefusedError, StreamFailedError)
"""Errors of endpoints."""


class EndpointRequest(msgspec.Struct, frozen=True):
    """A request to an endpoint."""

    fields: Fields
    """With the pseudo-header fields of HTTP/2."""
    content: AsyncIterator[bytes] | None
    """None if it has no body."""


class EndpointResponse(msgspec.Struct, frozen=True):
    """A response that has begun."""

    fields: Fields
    """The status as ``:status``, and the fields for the client."""
    content: AsyncIterator[bytes]

    @property
    def has_body(self) -> bool:
        """Return whether the status and the length allow a body."""
        fields = dict(self.fields)
        return fields[":status"] not in ("204", "304") and fields.get("content-length") != "0"


@contextlib.asynccontextmanager
async def send_http1(
    session: aiohttp.ClientSession, endpoint: WeightedEndpoint, request: EndpointRequest
) -> AsyncIterator[EndpointResponse]:
    """Send a request over HTTP/1.1. Raises aiohttp.ClientError."""
    pseudo = {name: value for name, value in request.fields if name.startswith(":")}
    headers = CIMultiDict(field for field in request.fields if not field[0].startswith(":"))
    headers["Host"] = pseudo[":authority"]
    path, _, query = pseudo[":path"].partition("?")
    url = URL.build(
        scheme="http",
        host=endpoint.address,
        port=endpoint.port,
        path=path,
        query_string=query,
        encoded=True,
    )
    async with session.request(
        pseudo[":method"],
        url,
        headers=headers,
        data=request.content,
        allow_redirects=False,
        skip_auto_headers=_UNCHANGED,
    ) as response:
        raw = (
            (mutations.text(name), mutations.text(value)) for name, value in response.raw_headers
        )
        fields = [(":status", str(response.status)), *mutations.end_to_end(raw)]
        yield EndpointResponse(fields, response.content.iter_any())


@contextlib.asynccontextmanager
async def send_http2(
    endpoint: WeightedEndpoint, request: EndpointRequest
) -> AsyncIterator[EndpointResponse]:
    """Send a request over HTTP/2. Raises EndpointRefusedError or StreamFailedError."""
    connection = await _connect(endpoint)
    sending: asyncio.Task[None] | None = None
    try:
        pseudo = [field for field in request.fields if field[0].startswith(":")]
        others = [field for field in request.fields if not field[0].startswith(":")]
        # The scheme is that of this connection.
        scheme = [(name, "http" if name == ":scheme" else value) for name, value in pseudo]
        stream = connection.open_stream([*scheme, *others], end=request.content is None)
        if request.content is not None:
            sending = asyncio.create_task(_send(stream, request.content))
        fields = await stream.response()
        yield EndpointResponse(mutations.end_to_end(fields), _Parts(stream))
    finally:
        if sending is not None:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        connection.abort()


async def _connect(endpoint: WeightedEndpoint) -> Http2Connection:
    """Raises EndpointRefusedError."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(ENDPOINT_CONNECT_SECONDS):
            _, connection = await loop.create_connection(
                Http2Connection, endpoint.address, endpoint.port
            )
    except TimeoutError as error:
        why = f"{endpoint.encoded}: no connection within {ENDPOINT_CONNECT_SECONDS:g} s"
        raise EndpointRefusedError(why) from error
    except OSError as error:
        raise EndpointRefusedError(f"{endpoint.encoded}: {error_text(error)}") from error
    return connection


async def _send(stream: Http2Stream, content: AsyncIterator[bytes]) -> None:
    try:
        async for part in content:
            await stream.send(part)
        stream.end()
    except StreamFailedError:
        # The response says more: an endpoint may respond before it has read the whole request.
        return
    except Exception as error:
        stream.add_end(f"the request failed: {error}")


class _Parts:
    """Parts of a response, which can be read on after a cancelled read."""

    def __init__(self, stream: Http2Stream) -> None:
        self._stream = stream

    def __aiter__(self) -> _Parts:
        return self

    async def __anext__(self) -> bytes:
        part = await self._stream.receive()
        if not part:
            raise StopAsyncIteration
        return part
