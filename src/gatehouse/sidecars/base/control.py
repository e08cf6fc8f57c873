"""How the agent tells a companion what to do: a line of JSON each way, on a socket of its own."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gatehouse.sidecars.base.service import RefusedError, Service

SOCKET = "control.sock"

MAX_LINE_BYTES = 1 << 24
"""Bytes of a request: 100,000 configurations."""


class Request(msgspec.Struct, frozen=True):
    """Serve these configurations, and no others."""

    serve: tuple[str, ...]


class Answer(msgspec.Struct, frozen=True):
    """It does, unless there is an error."""

    error: str = ""


async def listen(directory: Path, service: Service) -> asyncio.Server:
    """Take requests, one at a time."""
    turn = asyncio.Lock()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            line = await reader.readline()
            async with turn:
                found = await _obey(line, service)
            writer.write(msgspec.json.encode(found) + b"\n")
        writer.close()

    path = directory / SOCKET
    path.unlink(missing_ok=True)
    return await asyncio.start_unix_server(answer, path, limit=MAX_LINE_BYTES)


async def _obey(line: bytes, service: Service) -> Answer:
    try:
        request = msgspec.json.decode(line, type=Request)
        await service.serve([Path(each) for each in request.serve])
    except (RefusedError, msgspec.MsgspecError) as error:
        return Answer(str(error))
    return Answer()


async def ask(directory: Path, configurations: Sequence[Path]) -> str:
    """Have the companion serve; gives what is wrong, empty when it does.

    Raises OSError or EOFError if there is no companion, or it ends.
    """
    reader, writer = await asyncio.open_unix_connection(directory / SOCKET)
    try:
        request = Request(tuple(str(each) for each in configurations))
        writer.write(msgspec.json.encode(request) + b"\n")
        return msgspec.json.decode(await reader.readuntil(b"\n"), type=Answer).error
    finally:
        writer.close()


def pid(directory: Path) -> int | None:
    """Give the process that takes requests; None if none does."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(directory / SOCKET))
        except OSError:
            return None
        credentials = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    found: int = struct.unpack("3i", credentials)[0]
    return found
