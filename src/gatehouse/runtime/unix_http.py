"""HTTP GET over a Unix socket."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kube_base.runtime.time_limits import scaled

PAGE_TIMEOUT_SECONDS = scaled(1.0)
"""Timeout of a page in seconds."""


async def get(socket: Path, path: str) -> str | None:
    """Return the body of a page, fetched over a new connection.

    Returns None if the server does not answer in time or the status is not 200.
    """
    try:
        async with asyncio.timeout(PAGE_TIMEOUT_SECONDS):
            reader, writer = await asyncio.open_unix_connection(str(socket))
            try:
                writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
                response = await reader.read()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return None
    head, _, body = response.partition(b"\r\n\r\n")
    return body.decode(errors="replace") if b" 200 " in head.split(b"\r\n", 1)[0] else None
