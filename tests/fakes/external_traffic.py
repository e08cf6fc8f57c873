"""Servers on node ports, and clients of the machines in front of them."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

from fakes import patience
from fakes.authority import Authority
from fakes.external_objects import FRONT, NODES, TCP, TLS, UDP, WEB
from gatehouse.standalone import echo


class Echo(asyncio.DatagramProtocol):
    """Answers datagrams with who it is."""

    def __init__(self, name: str) -> None:
        self._name = name

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, address: Any) -> None:
        self._transport.sendto(self._name.encode() + b" " + data, address)


@contextlib.asynccontextmanager
async def node(number: int, directory: Path) -> AsyncIterator[None]:
    """Serve the node ports of a node."""
    name, address = f"node-{number}", NODES[number]
    trusted = Authority(directory, name)
    files = trusted.issue(name)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(name.encode())
        writer.close()

    loop = asyncio.get_running_loop()
    tls = await asyncio.start_server(greet, address, TLS, ssl=context)
    tcp = await asyncio.start_server(greet, address, TCP)
    datagrams, _ = await loop.create_datagram_endpoint(
        lambda: Echo(name), local_addr=(address, UDP)
    )
    try:
        async with echo.serve_echo({(address, WEB): name}):
            yield
    finally:
        tls.close()
        tcp.close()
        datagrams.close()


async def web(port: int, host: str = "shop.example") -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{FRONT}:{port}/", headers={"Host": host}) as response,
    ):
        return response.status, response.headers.get("X-Backend", "")


async def greeting_of(port: int, name: str = "") -> str:
    context = None
    if name:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection(
        FRONT, port, ssl=context, server_hostname=name or None
    )
    try:
        return (await asyncio.wait_for(reader.read(), patience.SECONDS)).decode()
    finally:
        writer.close()


async def datagram(port: int) -> str:
    answers: asyncio.Queue[bytes] = asyncio.Queue()

    class Client(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, _: Any) -> None:
            answers.put_nowait(data)

    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(Client, remote_addr=(FRONT, port))
    try:
        transport.sendto(b"hello")
        return (await asyncio.wait_for(answers.get(), patience.SECONDS)).decode()
    finally:
        transport.close()


async def backends(port: int, requests: int = 20) -> set[str]:
    return {(await web(port))[1] for _ in range(requests)}
