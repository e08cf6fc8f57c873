"""A gRPC proxy that forwards all calls unchanged and records their messages."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import msgspec

_UNLIMITED = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))


class RecordedMessage(msgspec.Struct, frozen=True):
    """One message of a call, in the order of all messages."""

    method: str
    """Path such as ``/mpi.v1.CommandService/Subscribe``."""
    sent: bool
    """True if the client sent it."""
    content: bytes


class RecordingProxy(grpc.GenericRpcHandler):
    """Calls of all clients, forwarded to one server."""

    def __init__(self, cert: Path, key: Path, server_port: int) -> None:
        """``cert`` is the certificate of the server, which the proxy uses, too."""
        self.messages: list[RecordedMessage] = []
        self.metadata: dict[str, set[str]] = {}
        """Names of the metadata that clients sent, by method."""
        self.port = 0
        self._pair = (key.read_bytes(), cert.read_bytes())
        self._server_port = server_port
        self._channel: grpc.aio.Channel | None = None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Accept calls."""
        key, certificate = self._pair
        server = grpc.aio.server(options=_UNLIMITED)
        server.add_generic_rpc_handlers((self,))
        credentials = grpc.ssl_server_credentials([(key, certificate)])
        self.port = server.add_secure_port("127.0.0.1:0", credentials)
        trust = grpc.ssl_channel_credentials(certificate)
        options = (*_UNLIMITED, ("grpc.ssl_target_name_override", "control.plane"))
        target = f"127.0.0.1:{self._server_port}"
        async with grpc.aio.secure_channel(target, trust, options) as self._channel:
            await server.start()
            try:
                yield
            finally:
                await server.stop(0)

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any]:
        """Return the handler of a call. On the wire all kinds of calls are alike."""
        method, metadata = str(details.method), tuple(details.invocation_metadata or ())
        self.metadata.setdefault(method, set()).update(name for name, _ in metadata)

        async def forward(requests: AsyncIterator[bytes], context: Any) -> None:
            assert self._channel is not None
            own = tuple(pair for pair in metadata if not pair[0].startswith(("grpc-", "user-")))
            call: Any = self._channel.stream_stream(method)(metadata=own)
            sending = asyncio.create_task(self._send(method, requests, call))
            try:
                async for content in call:
                    self.messages.append(RecordedMessage(method, sent=False, content=content))
                    await context.write(content)
            except grpc.aio.AioRpcError as error:
                await context.abort(error.code(), error.details() or "")
            finally:
                sending.cancel()
                call.cancel()

        return grpc.stream_stream_rpc_method_handler(forward)

    async def _send(self, method: str, requests: AsyncIterator[bytes], call: Any) -> None:
        async for content in requests:
            self.messages.append(RecordedMessage(method, sent=True, content=content))
            await call.write(content)
        await call.done_writing()

    def sent(self) -> list[RecordedMessage]:
        """Return what clients sent."""
        return [message for message in self.messages if message.sent]


def field_values(message: Any, form: Callable[[Any], str]) -> dict[str, frozenset[str]]:
    """Return the forms of all values by path. Elements of lists have the path of the list."""
    forms: dict[str, set[str]] = {}
    _add_values(message, "", form, forms)
    return {path: frozenset(values) for path, values in forms.items()}


def _add_values(
    message: Any, prefix: str, form: Callable[[Any], str], forms: dict[str, set[str]]
) -> None:
    for field, value in message.ListFields():
        path = f"{prefix}{field.name}"
        values = value if field.is_repeated else (value,)
        for item in values:
            if field.message_type is None:
                forms.setdefault(path, set()).add(form(item))
            else:
                forms.setdefault(path, set())
                _add_values(item, f"{path}.", form, forms)
