"""Connections to hostnames that no cluster has yet, on Envoy before kube-apiservers."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator

import h2.connection
import h2.events
import pytest
import pytest_asyncio

from fakes import patience
from fakes.kube_serving import HOST, PORT, World, world

pytestmark = pytest.mark.process

_GOAWAY = 7
"""Type of the frame."""


@pytest_asyncio.fixture
async def one() -> AsyncIterator[World]:
    async with world() as result:
        yield result


class StayingClient:
    """An HTTP/2 client like Go's: it keeps its connection until the server announces its end."""

    def __init__(self, address: str, context: ssl.SSLContext) -> None:
        context.set_alpn_protocols(["h2"])
        # The listener's certificate does not contain the hostname yet.
        context.check_hostname = False
        self._address, self._context = address, context
        self._goaway = True
        self._writer: asyncio.StreamWriter | None = None
        self.connections = 0

    async def _connect(self) -> None:
        self.close()
        self._reader, self._writer = await asyncio.open_connection(
            self._address, PORT, ssl=self._context, server_hostname=HOST
        )
        self._http = h2.connection.H2Connection()
        self._http.initiate_connection()
        self._goaway = False
        self.connections += 1

    async def ask(self) -> int:
        """Request a list and return the status."""
        if self._goaway:
            await self._connect()
        assert self._writer is not None
        stream = self._http.get_next_available_stream_id()
        request = {"method": "GET", "scheme": "https", "authority": HOST, "path": "/api/v1/pods"}
        headers = [(f":{name}", value) for name, value in request.items()]
        self._http.send_headers(stream, headers, end_stream=True)
        status = 0
        async with patience.limit():
            while True:
                self._writer.write(self._http.data_to_send())
                for event in self._http.receive_data(await self._frame()):
                    if isinstance(event, h2.events.ResponseReceived):
                        status = int(dict(event.headers)[b":status"])
                    elif isinstance(event, h2.events.StreamEnded):
                        return status

    async def _frame(self) -> bytes:
        """Return the next frame; empty for GOAWAY, after which h2 would accept no response."""
        head = await self._reader.readexactly(9)
        payload = await self._reader.readexactly(int.from_bytes(head[:3], "big"))
        if head[3] == _GOAWAY:
            self._goaway = True
            return b""
        return head + payload

    def close(self) -> None:
        """Close the connection."""
        if self._writer is not None:
            self._writer.transport.abort()


async def test_http2_client_reaches_a_cluster_that_was_created_later(one: World) -> None:
    other = one.cluster(name="b.kube.test", hosts=("b.kube.test",))
    await one.serve(other)
    client = StayingClient(one.served.address, one.client("alice"))
    assert await client.ask() == 503
    await one.serve(one.cluster(), other)

    async def reached() -> bool:
        return await client.ask() == 200

    await one.served.until(reached)
    connections = client.connections
    assert [await client.ask() for _ in range(5)] == [200] * 5
    assert client.connections == connections
    client.close()


async def test_unknown_and_misdirected_hosts_end_http1_connections(one: World) -> None:
    await one.serve(one.cluster())
    for host, status in (("unknown.test", 503), (HOST, 421)):
        connection = await one.connect(one.client("alice"), "unknown.test")
        response = await connection.ask("/api/v1/pods", host=host)
        assert response.status == status
        assert response.headers["connection"] == "close"
        async with patience.limit():
            assert await connection.reader.read() == b""
