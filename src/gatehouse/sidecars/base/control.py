"""Control protocol between agent and sidecar: one JSON line per request and response on a Unix
socket."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gatehouse.sidecars.base.service import InvalidConfigError, SidecarService

CONTROL_SOCKET = "control.sock"

_MAX_LINE_BYTES = 1 << 24
"""Maximum size of a request in bytes, enough for 100,000 configurations."""


class ControlRequest(msgspec.Struct, frozen=True):
    """Request to serve exactly these configurations."""

    serve: tuple[str, ...]


class ControlResponse(msgspec.Struct, frozen=True):
    """Response to a request. An empty ``error`` means success."""

    error: str = ""


async def listen(directory: Path, service: SidecarService) -> asyncio.Server:
    """Serve requests on the control socket, one at a time."""
    lock = asyncio.Lock()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            line = await reader.readline()
            async with lock:
                response = await _handle(line, service)
            writer.write(msgspec.json.encode(response) + b"\n")
        writer.close()

    path = directory / CONTROL_SOCKET
    path.unlink(missing_ok=True)
    return await asyncio.start_unix_server(answer, path, limit=_MAX_LINE_BYTES)


async def _handle(line: bytes, service: SidecarService) -> ControlResponse:
    try:
        request = msgspec.json.decode(line, type=ControlRequest)
        await service.serve([Path(path) for path in request.serve])
    except (InvalidConfigError, msgspec.MsgspecError) as error:
        return ControlResponse(str(error))
    return ControlResponse()


async def send_request(directory: Path, configurations: Sequence[Path]) -> str:
    """Send the sidecar its configurations. Return the error message, empty on success.

    Raises OSError or EOFError if the sidecar is not running or exits.
    """
    reader, writer = await asyncio.open_unix_connection(directory / CONTROL_SOCKET)
    try:
        request = ControlRequest(tuple(str(configuration) for configuration in configurations))
        writer.write(msgspec.json.encode(request) + b"\n")
        return msgspec.json.decode(await reader.readuntil(b"\n"), type=ControlResponse).error
    finally:
        writer.close()


def pid(directory: Path) -> int | None:
    """Return the process ID of the sidecar, or None if it does not accept connections."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(directory / CONTROL_SOCKET))
        except OSError:
            return None
        credentials = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    process: int = struct.unpack("3i", credentials)[0]
    return process
