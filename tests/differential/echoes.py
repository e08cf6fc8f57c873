"""Backends that return what they received."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import grpc

PADDING = "x-padding"
"""Request header with number and size of the headers that the response has in addition."""


def padding(size: str) -> list[str]:
    """Return the names and values of additional headers, as lines."""
    number, _, length = size.partition("x")
    return [f"x-pad-{index}: {'p' * int(length)}" for index in range(int(number or 0))]


async def echo(name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Return the received request, with a header that edits may change."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode(errors="surrogateescape")
            first, *rest = head.split("\r\n")[:-2]
            headers = [[n.lower(), v.strip()] for n, _, v in (x.partition(":") for x in rest)]
            await reader.readexactly(int(dict(headers).get("content-length", "0")))
            method, target = first.split(" ")[:2]
            body = json.dumps(
                {"service": name, "method": method, "target": target, "headers": headers}
            ).encode()
            lines = padding(dict(headers).get(PADDING, ""))
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nx-gone: backend\r\n"
                + "".join(f"{line}\r\n" for line in lines).encode()
                + b"Content-Length: %d\r\n\r\n" % len(body)
                + body
            )
            await writer.drain()
    writer.close()


class _Calls(grpc.GenericRpcHandler):
    """Answers every call."""

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        """Return the handler of a call."""
        headers = [[name, value] for name, value in details.invocation_metadata]

        async def answer(_: bytes, __: Any) -> bytes:
            about = {"service": "calls", "method": "POST", "target": details.method}
            return json.dumps({**about, "headers": headers}).encode()

        return grpc.unary_unary_rpc_method_handler(answer)


@contextlib.asynccontextmanager
async def calls(address: str) -> AsyncIterator[int]:
    """Serve calls; yield the port."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((_Calls(),))
    port = server.add_insecure_port(f"{address}:0")
    await server.start()
    try:
        yield port
    finally:
        await server.stop(0)
