"""Attacks by response headers that a proxy obeys: a backend changes what the proxy does."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from differential.proxies import PORT, Runner
from fakes import authorized_traffic, served_objects
from fakes.envoy_serving import listening
from fakes.one_route import BACKEND
from fakes.patience import limit
from fakes.served_objects import RUNNERS

BODY = b"x" * 3000
"""At a byte per second this takes longer than any test may."""

CONTROLLING = [
    "X-Accel-Redirect: /other",
    "X-Accel-Limit-Rate: 1",
    "X-Accel-Charset: koi8-r",
    "X-Accel-Expires: 3600",
    "X-Envoy-Immediate-Health-Check-Fail: true",
    "X-Envoy-Upstream-Healthchecked-Cluster: other",
    "X-Envoy-Overloaded: true",
    "X-Envoy-RateLimited: true",
    "X-Envoy-Degraded: true",
    "X-Envoy-Decorator-Operation: other",
    'Alt-Svc: h3=":1"',
]


def controlling_response(body: bytes) -> bytes:
    """Return a response with every header that a proxy could obey."""
    lines = ["HTTP/1.1 200 OK", "Content-Type: text/plain", *CONTROLLING]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


async def answer_all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer every request of a connection with headers that a proxy could obey."""
    while True:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(controlling_response(BODY))


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
async def test_backend_does_not_control_the_proxy(runner: Runner, tmp_path: Path) -> None:
    """A backend, with response headers that a proxy obeys: all of several requests get its
    response, unchanged and at once."""
    async with listening(answer_all) as endpoint:
        compiler = served_objects.engine([{"backendRefs": [BACKEND]}], endpoint)
        async with (
            served_objects.serving(runner, served_objects.gateway(compiler), tmp_path) as client,
            limit(),
        ):
            for _ in range(5):
                response = await served_objects.get(client)
                assert (response.status, response.body) == (200, BODY)
                assert dict(response.headers)["content-type"] == "text/plain"


@pytest.mark.process
@pytest.mark.parametrize("runner", authorized_traffic.RUNNERS)
async def test_authorization_server_does_not_control_the_proxy(
    runner: Runner, tmp_path: Path
) -> None:
    """An authorization server, with response headers that a proxy obeys: permitted requests get
    the response of the backend at once."""
    async with (
        listening(answer_all) as server,
        authorized_traffic.served(
            runner, tmp_path, server.port, authorized_traffic.rule()
        ) as gateway,
        limit(),
    ):
        for _ in range(5):
            status, _, echo = await gateway.send("/")
            assert (status, echo["service"]) == (200, "s")


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
async def test_event_streams_are_not_buffered(runner: Runner, tmp_path: Path) -> None:
    """A client of an event stream with X-Accel-Buffering: it receives an event before the next
    one is sent."""
    received = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = ["HTTP/1.1 200 OK", "X-Accel-Buffering: no", "Content-Length: 8", "", ""]
        writer.write("\r\n".join(head).encode() + b"one\n")
        await received.wait()
        writer.write(b"two\n")

    async with listening(answer) as endpoint:
        compiler = served_objects.engine([{"backendRefs": [BACKEND]}], endpoint)
        gateway = served_objects.gateway(compiler)
        async with served_objects.serving(runner, gateway, tmp_path):
            reader, writer = await asyncio.open_connection(gateway.bind_address, PORT)
            writer.write(b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
            async with limit():
                await reader.readuntil(b"\r\n\r\n")
                assert await reader.readline() == b"one\n"
                received.set()
                assert await reader.readline() == b"two\n"
            writer.close()
