"""Pages that processes beside the agent show it, on sockets of its own."""

from __future__ import annotations

import asyncio
from pathlib import Path


async def get(socket: Path, path: str) -> str | None:
    """Get a page, on a new connection; None: there is no answer, or no page."""
    try:
        async with asyncio.timeout(1.0):
            reader, writer = await asyncio.open_unix_connection(str(socket))
            try:
                writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
                reply = await reader.read()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return None
    head, _, body = reply.partition(b"\r\n\r\n")
    return body.decode(errors="replace") if b" 200 " in head.split(b"\r\n", 1)[0] else None
