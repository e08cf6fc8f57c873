"""HTTP responses."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import yaml
from aiohttp import web

from kube_api_server import offload
from kube_api_server.builtin import protobuf_encoding
from kube_api_server.builtin.protobuf_messages import PROTOBUF_TYPE
from kube_api_server.errors import StatusError
from kube_api_server.http import negotiation
from kube_api_server.http.representations import Representation
from kube_api_server.objects.write_request import WriteResult
from kube_api_server.storage.entries import StoredEntry
from kube_base.types.objects import Object

UNAUTHORIZED = 401

PIECE_BYTES = 256 * 1024
"""Size up to which a response is sent as a whole."""

MAX_YAML_BYTES = 256 * 1024
"""Size up to which a response is converted to YAML."""

MAX_WARNINGS_LENGTH = 4096
"""Length of all warnings of a response from which each is cut, and the rest is left out."""

MAX_WARNING_LENGTH = 256
"""Length to which long warnings are cut if there are too many."""

PIECE_SECONDS = 30.0
"""Timeout in seconds of a piece of a response."""

SEND_SECONDS = 60.0
"""Timeout in seconds of a response."""


def raw(data: bytes, code: int = 200, content_type: str = "application/json") -> web.Response:
    """Build a response from encoded bytes."""
    return web.Response(body=data, status=code, headers={"Content-Type": content_type})


def json(value: Any, code: int = 200, content_type: str = "application/json") -> web.Response:
    """Build a response with a value as JSON."""
    return raw(msgspec.json.encode(value), code, content_type)


def encoded(form: Representation, data: bytes, code: int = 200) -> web.Response:
    """Build a response with what a representation has encoded."""
    return raw(data, code, form.content_type)


def unstored(request: web.BaseRequest, obj: Object, code: int = 200) -> web.Response:
    """Build a response with an object of a built-in kind that has one representation only."""
    if negotiation.prefers_protobuf(request):
        return raw(protobuf_encoding.encode_protobuf(obj), code, PROTOBUF_TYPE)
    return json(obj, code)


async def in_requested_type(
    request: web.BaseRequest, response: web.StreamResponse
) -> web.StreamResponse:
    """Return a response with the same content in YAML if the client prefers it.

    The content of a large response remains JSON, which is YAML as well.
    """
    if not negotiation.prefers_yaml(request) or not isinstance(response, web.Response):
        return response
    body = response.body
    if response.content_type != negotiation.JSON or not isinstance(body, bytes):
        return response
    if len(body) <= MAX_YAML_BYTES:
        response.body = await offload.run_offloaded(functools.partial(_yaml, body), len(body))
    response.headers["Content-Type"] = negotiation.YAML
    return response


def _yaml(data: bytes) -> bytes:
    encoded: bytes = yaml.dump(
        msgspec.json.decode(data), Dumper=yaml.CSafeDumper, encoding="utf-8", allow_unicode=True
    )
    return encoded


async def send_in_pieces(
    request: web.BaseRequest, response: web.StreamResponse
) -> web.StreamResponse:
    """Send a large response in pieces, so that its sender occupies its seat until it is read.

    Return a response that is complete, or `response` if it is small. Connections of clients that
    read too slowly are aborted.
    """
    response = await in_requested_type(request, response)
    if not isinstance(response, web.Response) or response.prepared:
        return response
    body = response.body
    if not isinstance(body, bytes) or len(body) <= PIECE_BYTES:
        return response
    streamed = web.StreamResponse(status=response.status, headers=response.headers)
    streamed.content_length = len(body)
    try:
        async with asyncio.timeout(SEND_SECONDS):
            await streamed.prepare(request)
            await write(streamed, body, PIECE_SECONDS)
            await streamed.write_eof()
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
    except ConnectionError:
        pass
    return streamed


async def write(response: web.StreamResponse, data: bytes, seconds: float) -> None:
    """Write data in pieces. Raises TimeoutError if the client does not read a piece in time."""
    view = memoryview(data)
    for start in range(0, len(data), PIECE_BYTES):
        async with asyncio.timeout(seconds):
            await response.write(view[start : start + PIECE_BYTES])


def error_response(request: web.BaseRequest, error: StatusError) -> web.Response:
    """Build a response with a Status."""
    response = unstored(request, error.status(), error.code)
    if error.code == UNAUTHORIZED:
        # The connection must not stay open for a client without credentials.
        response.force_close()
    if error.retry_after:
        response.headers["Retry-After"] = str(error.retry_after)
    response.headers.update(error.headers)
    return response


def write_response(result: WriteResult, form: Representation, code: int) -> web.Response:
    """Build a response with a written object, in the requested representation."""
    revision = int(result.value["metadata"].get("resourceVersion") or 0)
    entry = StoredEntry(revision, result.value, result.data)
    response = encoded(form, form.encode(entry), code)
    for warning in _limited(result.warnings):
        add_warning(response, warning)
    return response


def _limited(warnings: Sequence[str]) -> Iterator[str]:
    """Yield as much of the warnings as a client can be expected to read, as Kubernetes does."""
    if sum(map(len, warnings)) <= MAX_WARNINGS_LENGTH:
        yield from warnings
        return
    length = 0
    for warning in warnings:
        text = warning[:MAX_WARNING_LENGTH]
        yield text
        length += len(text)
        if length >= MAX_WARNINGS_LENGTH:
            return


def add_warning(response: web.StreamResponse, warning: str) -> None:
    """Add a warning that kubectl prints. A name in it may have characters that no header may."""
    text = warning.replace("\\", "\\\\").replace('"', '\\"')
    text = "".join(character if character.isprintable() else " " for character in text)
    response.headers.add("Warning", f'299 - "{text}"')


def success(**fields: Any) -> Object:
    """Return a successful Status with further fields."""
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", **fields}
