"""Metrics of connections: the same connections give the same series on both proxies."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fakes import patience, promtool
from fakes.apiservers import apiserver, connect, server_name_at, version_1
from fakes.authority import Authority
from fakes.client_hello import client_hello
from fakes.durations import be_slow
from fakes.logged_connections import (
    TCP,
    TLS,
    exchange_datagram,
    send,
    serving,
)
from fakes.logged_gateways import PROXIES, LoggedGateway, logged, short_udp_sessions
from fakes.logged_tunnels import INSIDE, NAMES, TUNNELS
from fakes.logged_tunnels import gateway as hosted
from fakes.logged_tunnels import send as send_from
from gatehouse.compiler.ir.settings import DataPlaneSettings

__all__ = ["short_udp_sessions"]

pytestmark = pytest.mark.process

Series = dict[tuple[str, ...], float]
"""Values by the name of the metric, and the labels except ``gateway``."""

HELLO = client_hello(b"pass.test")

CONNECTIONS = {
    ("TCP", "", "shop/tcp/0"): 2, ("TCP", "", "shop/pass/2"): 1, ("TCP", "", "shop/end/0"): 1,
    ("TCP", "no_route", ""): 1, ("TCP", "connection_failure", "shop/broken/0"): 1,
    ("TCP", "no_endpoint", "shop/empty/0"): 1, ("TCP", "invalid_route", "shop/invalid/0"): 1,
}  # fmt: skip
"""Number of connections by protocol, reason and route."""


@pytest.fixture(params=PROXIES)
def proxy(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def _series(served: LoggedGateway) -> Series:
    result: Series = {}
    for family in text_string_to_metric_families(served.connections.text()):
        for sample in family.samples:
            labels = dict(sample.labels)
            assert labels.pop("gateway") == "gw"
            values = (value for _, value in sorted(labels.items()))
            result[sample.name.removeprefix("gatehouse_"), *values] = sample.value
    return result


def _of(series: Series, name: str) -> Series:
    return {key[1:]: value for key, value in series.items() if key[0] == name}


async def _counted(served: LoggedGateway, number: int) -> Series:
    """Wait until as many connections are counted. Return the series."""
    series: Series = {}
    async with patience.limit():
        while sum(_of(series, "route_connections_total").values()) < number:
            await patience.pause()
            series = _series(served)
    assert not served.connections.samples()[0].value
    return series


async def test_same_connections_give_the_same_series(proxy: str, authority: Authority) -> None:
    trust = ssl.create_default_context(cafile=str(authority.file))
    async with serving(proxy, authority) as (served, _, _):
        for _ in range(2):
            assert await send(served, TCP, b"0123456789") == b"hello 1\n0123456789"
        assert (await send(served, TLS, HELLO)).endswith(HELLO)
        for name in (b"unknown.test", b"broken.test", b"empty.test", b"invalid.test"):
            assert await send(served, TLS, client_hello(name)) == b""
        reader, writer = await asyncio.open_connection(
            served.address, TLS, ssl=trust, server_hostname="end.test"
        )
        assert await reader.readline() == b"hello 1\n"
        writer.close()
        series = await _counted(served, sum(CONNECTIONS.values()))
        assert await promtool.check(served.connections.text()) == ""
    assert _of(series, "route_connections_total") == CONNECTIONS
    assert _of(series, "backend_connections_total") == {
        ("Service/shop/db", ""): 4,
        ("Service/shop/db", "connection_failure"): 1,
        ("Service/shop/db", "no_endpoint"): 1,
    }
    traffic = _of(series, "route_connection_bytes_total")
    assert (traffic["received", "shop/tcp/0"], traffic["sent", "shop/tcp/0"]) == (20, 36)
    assert traffic["received", "shop/pass/2"] == len(HELLO)
    assert traffic["sent", "shop/pass/2"] == len(HELLO) + 8
    assert _of(series, "route_connection_duration_seconds_count")["shop/tcp/0",] == 2


@pytest.mark.usefixtures("short_udp_sessions")
async def test_udp_session_is_counted_with_its_bytes(proxy: str, authority: Authority) -> None:
    async with serving(proxy, authority) as (served, _, _):
        assert await asyncio.to_thread(exchange_datagram, served, b"12345") == b"1234512345"
        series = await _counted(served, 1)
    assert _of(series, "route_connections_total") == {("UDP", "", "shop/udp/0"): 1}
    assert _of(series, "backend_connections_total") == {("Service/shop/db", ""): 1}
    assert _of(series, "route_connection_bytes_total") == {
        ("received", "shop/udp/0"): 5,
        ("sent", "shop/udp/0"): 10,
    }


async def test_durations_are_seconds(proxy: str, authority: Authority) -> None:
    async with serving(proxy, authority) as (served, _, _):
        reader, writer = await asyncio.open_connection(served.address, TCP)
        assert await reader.readline() == b"hello 1\n"
        await be_slow(1.2)
        writer.close()
        series = await _counted(served, 1)
    # The upper bound only tells seconds from milliseconds.
    assert 1.1 < _of(series, "route_connection_duration_seconds_sum")["shop/tcp/0",] < 60


async def test_metrics_do_not_depend_on_the_access_log(proxy: str, authority: Authority) -> None:
    off = DataPlaneSettings(access_log=None)
    async with serving(proxy, authority, settings=off) as (served, _, _):
        assert await send(served, TCP, b"0") == b"hello 1\n0"
        series = await _counted(served, 1)
        assert served.log.read_bytes() == b""
    assert _of(series, "route_connections_total") == {("TCP", "", "shop/tcp/0"): 1}


async def test_connect_tunnels_are_counted_once_with_their_bytes_and_duration(
    authority: Authority,
) -> None:
    trust = ssl.create_default_context(cafile=str(authority.file))
    trust.check_hostname = False
    async with (
        apiserver(authority, "one") as server,
        logged("envoy", hosted(server.endpoint, DataPlaneSettings())) as served,
    ):
        for _ in range(2):
            reader, writer = await asyncio.open_connection(
                served.address, TUNNELS, local_addr=("127.0.9.1", 0)
            )
            writer.write(b"CONNECT 10.1.2.3:443 HTTP/1.1\r\nHost: 10.1.2.3:443\r\n\r\n")
            assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
            await writer.start_tls(trust, server_hostname="api.one.test")
            await be_slow(0.6)
            writer.close()
        # A tunnel to a known destination from an address that may not use it.
        refused = b"CONNECT 10.1.2.3:443 HTTP/1.1\r\nHost: 10.1.2.3:443\r\n"
        address = (served.address, TUNNELS)
        await send_from(address, refused + b"Connection: close\r\n\r\n", "127.0.8.1")
        await _counted(served, 3)
        # What is counted late would be so before the next connection.
        await send_from(address, refused + b"Connection: close\r\n\r\n", "127.0.8.1")
        series = await _counted(served, 4)
    assert _of(series, "route_connections_total") == {
        ("TCP", "", "garden/one/0"): 2,
        ("TCP", "no_route", ""): 2,
    }
    assert _of(series, "backend_connections_total") == {("Service/garden/kube-apiserver", ""): 2}
    traffic = _of(series, "route_connection_bytes_total")
    # The TLS handshakes: a client hello and the rest of the client, and a certificate.
    assert traffic["received", "garden/one/0"] > 2 * 200
    assert traffic["sent", "garden/one/0"] > 2 * 500
    assert _of(series, "route_connection_duration_seconds_sum")["garden/one/0",] > 2 * 0.5


async def test_hosted_api_servers_are_counted_on_all_ports(authority: Authority) -> None:
    trust = ssl.create_default_context(cafile=str(authority.file))
    trust.check_hostname = False
    async with (
        apiserver(authority, "one") as server,
        logged("envoy", hosted(server.endpoint, DataPlaneSettings())) as served,
    ):
        client = await connect((served.address, NAMES), trust, "api.one.test")
        client.close()
        header = version_1("192.0.2.7", "10.1.2.3", 443)
        inside = (served.address, INSIDE)
        assert await server_name_at(inside, trust, None, source="127.0.9.1", header=header)
        rejected = b"CONNECT 10.9.9.9:443 HTTP/1.1\r\nHost: 10.9.9.9:443\r\n\r\n"
        assert b"404" in await send(served, TUNNELS, rejected)
        series = await _counted(served, 3)
    assert _of(series, "route_connections_total") == {
        ("TCP", "", "garden/one/0"): 2,
        ("TCP", "no_route", ""): 1,
    }
    assert _of(series, "backend_connections_total") == {("Service/garden/kube-apiserver", ""): 2}
