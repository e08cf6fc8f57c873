"""HTTP responses."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from gatehouse.apiserver.errors import ApiError
from gatehouse.apiserver.http.negotiation import Representation
from gatehouse.apiserver.objects.write_request import WriteResult
from gatehouse.apiserver.storage.entries import Entry


def raw(data: bytes, code: int = 200, content_type: str = "application/json") -> web.Response:
    """Build a response from encoded bytes."""
    return web.Response(body=data, status=code, headers={"Content-Type": content_type})


def json(value: Any, code: int = 200, content_type: str = "application/json") -> web.Response:
    """Build a response with a value as JSON."""
    return raw(msgspec.json.encode(value), code, content_type)


def error_response(error: ApiError) -> web.Response:
    """Build a response with a Status."""
    response = json(error.status(), error.code)
    if error.retry_after:
        response.headers["Retry-After"] = str(error.retry_after)
    response.headers.update(error.headers)
    return response


def write_response(result: WriteResult, form: Representation, code: int) -> web.Response:
    """Build a response with a written object, in the requested representation."""
    revision = int(result.value["metadata"].get("resourceVersion") or 0)
    response = raw(form.encode(Entry(revision, result.value, result.data)), code)
    for warning in result.warnings:
        text = warning.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
        response.headers.add("Warning", f'299 - "{text}"')
    return response


def ok_response(details: dict[str, Any] | None = None) -> web.Response:
    """Build a response with a successful Status."""
    status: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
    }
    if details:
        status["details"] = details
    return json(status)
