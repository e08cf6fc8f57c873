"""Clients that send requests byte for byte, over HTTP/1.1 or HTTP/2, in plain text or with TLS."""

from __future__ import annotations

import asyncio
import json
import ssl

import h2.config
import h2.connection
import h2.events

from differential.exchange import Object, Request

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Seen:
    """A response, and what its backend received (empty without one). 0: the handshake failed."""

    def __init__(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body
        start = body.find(b'{"service"')
        self.backend: Object = json.loads(body[start:]) if start in (0, 5) else {}


REFUSED = Seen(0, [], b"")


class Client:
    """Keeps a connection for each port, SNI and HTTP version."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._tls = ssl.create_default_context()
        self._tls.check_hostname = False
        self._tls.verify_mode = ssl.CERT_NONE
        self._kept: dict[tuple[int, str | None], Streams] = {}

    async def send(self, request: Request) -> Seen:
        """Send a request and read the response."""
        key = (request.port, request.sni)
        if request.version == 2:
            streams = await self._opened(request)
            try:
                return await _second(streams, request) if streams else REFUSED
            finally:
                if streams:
                    streams[1].close()
        streams = self._kept.get(key) or await self._opened(request)
        if streams is None:
            return REFUSED
        self._kept[key] = streams
        response = await _first(streams, request)
        # Requests for many hostnames would keep many connections.
        if dict(response.headers).get("connection") == "close" or request.port != 8080:
            self._kept.pop(key)[1].close()
        return response

    async def _opened(self, request: Request) -> Streams | None:
        if request.port == 8080:
            return await asyncio.open_connection(self._address, request.port, limit=2**20)
        self._tls.set_alpn_protocols(["h2" if request.version == 2 else "http/1.1"])
        try:
            return await asyncio.open_connection(
                self._address,
                request.port,
                limit=2**20,
                ssl=self._tls,
                server_hostname=request.sni or "",
            )
        except (ssl.SSLError, ConnectionResetError):
            return None

    def close(self) -> None:
        """Close all connections."""
        for _, writer in self._kept.values():
            writer.close()


async def _first(streams: Streams, request: Request) -> Seen:
    reader, writer = streams
    scheme = "http" if request.port == 8080 else "https"
    prefix = "" if request.authority is None else f"{scheme}://{request.authority}"
    lines = [f"{request.method} {prefix}{request.target} HTTP/1.1", f"Host: {request.host}"]
    lines += [f"{name}: {value}" for name, value in request.headers]
    writer.write(("\r\n".join([*lines, "Content-Length: 0", "", ""])).encode())
    head = (await reader.readuntil(b"\r\n\r\n")).decode(errors="surrogateescape")
    first, *rest = head.split("\r\n")[:-2]
    headers = [(n.lower(), v.strip()) for n, _, v in (line.partition(":") for line in rest)]
    status = int(first.split()[1])
    length = 0 if status == 204 else int(dict(headers).get("content-length", 0))
    return Seen(status, headers, await reader.readexactly(length))


async def _second(streams: Streams, request: Request) -> Seen:
    reader, writer = streams
    config = h2.config.H2Configuration(header_encoding=None, validate_outbound_headers=False)
    connection = h2.connection.H2Connection(config)
    connection.initiate_connection()
    scheme = "http" if request.port == 8080 else "https"
    head = [(":method", request.method), (":scheme", scheme), (":authority", request.host)]
    head += [(":path", request.target), *((n.lower(), v) for n, v in request.headers)]
    encoded = [(name.encode(), value.encode()) for name, value in head]
    connection.send_headers(1, encoded, end_stream=not request.body)
    if request.body:
        connection.send_data(1, request.body, end_stream=True)
    writer.write(connection.data_to_send())
    headers: list[tuple[str, str]] = []
    body = b""
    while data := await reader.read(65536):
        for event in connection.receive_data(data):
            if isinstance(event, h2.events.ResponseReceived):
                headers = [
                    (bytes(n).decode(), bytes(v).decode(errors="surrogateescape"))
                    for n, v in event.headers or ()
                ]
            elif isinstance(event, h2.events.DataReceived):
                body += event.data or b""
            elif isinstance(event, h2.events.StreamEnded):
                return Seen(int(dict(headers)[":status"]), headers, body)
            elif isinstance(event, h2.events.StreamReset | h2.events.ConnectionTerminated):
                raise ConnectionError(f"{event!r} for {request}")
        writer.write(connection.data_to_send())
    raise ConnectionError(f"no answer to {request}")
