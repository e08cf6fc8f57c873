"""Client of Envoy's admin interface."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from urllib.parse import quote

from kube_base.runtime.time_limits import scaled

ADMIN_TIMEOUT_SECONDS = scaled(5.0)
"""Timeout of a request in seconds.

A busy Envoy responds late, for example with 5,000 clusters to warm.
"""

FIND_TIMEOUT_SECONDS = scaled(30.0)
"""Timeout of a request with a large response in seconds."""

_PIECE_BYTES, _MAX_MATCH_BYTES = 1 << 16, 100

_ACTIVE = r"^(listener|http)\..*\.downstream_(cx|rq)_active$"


class AdminClient:
    """Client of one Envoy. Every method except `ready` raises OSError if Envoy does not respond."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    async def get(self, path: str, *, post: bool = False) -> tuple[int, str]:
        """Return status and text of a response."""
        method = "POST" if post else "GET"
        async with self._request(method, path, ADMIN_TIMEOUT_SECONDS) as reader:
            status, body = _parse(await reader.read())
        return status, body.decode(errors="replace")

    async def find(self, path: str, pattern: re.Pattern[bytes]) -> list[str]:
        """Return the group of each match in a response of any size.

        A match has at most 100 bytes. Raises OSError also for a status other than 200.
        """
        result: list[str] = []
        rest = b""
        async with self._request("GET", path, FIND_TIMEOUT_SECONDS) as reader:
            async for piece in _read_body(reader):
                text, end = rest + piece, 0
                for match in pattern.finditer(text):
                    result.append(match[1].decode())
                    end = match.end()
                rest = text[max(end, len(text) - _MAX_MATCH_BYTES) :]
        return result

    @contextlib.asynccontextmanager
    async def _request(
        self, method: str, path: str, seconds: float
    ) -> AsyncIterator[asyncio.StreamReader]:
        head = f"{method} {path} HTTP/1.1\r\nHost: envoy\r\nConnection: close\r\n\r\n"
        try:
            async with asyncio.timeout(seconds):
                reader, writer = await asyncio.open_unix_connection(str(self._socket))
                try:
                    writer.write(head.encode())
                    yield reader
                finally:
                    writer.close()
        except (ValueError, EOFError, asyncio.LimitOverrunError, TimeoutError) as error:
            raise OSError(f"{self._socket}: {str(error) or 'no response'}") from error

    async def ready(self) -> str:
        """Return why Envoy takes no traffic. Empty if it is ready."""
        try:
            status, text = await self.get("/ready")
        except OSError as error:
            return str(error)
        return "" if status == 200 else f"Envoy is {text.strip()}"

    async def fail_health_checks(self) -> None:
        """Make Envoy fail health checks, as before a shutdown."""
        await self.get("/healthcheck/fail", post=True)

    async def drain_connections(self) -> None:
        """Close every connection after its current response, but still accept new ones."""
        await self.get("/drain_listeners?graceful&skip_exit", post=True)

    async def close_listeners(self) -> None:
        """Stop accepting connections. Established ones continue."""
        await self.get("/drain_listeners", post=True)

    async def active_count(self) -> int:
        """Return the number of active requests and non-HTTP connections."""
        _, text = await self.get(f"/stats?filter={quote(_ACTIVE)}")
        counts: Counter[str] = Counter()
        for line in text.splitlines():
            name, _, value = line.rpartition(": ")
            if value.isdecimal() and ".worker_" not in name and ".admin." not in name:
                counts[name.partition(".")[0] + name.rpartition(".")[2]] += int(value)
        others = counts["listenerdownstream_cx_active"] - counts["httpdownstream_cx_active"]
        return counts["httpdownstream_rq_active"] + max(0, others)


def exact_names(names: Iterable[str]) -> str:
    """Return the value of `name_regex` in a query for these names."""
    return quote(f"^({'|'.join(map(re.escape, names))})$", safe="")


async def _read_body(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yield the body of a response with status 200 in pieces. Raises ValueError or EOFError."""
    lines = (await reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
    if lines[0].split()[1:2] != [b"200"]:
        raise ValueError(f"{lines[0][:50]!r}")
    if b"transfer-encoding: chunked" not in lines:
        while piece := await reader.read(_PIECE_BYTES):
            yield piece
        return
    while size := int(await reader.readuntil(b"\r\n"), 16):
        while size:
            piece = await reader.read(min(size, _PIECE_BYTES))
            if not piece:
                raise EOFError("truncated response")
            size -= len(piece)
            yield piece
        await reader.readexactly(2)


def _parse(response: bytes) -> tuple[int, bytes]:
    """Parse a complete HTTP response into status and body. Raises ValueError."""
    head, _, body = response.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    fields = lines[0].split()
    if len(fields) < 2 or not fields[1].isdigit():
        raise ValueError(f"{response[:50]!r} is not an HTTP response")
    if b"transfer-encoding: chunked" not in lines:
        return int(fields[1]), body
    chunks = []
    while body:
        size, _, rest = body.partition(b"\r\n")
        length = int(size, 16)
        chunks.append(rest[:length])
        body = rest[length + 2 :]
        if length == 0:
            break
    return int(fields[1]), b"".join(chunks)
