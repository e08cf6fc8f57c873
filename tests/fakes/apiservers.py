"""Stand-ins for kube-apiservers: they end TLS, ask for certificates, and say who they are."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from cryptography import x509

from fakes import patience
from fakes.authority import Authority
from gatehouse.compiler.ir import http as ir


class Server(msgspec.Struct):
    """A kube-apiserver."""

    name: str
    endpoint: ir.Endpoint


@contextlib.asynccontextmanager
async def apiserver(
    authority: Authority, name: str, *hosts: str, needs_certificate: bool = False
) -> AsyncIterator[Server]:
    """Run a server that sends its name and its client's, and then the configured text.

    ``needs_certificate``: clients must show a certificate of the authority.
    """
    context = authority.server(name, *(x509.DNSName(host) for host in hosts))
    context.load_verify_locations(cafile=str(authority.file))
    context.verify_mode = ssl.CERT_REQUIRED if needs_certificate else ssl.CERT_OPTIONAL
    result = Server(name, ir.Endpoint("127.0.0.1", 0))
    writers: set[asyncio.StreamWriter] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        certificate = writer.get_extra_info("peercert") or {}
        client = dict(pair for part in certificate.get("subject", ()) for pair in part)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            writer.write(f"{name} {client.get('commonName', '-')}\n".encode())
            while line := await reader.readline():
                writer.write(line)
                await writer.drain()
        writer.close()
        writers.discard(writer)

    listening = socket.create_server(("127.0.0.1", 0), backlog=512)
    server = await asyncio.start_server(answer, sock=listening, ssl=context)
    result.endpoint = ir.Endpoint("127.0.0.1", listening.getsockname()[1])
    try:
        yield result
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()


class ConnectionRejected(Exception):
    """No apiserver answered."""


class Client:
    """A connection to an apiserver through whatever is in between."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.server = self.shown = ""

    async def echo(self, text: str) -> str:
        """Say something, and give what comes back. Raises Refused once it is closed."""
        try:
            self.writer.write(f"{text}\n".encode())
            await self.writer.drain()
            line = await self.reader.readline()
        except (ConnectionError, ssl.SSLError) as error:
            raise ConnectionRejected(str(error)) from error
        if not line:
            raise ConnectionRejected("closed")
        return line.decode().rstrip("\n")

    def close(self) -> None:
        """Go away."""
        self.writer.transport.abort()


async def connect(
    address: tuple[str, int],
    trust: ssl.SSLContext,
    sni: str | None,
    *,
    source: str = "",
    header: bytes = b"",
) -> Client:
    """Connect as a client from ``source``; a proxy says ``header`` first. Raises Refused."""
    loop = asyncio.get_running_loop()
    raw = socket.socket()
    raw.setblocking(False)
    if source:
        raw.bind((source, 0))
    try:
        async with patience.limit():
            await loop.sock_connect(raw, address)
            if header:
                await loop.sock_sendall(raw, header)
            reader, writer = await asyncio.open_connection(
                sock=raw, ssl=trust, server_hostname=sni or ""
            )
            line = await reader.readline()
    except (ConnectionError, ssl.SSLError, TimeoutError) as error:
        raw.close()
        raise ConnectionRejected(f"{type(error).__name__}: {error}") from error
    if not line:
        writer.transport.abort()
        raise ConnectionRejected("closed")
    client = Client(reader, writer)
    client.server, client.shown = line.decode().split()
    return client


async def server_name_at(
    address: tuple[str, int], trust: ssl.SSLContext, sni: str | None, **more: Any
) -> str:
    """Return the name of the kube-apiserver that answers, empty if none does."""
    try:
        client = await connect(address, trust, sni, **more)
    except ConnectionRejected:
        return ""
    client.close()
    return client.server


def version_1(source: str, destination: str, port: int) -> bytes:
    """Return a PROXY protocol header, version 1."""
    family = "TCP6" if ":" in destination else "TCP4"
    return f"PROXY {family} {source} {destination} 40000 {port}\r\n".encode()


def version_2(source: str, destination: str, port: int) -> bytes:
    """Return a PROXY protocol header, version 2."""
    ends = ipaddress.ip_address(source), ipaddress.ip_address(destination)
    family = 0x21 if ends[1].version == 6 else 0x11
    body = ends[0].packed + ends[1].packed + struct.pack("!HH", 40000, port)
    return _SIGNATURE + struct.pack("!BBH", 0x21, family, len(body)) + body


_SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"

LOCAL = _SIGNATURE + struct.pack("!BBH", 0x20, 0, 0)
"""Version 2, of a proxy that speaks for itself."""

UNKNOWN = b"PROXY UNKNOWN\r\n"
