"""Requests of a pool: what pickers get, where requests go, and what comes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from cryptography import x509

from fakes.authority import Authority
from fakes.endpoint_pickers import DESTINATION, Picker
from fakes.model_pool import ModelPool, model_pool
from fakes.patience import limit, pause, until
from gatehouse.dataplane.endpoints import WeightedEndpoint
from gatehouse.sidecars.base.san_match import SubjectAltName
from gatehouse.sidecars.picker.config import PickerTls
from gatehouse.sidecars.picker.endpoint_choice import PoolEndpoints


@pytest.fixture
async def pool(tmp_path: Path) -> AsyncIterator[ModelPool]:
    async with model_pool(tmp_path, "a", "b") as result:
        yield result


@pytest.fixture
async def picker(pool: ModelPool) -> AsyncIterator[Picker]:
    result = Picker(pool.endpoint("a"))
    async with pool.picker(result):
        await pool.configure()
        yield result


async def test_client_does_not_choose(pool: ModelPool, picker: Picker) -> None:
    for pick in (None, "none"):
        headers = {DESTINATION: pool.endpoint("b"), **({"X-Pick": pick} if pick else {})}
        served = {(await pool.ask(headers=headers))[1] for _ in range(20)}
        assert DESTINATION not in picker.exchanges[-1].headers
        # Without a choice of the picker, both get requests.
        assert served == ({"a"} if pick is None else {"a", "b"})


async def test_endpoint_outside_of_the_pool_is_never_used(pool: ModelPool, picker: Picker) -> None:
    outside = pool.endpoint("b")
    await pool.configure((pool.models.endpoints["a"],))
    for named in (outside, f"{outside},{pool.endpoint('a')}", "metadata.example:80", "::", ","):
        assert (await pool.ask(headers={"X-Pick": named}))[:2] == (200, "a")


async def test_endpoints_change_while_the_socket_stays(pool: ModelPool, picker: Picker) -> None:
    before = (pool.sockets / "p.sock").stat().st_ino
    for name in "ba":
        await pool.configure((pool.models.endpoints[name],))
        assert (await pool.ask(headers={"X-Pick": "none"}))[:2] == (200, name)
    assert (pool.sockets / "p.sock").stat().st_ino == before


async def test_pool_without_endpoints_is_unavailable(pool: ModelPool, picker: Picker) -> None:
    await pool.configure(())
    assert (await pool.ask())[0] == 503


async def test_response_of_the_picker_is_that_of_the_request(
    pool: ModelPool, picker: Picker
) -> None:
    assert (await pool.ask(headers={"X-Pick": "429"}))[:2] == (429, "")
    assert not pool.models.requests


async def test_fields_of_the_connection_stay_with_it(pool: ModelPool, picker: Picker) -> None:
    headers = {"Connection": "X-Private, Upgrade", "X-Private": "1", "Upgrade": "h2c", "TE": "x"}
    await pool.ask(headers={**headers, "X-Public": "1", "User-Agent": ""})
    received = pool.models.requests[-1].headers
    assert received["x-public"] == "1"
    assert not received.keys() & {"x-private", "upgrade", "te"}
    assert received["host"] == "pool"
    assert "x-private" not in picker.exchanges[-1].headers


async def test_parts_of_a_response_come_at_once(pool: ModelPool, picker: Picker) -> None:
    go_on = asyncio.Event()

    async def stream(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: 1\n\n")
        await go_on.wait()
        await response.write(b"data: 2\n\n")
        return response

    pool.models.handler = stream
    async with limit(), pool.request() as response:
        # NGINX does not hold parts back.
        assert response.headers["X-Accel-Buffering"] == "no"
        assert await response.content.readany() == b"data: 1\n\n"
        go_on.set()
        assert await response.read() == b"data: 2\n\n"


async def test_end_of_a_client_ends_the_call_and_the_request(
    pool: ModelPool, picker: Picker
) -> None:
    cancelled, begun = asyncio.Event(), asyncio.Event()

    async def hang(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        begun.set()
        try:
            while True:
                await response.write(b"x")
                await pause()
        except OSError:
            cancelled.set()
            raise

    pool.models.handler = hang
    async with limit():
        async with pool.request() as response:
            await response.content.readany()
        await cancelled.wait()


async def test_response_that_breaks_off_is_cut_off(pool: ModelPool, picker: Picker) -> None:
    begun = asyncio.Event()

    async def fail(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"part")
        await begun.wait()
        assert request.transport is not None
        request.transport.abort()
        return response

    pool.models.handler = fail
    async with limit(), pool.request() as response:
        assert response.status == 200, pool.messages
        begun.set()
        with pytest.raises(aiohttp.ClientError):
            await response.read()


@pytest.mark.parametrize(
    ("names", "status"), [((), 200), (("picker.example",), 200), (("other.example",), 503)]
)
async def test_picker_is_asked_by_tls(
    pool: ModelPool, tmp_path: Path, names: tuple[str, ...], status: int
) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("picker.example", x509.DNSName("picker.example"))
    pair = key.read_bytes(), certificate.read_bytes()
    trust = ""
    if names:
        trust = "ca.pem"
        (pool.directory / trust).write_bytes(authority.pem)
    tls = PickerTls(
        server_name="picker.example",
        trust=trust,
        names=tuple(SubjectAltName("dns", name) for name in names),
    )
    async with pool.picker(Picker(pool.endpoint("b")), pair):
        await pool.configure(tls=tls)
        assert (await pool.ask())[0] == status, pool.messages
    if status == 503:
        assert "none of the accepted names" in pool.messages[-1]


async def test_certificate_of_another_authority_is_not_accepted(
    pool: ModelPool, tmp_path: Path
) -> None:
    for directory in ("one", "other"):
        (tmp_path / directory).mkdir()
    certificate, key = Authority(tmp_path / "one").issue(
        "picker.example", x509.DNSName("picker.example")
    )
    other = Authority(tmp_path / "other")
    (pool.directory / "ca.pem").write_bytes(other.pem)
    names = (SubjectAltName("dns", "picker.example"),)
    tls = PickerTls(server_name="picker.example", trust="ca.pem", names=names)
    async with pool.picker(Picker(""), (key.read_bytes(), certificate.read_bytes())):
        await pool.configure(tls=tls)
        assert (await pool.ask())[0] == 503


async def test_requests_share_a_connection_to_the_picker(pool: ModelPool, picker: Picker) -> None:
    await asyncio.gather(*(pool.ask() for _ in range(50)))
    await until(lambda: len(picker.exchanges) == 50)
    assert len({exchange.peer for exchange in picker.exchanges}) == 1


@pytest.mark.parametrize(
    ("text", "picked"),
    [
        ("10.0.0.1:80", ["10.0.0.1:80"]),
        (" 10.0.0.2:80 , 10.0.0.1:80", ["10.0.0.2:80", "10.0.0.1:80"]),
        ("[2001:DB8:0::1]:80", ["[2001:db8::1]:80"]),
        ("10.0.0.1:80,10.0.0.1:80", ["10.0.0.1:80"]),
        ("10.0.0.1:81", []),
        ("10.0.0.1", []),
        ("x" * 1000, []),
        ("", []),
        ("10.0.0.9:80," * 16 + "10.0.0.1:80", []),
    ],
)
def test_named_endpoints_are_those_of_the_pool(text: str, picked: list[str]) -> None:
    endpoints = PoolEndpoints()
    hosts = ("10.0.0.1", "10.0.0.2", "2001:db8::1")
    endpoints.replace([WeightedEndpoint(host, 80) for host in hosts])
    assert [endpoint.encoded for endpoint in endpoints.picked(text)] == picked


def test_own_choice_is_the_endpoint_with_fewer_requests() -> None:
    endpoints = PoolEndpoints()
    one, two = WeightedEndpoint("10.0.0.1", 80), WeightedEndpoint("10.0.0.2", 80)
    endpoints.replace([one, two])
    with endpoints.counted(one):
        assert {endpoints.own_choice()[0] for _ in range(20)} == {two}
    assert {endpoints.own_choice()[0] for _ in range(100)} == {one, two}
