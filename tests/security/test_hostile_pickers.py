"""Pickers and model servers that attack the picker client, by which all pools of a Gateway go."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.durations import be_slow
from fakes.endpoint_pickers import Picker
from fakes.http2_models import HOST, Http2Models
from fakes.model_pool import ModelPool, model_pool, pool_of
from fakes.patience import limit, until
from gatehouse.dataplane.endpoints import WeightedEndpoint
from gatehouse.sidecars.picker import config
from gatehouse.sidecars.picker.config import Pool

BUFFERED_BYTES = 8 << 20
"""Limit of what is read from a model server for a client that hardly reads: buffers of sockets, and
windows of HTTP/2."""


@pytest.fixture
async def models() -> AsyncIterator[Http2Models]:
    result = Http2Models()
    async with result.serve("a"):
        yield result


@pytest.fixture
async def pool(tmp_path: Path, models: Http2Models) -> AsyncIterator[ModelPool]:
    """Yield a pool whose model servers speak HTTP/2."""
    async with pool_of(tmp_path, models) as result, result.picker(Picker(result.endpoint("a"))):
        await result.configure()
        yield result


@pytest.mark.parametrize(
    ("number", "answers"), [(400, {(200, "a"), (200, "b")}), (100_000, {(503, "")})]
)
async def test_long_list_of_endpoints_is_not_searched(
    tmp_path: Path, number: int, answers: set[tuple[int, str]]
) -> None:
    async with model_pool(tmp_path, "a", "b") as pool:
        outside = ",".join(f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}:80" for n in range(number))
        async with pool.picker(Picker(f"{outside},{pool.endpoint('a')}")):
            await pool.configure()
            # As without a choice, if it is no longer than header fields may be.
            assert {(await pool.ask())[:2] for _ in range(20)} == answers


async def test_endless_response_is_read_no_faster_than_the_client_reads(
    pool: ModelPool, models: Http2Models
) -> None:
    models.is_endless = True
    async with pool.request(data=b"{}") as response:
        for _ in range(20):
            assert len(await response.content.readexactly(1 << 10)) == 1 << 10
            await be_slow(0.05)
        assert models.sent < BUFFERED_BYTES
    # The connection to the model server ends with the client.
    await until(lambda: models.connections == 0)


async def test_header_section_that_is_too_long_is_a_bad_gateway(
    pool: ModelPool, models: Http2Models
) -> None:
    models.fields = [(f"x-{number}", "y" * 4_000) for number in range(20)]
    assert (await pool.ask())[0] == 502
    models.fields = []
    assert (await pool.ask())[0] == 200


@pytest.mark.parametrize(
    "greeting", [b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", b"\xff" * 100_000, b""]
)
async def test_model_server_without_http_2_is_a_bad_gateway(
    pool: ModelPool, models: Http2Models, greeting: bytes
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(greeting)
        writer.close()

    server = await asyncio.start_server(answer, HOST, 0)
    async with server, limit():
        other = WeightedEndpoint(HOST, server.sockets[0].getsockname()[1])
        await pool.configure((other,))
        assert (await pool.ask())[0] == 502
    await pool.configure((models.endpoints["a"],))
    assert (await pool.ask())[0] == 200


async def test_thousand_pools_have_sockets_that_end_with_them(tmp_path: Path) -> None:
    async with model_pool(tmp_path, "a") as pool:
        path = pool.directory / config.POOLS_FILE
        path.parent.mkdir()
        (pool.directory / "e.json").write_text(json.dumps([]))
        listed = [
            Pool(socket=f"{n}.sock", cluster=f"c{n}", endpoints="e.json", pickers="e.json")
            for n in range(1000)
        ]
        path.write_bytes(config.encode_pools(listed))
        async with limit():
            await pool.server.serve([pool.directory])
        assert len([*pool.sockets.iterdir()]) == 1000
        path.write_bytes(config.encode_pools([]))
        await pool.server.serve([pool.directory])
        await until(lambda: not [*pool.sockets.iterdir()])
        await until(pool.server.idle.is_set)
