"""What Envoy answers on its administration socket."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from urllib.parse import quote

ADMIN_TIMEOUT_SECONDS = 5.0
"""A busy Envoy answers late, one that has 5,000 clusters to warm too."""


_ACTIVE = r"^(listener|http)\..*\.downstream_(cx|rq)_active$"


class AdminClient:
    """Asks one Envoy. Every question raises OSError if it is not answered."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    async def get(self, path: str, *, post: bool = False) -> tuple[int, str]:
        """Give status and text of the answer."""
        method = "POST" if post else "GET"
        head = f"{method} {path} HTTP/1.1\r\nHost: envoy\r\nConnection: close\r\n\r\n"
        try:
            async with asyncio.timeout(ADMIN_TIMEOUT_SECONDS):
                reader, writer = await asyncio.open_unix_connection(str(self._socket))
                try:
                    writer.write(head.encode())
                    status, body = _parse(await reader.read())
                finally:
                    writer.close()
        except (ValueError, TimeoutError) as error:
            raise OSError(f"{self._socket}: {error or 'no answer'}") from error
        return status, body.decode(errors="replace")

    async def ready(self) -> str:
        """Give why Envoy takes no traffic; empty: it does."""
        try:
            status, text = await self.get("/ready")
        except OSError as error:
            return str(error)
        return "" if status == 200 else f"Envoy is {text.strip()}"

    async def fail_health_checks(self) -> None:
        """Have health checks answered as by one that is about to end."""
        await self.get("/healthcheck/fail", post=True)

    async def drain_connections(self) -> None:
        """Have every connection closed after the answer that is on its way; take new ones still."""
        await self.get("/drain_listeners?graceful&skip_exit", post=True)

    async def close_listeners(self) -> None:
        """Take no new connections; those that there are go on."""
        await self.get("/drain_listeners", post=True)

    async def active_count(self) -> int:
        """Give the number of requests, and of connections that are no HTTP, on their way."""
        _, text = await self.get(f"/stats?filter={quote(_ACTIVE)}")
        counts: Counter[str] = Counter()
        for line in text.splitlines():
            name, _, value = line.rpartition(": ")
            if value.isdecimal() and ".worker_" not in name and ".admin." not in name:
                counts[name.partition(".")[0] + name.rpartition(".")[2]] += int(value)
        others = counts["listenerdownstream_cx_active"] - counts["httpdownstream_cx_active"]
        return counts["httpdownstream_rq_active"] + max(0, others)


def _parse(answer: bytes) -> tuple[int, bytes]:
    """Read an answer that came to its end; raises ValueError."""
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    words = lines[0].split()
    if len(words) < 2 or not words[1].isdigit():
        raise ValueError(f"{answer[:50]!r} is no answer of HTTP")
    if b"transfer-encoding: chunked" not in lines:
        return int(words[1]), body
    pieces = []
    while body:
        size, _, rest = body.partition(b"\r\n")
        length = int(size, 16)
        pieces.append(rest[:length])
        body = rest[length + 2 :]
        if length == 0:
            break
    return int(words[1]), b"".join(pieces)
