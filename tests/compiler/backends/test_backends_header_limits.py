"""The maximum size of the headers of requests to a Gateway, on each proxy."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from differential.connections import Client
from differential.exchange import Request
from differential.proxies import PORT, Runner
from fakes import patience
from fakes.envoy_serving import listening
from fakes.served_objects import RUNNERS
from fakes.specified_objects import CLASS, route, service, serving_objects

RULES = "- backendRefs: [{name: a, port: 80}]"
LIMITED = """
apiVersion: gatehouse.dev/v1alpha1
kind: TrafficPolicy
metadata: {name: p}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: gw}]
  client: {maxHeaderSize: 16Ki}
"""
SIZE = 16 << 10
HOST = b"Host: a.example\r\n"


def padding(size: int, lines: int = 1) -> bytes:
    """Return header lines that have this size together, within a few bytes."""
    length = size // lines - 8
    return b"".join(b"X-%d: %s\r\n" % (number, b"a" * length) for number in range(lines))


def request(headers: bytes) -> bytes:
    return b"GET / HTTP/1.1\r\n" + headers + b"\r\n"


ACCEPTED = {
    "one line": HOST + padding(SIZE - 300),
    "many lines": HOST + padding(SIZE - 300, 15),
}
REJECTED = {
    "one line": (HOST + padding(SIZE + 1000), 431),
    "one line before the hostname": (padding(SIZE + 1000) + HOST, 431),
    "line without end": (HOST + b"X-0: " + b"a" * (3 * SIZE), 431),
    "many lines": (HOST + padding(3 * SIZE, 50), 431),
    "many lines without end": (b"X-0: %s\r\n" % (b"a" * 90) * 5000, 431),
    "unknown hostname": (b"Host: unknown\r\n" + padding(SIZE + 1000), 431),
}


class CountingBackend:
    """A backend that counts requests."""

    def __init__(self) -> None:
        self.requests = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            self.requests += 1
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


async def answers(address: str, sent: bytes) -> list[bytes]:
    """Send bytes, and return the first line of each response until the connection ends."""
    reader, writer = await asyncio.open_connection(address, PORT)
    lines = []
    try:
        writer.write(sent)
        async with patience.limit():
            while line := await reader.readline():
                if line.startswith(b"HTTP/1.1"):
                    lines.append(line.split()[1])
    except ConnectionError:
        pass  # The proxy does not read the rest of the request.
    finally:
        writer.close()
    return lines


@pytest.mark.process
@pytest.mark.parametrize("proxy", RUNNERS)
async def test_headers_up_to_the_limit_of_a_gateway_pass_and_longer_ones_get_431(
    proxy: Runner, tmp_path: Path
) -> None:
    backend = CountingBackend()
    async with listening(backend.answer) as endpoint:
        objects = [CLASS, service("a", endpoint), route(RULES), LIMITED]
        async with serving_objects(proxy, tmp_path, *objects) as served:
            for name, headers in ACCEPTED.items():
                sent = request(headers + b"Connection: close\r\n")
                assert await answers(served.address, sent) == [b"200"], name
            assert backend.requests == len(ACCEPTED)
            for name, (headers, status) in REJECTED.items():
                # What follows is not read as another request.
                sent = request(headers) + request(HOST)
                assert await answers(served.address, sent) == [b"%d" % status], name
    assert backend.requests == len(ACCEPTED)


@pytest.mark.process
@pytest.mark.parametrize("proxy", RUNNERS)
async def test_limit_applies_to_each_of_several_requests_sent_at_once(
    proxy: Runner, tmp_path: Path
) -> None:
    async with listening(CountingBackend().answer) as endpoint:
        objects = [CLASS, service("a", endpoint), route(RULES), LIMITED]
        async with serving_objects(proxy, tmp_path, *objects) as served:
            one = request(HOST + padding(SIZE - 300))
            last = request(HOST + padding(SIZE - 300) + b"Connection: close\r\n")
            assert await answers(served.address, one * 7 + last) == [b"200"] * 8


@pytest.mark.process
@pytest.mark.parametrize("proxy", RUNNERS)
async def test_proxy_ends_connections_of_http2_with_longer_headers(
    proxy: Runner, tmp_path: Path
) -> None:
    async with listening(CountingBackend().answer) as endpoint:
        objects = [CLASS, service("a", endpoint), route(RULES), LIMITED]
        async with serving_objects(proxy, tmp_path, *objects) as served:
            client = Client(served.address)
            passing, *longer = (
                Request("a.example", "GET", "/", [("x-long", "&" * size)], version=2)
                for size in (SIZE - 300, SIZE + 1000, 3 * SIZE)
            )
            async with patience.limit():
                assert (await client.send(passing)).status == 200
                for sent in longer:
                    with pytest.raises(ConnectionError):
                        await client.send(sent)
