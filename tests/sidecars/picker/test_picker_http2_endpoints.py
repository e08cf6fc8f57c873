"""Requests of a pool whose model servers speak HTTP/2 without TLS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.endpoint_pickers import Picker
from fakes.http2_models import HOST, Http2Models
from fakes.loopback import free_port
from fakes.model_pool import ModelPool, Models
from fakes.patience import until
from gatehouse.dataplane.endpoints import WeightedEndpoint


@pytest.fixture
async def models() -> AsyncIterator[Http2Models]:
    result = Http2Models()
    async with result.serve("a", "b"):
        yield result


@pytest.fixture
async def pool(tmp_path: Path, models: Http2Models) -> AsyncIterator[ModelPool]:
    result = ModelPool(tmp_path, Models())
    result.models.endpoints = models.endpoints
    yield result
    await result.server.drain()


@pytest.fixture
async def picker(pool: ModelPool) -> AsyncIterator[Picker]:
    result = Picker(pool.endpoint("a"))
    async with pool.picker(result):
        await pool.configure(http2=True)
        yield result


async def test_request_goes_to_the_picked_endpoint(
    pool: ModelPool, picker: Picker, models: Http2Models
) -> None:
    for name in "abab":
        assert await pool.ask(headers={"X-Pick": pool.endpoint(name)}) == (200, name, b"{}")
        assert picker.exchanges[-1].served == pool.endpoint(name)
    server, fields = models.requests[-1]
    assert (server, fields[:4]) == (
        "b",
        [(":authority", "pool"), (":method", "POST"), (":path", "/"), (":scheme", "http")],
    )


@pytest.mark.parametrize("size", [0, 1, 70_000, 900_000])
async def test_body_goes_through_the_picker_in_both_directions(
    pool: ModelPool, picker: Picker, size: int
) -> None:
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    assert await pool.ask(body) == (200, "a", body)
    assert picker.exchanges[-1].body == body
    assert picker.exchanges[-1].response == body


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE"])
async def test_request_without_a_body_ends_with_its_headers(
    pool: ModelPool, picker: Picker, models: Http2Models, method: str
) -> None:
    async with pool.request(method, "/v1/models?a=%2F&b#c") as response:
        assert (response.status, await response.read()) == (200, b"")
    fields = dict(models.requests[-1][1])
    assert (fields[":method"], fields[":path"]) == (method, "/v1/models?a=%2F&b")


async def test_response_keeps_repeated_fields_and_their_text(
    pool: ModelPool, picker: Picker, models: Http2Models
) -> None:
    models.fields = [("set-cookie", "a=1"), ("set-cookie", "b=2"), ("x-name", "café")]
    async with pool.request(data=b"{}") as response:
        raw = dict(response.raw_headers)
        assert response.headers.getall("Set-Cookie") == ["a=1", "b=2"]
    assert raw[b"x-name"] == "café".encode()


async def test_next_named_endpoint_gets_a_request_that_the_first_refuses(
    pool: ModelPool, picker: Picker, models: Http2Models
) -> None:
    closed = WeightedEndpoint(HOST, free_port())
    await pool.configure((closed, models.endpoints["b"]), http2=True)
    both = f"{closed.encoded},{pool.endpoint('b')}"
    assert await pool.ask(b"body", headers={"X-Pick": both}) == (200, "b", b"body")
    assert (await pool.ask(headers={"X-Pick": closed.encoded}))[0] == 502
    assert f"{closed.encoded}: connect call failed" in pool.messages[-1]


async def test_endpoint_may_respond_before_it_has_the_request(
    pool: ModelPool, picker: Picker, models: Http2Models
) -> None:
    models.answers_first = True
    assert (await pool.ask(b"x" * 300_000))[:2] == (200, "a")


async def test_stream_that_the_endpoint_resets_is_a_bad_gateway(
    pool: ModelPool, picker: Picker, models: Http2Models
) -> None:
    models.resets = True
    assert (await pool.ask())[0] == 502
    assert "the peer reset the stream (INTERNAL_ERROR)" in pool.messages[-1]


async def test_connection_ends_with_its_request(
    pool: ModelPool, picker: Picker, models: Http2Models
) -> None:
    await asyncio.gather(*(pool.ask() for _ in range(20)))
    assert len(models.requests) == 20
    await until(lambda: models.connections == 0)
