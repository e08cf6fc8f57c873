"""Asking a cluster, through Envoy, which picks one of its servers each time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import aiohttp
import msgspec

from gatehouse.sidecars.reviewer.reviews import InvalidReviewError

ATTEMPTS = 2

ATTEMPT_SECONDS = 2.0

PAUSE_SECONDS = 0.05
"""Before another attempt."""

MOST_BYTES = 1 << 20

_Answer = TypeVar("_Answer")


class UnavailableError(Exception):
    """No server answered; the message says what the last one did."""


class _AgainError(Exception):
    """An attempt that failed, where another one may not."""


class _Status(msgspec.Struct):
    message: str = ""


class Upstream:
    """All clusters, behind one socket. To be made in a running loop, and closed."""

    def __init__(self, socket: Path, attempt_seconds: float = ATTEMPT_SECONDS) -> None:
        self.retries = 0
        self._seconds = attempt_seconds
        # How many there are at a time is decided cluster by cluster.
        connector = aiohttp.UnixConnector(str(socket), limit=0)
        self._http = aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=True
        )

    async def review(
        self, cluster: str, path: str, body: bytes, read: Callable[[bytes], _Answer]
    ) -> _Answer:
        """Have a review answered, and read what came.

        Raises UnavailableError; ``read`` may raise NoReviewError.
        """
        for attempt in range(1, ATTEMPTS + 1):
            try:
                async with asyncio.timeout(self._seconds):
                    return read(await self._ask(cluster, path, body))
            except (
                TimeoutError,
                _AgainError,
                InvalidReviewError,
                aiohttp.ClientError,
                OSError,
            ) as e:
                if attempt == ATTEMPTS:
                    raise UnavailableError(f"{cluster}: {self._reason(e)}") from e
            self.retries += 1
            await asyncio.sleep(PAUSE_SECONDS)
        raise AssertionError("the last attempt returns or raises")

    async def close(self) -> None:
        """Close all connections."""
        await self._http.close()

    async def _ask(self, cluster: str, path: str, body: bytes) -> bytes:
        headers = {
            "Host": cluster,
            "Content-Type": "application/json",
            "Accept": "application/json",
        }
        async with self._http.post(
            f"http://upstream{path}", data=body, headers=headers, allow_redirects=False
        ) as response:
            found = b""
            async for chunk in response.content.iter_chunked(1 << 16):
                found += chunk
                if len(found) > MOST_BYTES:
                    raise _AgainError(f"an answer of more than {MOST_BYTES} bytes")
        if response.status in (200, 201):
            return found
        said = f"{path.rpartition('/')[2]}: {response.status}{_message(found)}"
        if response.status == 429 or response.status >= 500:
            raise _AgainError(said)
        # Whichever server is asked, the gateway itself is not let in, or has no such API there.
        raise UnavailableError(f"{cluster}: {said}")

    def _reason(self, error: Exception) -> str:
        if isinstance(error, TimeoutError):
            return f"no answer within {self._seconds:g} s"
        if isinstance(error, aiohttp.ClientConnectorError):
            return f"Envoy cannot be asked: {error.os_error.strerror or error.os_error}"
        return str(error) or type(error).__name__


def _message(body: bytes) -> str:
    """Give what a ``Status``, or Envoy, says of a failure."""
    try:
        text = msgspec.json.decode(body, type=_Status).message
    except (msgspec.MsgspecError, RecursionError):
        text = body.decode(errors="replace")
    words = " ".join(text.split())
    return f" {words}" if words else ""
