"""Requests of a pool whose model servers speak HTTP/2 without TLS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.endpoint_pickers import Picker
from fakes.http2_models import Http2Models
from fakes.model_pool import ModelPool, pool_of
from fakes.patience import until


@pytest.fixture
async def models() -> AsyncIterator[Http2Models]:
    result = Http2Models()
    async with result.serve("a", "b"):
        yield result


@pytest.fixture
async def pool(tmp_path: Path, models: Http2Models) -> AsyncIterator[ModelPool]:
    async with pool_of(tmp_path, models) as result:
        yield result


@pytest.fixture
async def picker(pool: ModelPool) -> AsyncIterator[Picker]:
    result = Picker(pool.endpoint("a"))
    async with pool.picker(result):
        await pool.configure()
        yield result


async def test_request_begins_with_its_pseudo_header_fields(
    pool: ModelPool, picker: Picker, models: Http2Models
) -> None:
    await pool.ask(headers={"X-Pick": pool.endpoint("b")})
    server, fields = models.requests[-1]
    assert (server, fields[:4]) == (
        "b",
        [(":authority", "pool"), (":method", "POST"), (":path", "/"), (":scheme", "http")],
    )


async def test_response_keeps_repeated_fields_and_their_text(
    pool: ModelPool, picker: Picker, models: Http2Models
) -> None:
    models.fields = [("set-cookie", "a=1"), ("set-cookie", "b=2"), ("x-name", "café")]
    async with pool.request(data=b"{}") as response:
        raw = dict(response.raw_headers)
        assert response.headers.getall("Set-Cookie") == ["a=1", "b=2"]
    assert raw[b"x-name"] == "café".encode()


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
