"""Output of a command in a container: channels of a WebSocket of ``pods/exec``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import aiohttp
import msgspec

from gatehouse.kube.connection import Connection, unreachable
from gatehouse.kube.errors import Unavailable, error_from_status
from kube_base.types.objects import Object

EXEC_PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
"""Subprotocols in the order of kubectl. They differ only in the end of standard input."""

_STDOUT, _STDERR, _STATUS = 1, 2, 3

MAX_OUTPUT_BYTES = 256 << 20
"""Maximum size of the output of a command. A Pod decides what it writes."""

_TIMEOUT_SECONDS = 60.0
"""Timeout of a command."""


class CommandResult(msgspec.Struct, frozen=True):
    """Result of a command that ended."""

    exit_code: int
    stdout: bytes
    stderr: bytes


class CommandOutput:
    """Messages of one command until it ends."""

    def __init__(self) -> None:
        self._streams: dict[int, bytearray] = {_STDOUT: bytearray(), _STDERR: bytearray()}
        self._status = bytearray()

    def receive(self, message: bytes) -> None:
        """Process a message: the number of a channel, then data. Raises Unavailable."""
        if not message:
            return
        channel, data = message[0], message[1:]
        if channel == _STATUS:
            self._status += data
        elif channel in self._streams:
            self._streams[channel] += data
        size = len(self._status) + sum(map(len, self._streams.values()))
        if size > MAX_OUTPUT_BYTES:
            raise Unavailable(0, "TooLarge", f"the output exceeds {MAX_OUTPUT_BYTES} bytes")

    def result(self) -> CommandResult:
        """Return the result after the last message. Raises ApiError if the command did not run."""
        if not self._status:
            raise Unavailable(0, "Interrupted", "the connection ended before the command")
        try:
            status = msgspec.json.decode(self._status, type=Object)
        except msgspec.MsgspecError as error:
            raise Unavailable(
                0, "MalformedAnswer", f"invalid status of a command: {error}"
            ) from error
        exit_code = _exit_code(status)
        if exit_code is None:
            raise error_from_status(status)
        stdout, stderr = (bytes(self._streams[channel]) for channel in (_STDOUT, _STDERR))
        return CommandResult(exit_code, stdout, stderr)


def _exit_code(status: Object) -> int | None:
    """Return the exit status of a command; None if it did not run."""
    if status.get("status") == "Success":
        return 0
    details = status.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    for cause in causes if isinstance(causes, list) else ():
        if isinstance(cause, dict) and cause.get("reason") == "ExitCode":
            text = str(cause.get("message", ""))
            return int(text) if text.isdecimal() else None
    return None


async def run_in_container(
    connection: Connection, path: str, container: str, command: Sequence[str]
) -> CommandResult:
    """Run a command in a container. ``path``: that of the Pod's ``exec``. Raises ApiError."""
    options = [("container", container), ("stdout", "true"), ("stderr", "true")]
    query = [*(("command", word) for word in command), *options]
    output = CommandOutput()
    socket = await connection.open_websocket(path, query=query, protocols=EXEC_PROTOCOLS)
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            async for message in socket:
                if message.type is aiohttp.WSMsgType.BINARY:
                    output.receive(message.data)
    except (TimeoutError, aiohttp.ClientError, OSError) as error:
        raise unreachable(connection.server, error) from error
    finally:
        await socket.close()
    return output.result()
