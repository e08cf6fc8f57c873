"""Client of the NGINX Plus API."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from kube_base.runtime.time_limits import scaled

LOCATION = "/api"
"""Location of the API in the agent's main file."""

MAX_API_VERSION = 9
"""Newest supported version of the API."""

API_TIMEOUT_SECONDS = scaled(10.0)
"""Timeout of a request in seconds."""


class PlusApiError(Exception):
    """A request failed. The message quotes the API's error if it sent one."""

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.code = code
        """Error code of the API, such as `UpstreamNotFound`. Empty if it sent none."""


class Api:
    """The API behind a Unix socket. Each request uses a new connection.

    A worker may exit at any time and close its connections. A request lost with one could not be
    repeated safely.
    """

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._version = 0

    async def get(self, *path: str) -> Any:
        """Return the object at a path. Raises PlusApiError."""
        return await self._request("GET", path)

    async def post(self, *path: str, body: Any) -> Any:
        """Create an object. Raises PlusApiError."""
        return await self._request("POST", path, body)

    async def patch(self, *path: str, body: Any) -> Any:
        """Change an object. Raises PlusApiError."""
        return await self._request("PATCH", path, body)

    async def delete(self, *path: str) -> Any:
        """Delete an object. Raises PlusApiError."""
        return await self._request("DELETE", path)

    async def _request(self, method: str, path: tuple[str, ...], body: Any = None) -> Any:
        if not self._version:
            self._version = _select_version(await self._send("GET", f"{LOCATION}/"))
        rest = "/".join(quote(part, safe="") for part in path)
        return await self._send(method, f"{LOCATION}/{self._version}/{rest}", body)

    async def _send(self, method: str, path: str, body: Any = None) -> Any:
        content = b"" if body is None else msgspec.json.encode(body)
        # With HTTP/1.0 the response ends with the connection and is not chunked.
        head = (
            f"{method} {path} HTTP/1.0",
            "Host: nginx",
            "Content-Type: application/json",
            f"Content-Length: {len(content)}",
        )
        try:
            async with asyncio.timeout(API_TIMEOUT_SECONDS):
                reader, writer = await asyncio.open_unix_connection(str(self._socket))
                try:
                    writer.write("\r\n".join((*head, "\r\n")).encode() + content)
                    response = await reader.read()
                finally:
                    writer.close()
        except TimeoutError as error:
            raise PlusApiError(f"no response within {API_TIMEOUT_SECONDS:g} s") from error
        except OSError as error:
            raise PlusApiError(f"{self._socket.name}: {error.strerror or error}") from error
        return _read(*_split(response))


def _split(response: bytes) -> tuple[int, bytes]:
    """Return status and body of a response. Raises PlusApiError."""
    head, end, body = response.partition(b"\r\n\r\n")
    fields = head.split(b"\r\n", 1)[0].split(b" ")
    if not end or len(fields) < 2 or not fields[1].isdigit():
        raise PlusApiError("connection closed without a response")
    return int(fields[1]), body


def _read(status: int, raw: bytes) -> Any:
    try:
        body = msgspec.json.decode(raw) if raw else None
    except msgspec.DecodeError as error:
        raise PlusApiError(f"status {status} with a body that is not JSON") from error
    if status < 300:
        return body
    problem = body.get("error") if isinstance(body, dict) else None
    if not isinstance(problem, dict):
        raise PlusApiError(f"status {status} without an error object")
    raise PlusApiError(
        f"{status} {problem.get('code')}: {problem.get('text')}", str(problem.get("code", ""))
    )


def _select_version(versions: Any) -> int:
    offered = versions if isinstance(versions, list) else []
    usable = [item for item in offered if isinstance(item, int) and item <= MAX_API_VERSION]
    if not usable:
        raise PlusApiError(f"no API version up to {MAX_API_VERSION} in {versions!r}")
    return max(usable)
