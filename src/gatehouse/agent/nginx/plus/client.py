"""Requests to NGINX Plus' API."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

LOCATION = "/api"
"""Where the agent's main file has it."""

NEWEST = 9
"""The newest version of the API that is spoken."""

API_TIMEOUT_SECONDS = 10.0
"""How long an answer may take."""


class PlusError(Exception):
    """A request that failed; the message says how, in the API's words if there are any."""

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.code = code
        """The API's own name for it, such as ``UpstreamNotFound``; empty if it gave none."""


class Api:
    """The API behind a unix socket; each request has a connection of its own.

    The workers that have a connection may be told to end at any moment, and a request that was lost
    with one could not be sent again.
    """

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._version = 0

    async def get(self, *path: str) -> Any:
        """Give what is at a path; raises PlusError."""
        return await self._ask("GET", path)

    async def post(self, *path: str, body: Any) -> Any:
        """Add something; raises PlusError."""
        return await self._ask("POST", path, body)

    async def patch(self, *path: str, body: Any) -> Any:
        """Change something; raises PlusError."""
        return await self._ask("PATCH", path, body)

    async def delete(self, *path: str) -> Any:
        """Remove something; raises PlusError."""
        return await self._ask("DELETE", path)

    async def _ask(self, method: str, path: tuple[str, ...], body: Any = None) -> Any:
        if not self._version:
            self._version = _newest(await self._send("GET", f"{LOCATION}/"))
        rest = "/".join(quote(part, safe="") for part in path)
        return await self._send(method, f"{LOCATION}/{self._version}/{rest}", body)

    async def _send(self, method: str, path: str, body: Any = None) -> Any:
        content = b"" if body is None else msgspec.json.encode(body)
        # HTTP/1.0: what comes ends with the connection, and is in one piece.
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
                    reply = await reader.read()
                finally:
                    writer.close()
        except TimeoutError as error:
            raise PlusError(f"no answer within {API_TIMEOUT_SECONDS:g} s") from error
        except OSError as error:
            raise PlusError(f"{self._socket.name}: {error.strerror or error}") from error
        return _read(*_split(reply))


def _split(reply: bytes) -> tuple[int, bytes]:
    """Give status and body."""
    head, end, body = reply.partition(b"\r\n\r\n")
    words = head.split(b"\r\n", 1)[0].split(b" ")
    if not end or len(words) < 2 or not words[1].isdigit():
        raise PlusError("the connection ended without an answer")
    return int(words[1]), body


def _read(status: int, raw: bytes) -> Any:
    try:
        found = msgspec.json.decode(raw) if raw else None
    except msgspec.DecodeError as error:
        raise PlusError(f"status {status}, and what came with it is no JSON") from error
    if status < 300:
        return found
    told = found.get("error") if isinstance(found, dict) else None
    if not isinstance(told, dict):
        raise PlusError(f"status {status} without an explanation")
    raise PlusError(f"{status} {told.get('code')}: {told.get('text')}", str(told.get("code", "")))


def _newest(versions: Any) -> int:
    known = versions if isinstance(versions, list) else []
    found = [each for each in known if isinstance(each, int) and each <= NEWEST]
    if not found:
        raise PlusError(f"no version of the API up to {NEWEST} among {versions!r}")
    return max(found)
