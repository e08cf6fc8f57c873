"""Requests of a pool whose model servers speak HTTP/1.1 or HTTP/2 without TLS."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.endpoint_pickers import Picker
from fakes.http2_models import Http2Models
from fakes.loopback import free_port
from fakes.model_pool import HOST, ModelPool, Models, pool_of
from gatehouse.dataplane.endpoints import WeightedEndpoint


@pytest.fixture(params=[Models, Http2Models], ids=["http1", "http2"])
async def models(request: pytest.FixtureRequest) -> AsyncIterator[Models | Http2Models]:
    result: Models | Http2Models = request.param()
    async with result.serve("a", "b"):
        yield result


@pytest.fixture
async def pool(tmp_path: Path, models: Models | Http2Models) -> AsyncIterator[ModelPool]:
    async with pool_of(tmp_path, models) as result:
        yield result


@pytest.fixture
async def picker(pool: ModelPool) -> AsyncIterator[Picker]:
    result = Picker(pool.endpoint("a"))
    async with pool.picker(result):
        await pool.configure()
        yield result


def received(models: Models | Http2Models) -> tuple[str, str]:
    """Return the method and the target of the last request to a model server."""
    if isinstance(models, Models):
        return models.requests[-1].method, models.requests[-1].target
    fields = dict(models.requests[-1][1])
    return fields[":method"], fields[":path"]


async def test_request_goes_to_the_picked_endpoint(pool: ModelPool, picker: Picker) -> None:
    for name in "abab":
        assert await pool.ask(headers={"X-Pick": pool.endpoint(name)}) == (200, name, b"{}")
        exchange = picker.exchanges[-1]
        assert (exchange.body, exchange.status, exchange.response) == (b"{}", "200", b"{}")
        assert exchange.served == pool.endpoint(name)


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
    pool: ModelPool, picker: Picker, models: Models | Http2Models, method: str
) -> None:
    async with pool.request(method, "/v1/models?a=%2F&b#c") as response:
        assert (response.status, await response.read()) == (200, b"")
    assert received(models) == (method, "/v1/models?a=%2F&b")
    sent = picker.exchanges[-1].headers
    assert (sent[":method"], sent[":path"]) == (method, "/v1/models?a=%2F&b")
    assert sent[":authority"] == "pool"


async def test_next_named_endpoint_gets_a_request_that_the_first_refuses(
    pool: ModelPool, picker: Picker, models: Models | Http2Models
) -> None:
    closed = WeightedEndpoint(HOST, free_port())
    await pool.configure((closed, models.endpoints["b"]))
    both = f"{closed.encoded},{pool.endpoint('b')}"
    assert await pool.ask(b"body", headers={"X-Pick": both}) == (200, "b", b"body")
    assert (await pool.ask(headers={"X-Pick": closed.encoded}))[0] == 502
    is_http2 = isinstance(models, Http2Models)
    named = f"{closed.encoded}: connect call failed" if is_http2 else f":{closed.port}"
    assert named in pool.messages[-1]
