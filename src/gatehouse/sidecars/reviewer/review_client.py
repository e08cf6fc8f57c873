"""Sends reviews to a cluster through Envoy, which selects a server for each attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import aiohttp
import msgspec

from gatehouse.sidecars.reviewer.reviews import InvalidReviewError
from kube_base.runtime.time_limits import scaled

_ATTEMPTS = 2

ATTEMPT_SECONDS = scaled(2.0)

PAUSE_SECONDS = 0.05
"""Pause in seconds before another attempt."""

_MAX_RESPONSE_BYTES = 1 << 20

_Answer = TypeVar("_Answer")


class ReviewUnavailableError(Exception):
    """No server returned a review. The message contains the last error."""


class _RetryableError(Exception):
    """A failed attempt that may succeed when repeated."""


class _Status(msgspec.Struct):
    message: str = ""


class ReviewClient:
    """Client of all clusters behind one socket. Create it in a running loop, and close it."""

    def __init__(self, socket: Path, attempt_seconds: float = ATTEMPT_SECONDS) -> None:
        self.retries = 0
        self._seconds = attempt_seconds
        # Concurrency is limited per cluster elsewhere.
        connector = aiohttp.UnixConnector(str(socket), limit=0)
        self._http = aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=True
        )

    async def review(
        self, cluster: str, path: str, body: bytes, read: Callable[[bytes], _Answer]
    ) -> _Answer:
        """Send a review and parse the response with ``read``.

        Raises ReviewUnavailableError. ``read`` may raise InvalidReviewError, which is retried.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                async with asyncio.timeout(self._seconds):
                    return read(await self._post(cluster, path, body))
            except (
                TimeoutError,
                _RetryableError,
                InvalidReviewError,
                aiohttp.ClientError,
                OSError,
            ) as e:
                if attempt == _ATTEMPTS:
                    raise ReviewUnavailableError(f"{cluster}: {self._reason(e)}") from e
            self.retries += 1
            await asyncio.sleep(PAUSE_SECONDS)
        raise AssertionError("the last attempt returns or raises")

    async def close(self) -> None:
        """Close all connections."""
        await self._http.close()

    async def _post(self, cluster: str, path: str, body: bytes) -> bytes:
        headers = {
            "Host": cluster,
            "Content-Type": "application/json",
            "Accept": "application/json",
        }
        async with self._http.post(
            f"http://upstream{path}", data=body, headers=headers, allow_redirects=False
        ) as response:
            content = b""
            async for chunk in response.content.iter_chunked(1 << 16):
                content += chunk
                if len(content) > _MAX_RESPONSE_BYTES:
                    raise _RetryableError(f"response is larger than {_MAX_RESPONSE_BYTES} bytes")
        if response.status in (200, 201):
            return content
        problem = f"{path.rpartition('/')[2]}: {response.status}{_message(content)}"
        if response.status == 429 or response.status >= 500:
            raise _RetryableError(problem)
        # Another attempt would fail too: the gateway is not authorized, or the API does not exist.
        raise ReviewUnavailableError(f"{cluster}: {problem}")

    def _reason(self, error: Exception) -> str:
        if isinstance(error, TimeoutError):
            return f"no response within {self._seconds:g} s"
        if isinstance(error, aiohttp.ClientConnectorError):
            return f"cannot connect to Envoy: {error.os_error.strerror or error.os_error}"
        return str(error) or type(error).__name__


def _message(body: bytes) -> str:
    """Return the message of a ``Status`` or of Envoy."""
    try:
        text = msgspec.json.decode(body, type=_Status).message
    except (msgspec.MsgspecError, RecursionError):
        text = body.decode(errors="replace")
    message = " ".join(text.split())
    return f" {message}" if message else ""
