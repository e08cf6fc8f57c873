"""Access log of connections: the same fields and reasons on both proxies."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fakes.apiservers import connect, version_1
from fakes.authority import Authority
from fakes.client_hello import client_hello
from fakes.logged_connections import (
    BROKEN,
    CLOSED,
    TCP,
    TLS,
    UDP,
    UNROUTED,
    certificate,
    exchange_datagram,
    gateway,
    send,
    serving,
)
from fakes.logged_gateways import ABLE, PROXIES, short_udp_sessions
from fakes.patience import until
from gatehouse.compiler.backends import nginx
from gatehouse.compiler.ir.access_log import AccessLog
from gatehouse.compiler.ir.settings import ClientAddress, DataPlaneSettings

__all__ = ["short_udp_sessions"]

pytestmark = pytest.mark.process

FIELDS = {
    "time", "client", "peer", "listener", "sni", "protocol", "route", "backend", "endpoint",
    "bytes_received", "bytes_sent", "duration_ms", "reason",
}  # fmt: skip


@pytest.fixture(params=PROXIES)
def proxy(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def check_times(entry: dict[str, Any], before: datetime) -> None:
    # A clock of the proxy may be a little late.
    written = datetime.fromisoformat(entry["time"])
    assert before - timedelta(seconds=1) <= written <= datetime.now(UTC)
    assert entry["time"][19] == "."
    assert 0 <= entry["duration_ms"] < 60_000


async def test_entry_of_tcp_connection_has_all_fields(proxy: str, authority: Authority) -> None:
    before = datetime.now(UTC)
    async with serving(proxy, authority) as (served, endpoint, _):
        assert await send(served, TCP, b"0123456789") == b"hello 1\n0123456789"
        entry = await served.entry(route="shop/tcp/0")
    check_times(entry, before)
    assert set(entry) == FIELDS
    expected = {
        "client": "127.0.0.1", "peer": "127.0.0.1", "listener": f"ns/gw:{TCP}", "protocol": "TCP",
        "backend": "Service/shop/db", "endpoint": f"127.0.0.1:{endpoint.port}",
        "bytes_received": 10, "bytes_sent": 18,
    }  # fmt: skip
    assert {name: entry[name] for name in expected} == expected
    assert not entry["reason"]
    assert not entry["sni"]


@pytest.mark.usefixtures("short_udp_sessions")
async def test_entry_of_udp_session_counts_its_bytes(proxy: str, authority: Authority) -> None:
    async with serving(proxy, authority) as (served, _, datagrams):
        assert await asyncio.to_thread(exchange_datagram, served, b"12345") == b"1234512345"
        entry = await served.entry(route="shop/udp/0")
    assert set(entry) == FIELDS
    expected = {
        "client": "127.0.0.1", "peer": "127.0.0.1", "listener": f"ns/gw:{UDP}", "protocol": "UDP",
        "backend": "Service/shop/db", "endpoint": f"127.0.0.1:{datagrams.port}",
        "bytes_received": 5, "bytes_sent": 10,
    }  # fmt: skip
    assert {name: entry[name] for name in expected} == expected
    assert not entry["reason"]


async def test_entry_of_tls_connection_has_its_name_when_passed_or_terminated(
    proxy: str, authority: Authority
) -> None:
    trust = ssl.create_default_context(cafile=str(authority.file))
    async with serving(proxy, authority) as (served, endpoint, _):
        hello = client_hello(b"pass.test")
        assert (await send(served, TLS, hello)).endswith(hello)
        assert (await send(served, TLS, client_hello(b"a.wild.test"))).startswith(b"hello 1")
        reader, writer = await asyncio.open_connection(
            served.address, TLS, ssl=trust, server_hostname="end.test"
        )
        assert await reader.readline() == b"hello 1\n"
        writer.close()
        passed = await served.entry(sni="pass.test")
        wild = await served.entry(sni="a.wild.test")
        ended = await served.entry(sni="end.test")
    assert (passed["route"], wild["route"], ended["route"]) == (
        "shop/pass/2", "shop/wild/0", "shop/end/0",
    )  # fmt: skip
    assert (passed["bytes_received"], passed["bytes_sent"]) == (len(hello), len(hello) + 8)
    for entry in (passed, wild, ended):
        assert entry["listener"] == f"ns/gw:{TLS}"
        assert entry["endpoint"] == f"127.0.0.1:{endpoint.port}"
        assert entry["backend"] == "Service/shop/db"
        assert not entry["reason"]


REASONS = {
    "unknown.test": ("", "no_route"),
    "unrouted.test": ("", "no_route"),
    "listed.test": ("shop/listed/0", "no_route"),
    "empty.test": ("shop/empty/0", "no_endpoint"),
    "broken.test": ("shop/broken/0", "connection_failure"),
    "invalid.test": ("shop/invalid/0", "invalid_route"),
    "half.test": ("shop/half/0", "invalid_route"),
    "mostly.test": ("shop/mostly/0", "no_endpoint"),
}


async def test_reason_says_why_a_connection_was_closed(proxy: str, authority: Authority) -> None:
    async with serving(proxy, authority) as (served, _, _):
        for name, (rule, reason) in REASONS.items():
            assert await send(served, TLS, client_hello(name.encode())) == b"", name
            entry = await served.entry(sni=name)
            # Envoy selects no chain for other sources, and so knows no rule.
            rule = "" if (proxy, name) == ("envoy", "listed.test") else rule
            assert (entry["route"] or "", entry["reason"]) == (rule, reason), name
        assert await send(served, TLS, b"GET / HTTP/1.1\r\n\r\n") == b""
        nameless: dict[str, Any] = {
            "listener": f"ns/gw:{TLS}",
            "sni": None if proxy == "envoy" else "",
        }
        entry = await served.entry(**nameless)
        assert (entry["route"] or "", entry["reason"]) == ("", "no_route")
        assert await send(served, BROKEN, b"") == b""
        entry = await served.entry(listener=f"ns/gw:{BROKEN}")
        assert (entry["route"], entry["reason"]) == ("shop/down/0", "connection_failure")
        assert entry["endpoint"] == "127.0.0.1:9"
        assert await send(served, UNROUTED, b"") == b""
        entry = await served.entry(listener=f"ns/gw:{UNROUTED}")
        assert (entry["route"] or "", entry["reason"]) == ("", "no_route")


async def test_failed_handshake_of_terminated_connection_is_logged(
    proxy: str, authority: Authority
) -> None:
    async with serving(proxy, authority) as (served, _, _):
        # The server has no cipher in common with this client.
        assert (await send(served, TLS, client_hello(b"end.test")))[:1] in (b"", b"\x15")
        entry = await served.entry(sni="end.test")
        assert (entry["route"], entry["reason"]) == ("shop/end/0", "bad_request")


async def test_connections_are_not_logged_when_log_is_disabled(
    proxy: str, authority: Authority
) -> None:
    off = DataPlaneSettings(access_log=None)
    async with serving(proxy, authority, settings=off) as (served, _, _):
        log = served.log.open("rb")
        assert await send(served, TCP, b"0") == b"hello 1\n0"
        # It is counted at its end, when it would be logged.
        await until(lambda: 'route="shop/tcp/0"' in served.connections.text())
    # The proxy has ended, and has written all that it logs.
    with log:
        assert log.read() == b""


async def test_connections_are_logged_whatever_requests_are(
    proxy: str, authority: Authority
) -> None:
    chosen = DataPlaneSettings(access_log=AccessLog((5,), percent=1))
    async with serving(proxy, authority, settings=chosen) as (served, _, _):
        assert await send(served, TCP, b"0") == b"hello 1\n0"
        assert (await served.entry(route="shop/tcp/0"))["bytes_sent"] == 9


async def test_entry_has_client_of_proxy_header_beside_peer(
    proxy: str, authority: Authority
) -> None:
    balancers = ClientAddress("proxy-protocol", ("127.0.0.0/8",))
    settings = DataPlaneSettings(client_address=balancers)
    async with serving(proxy, authority, settings=settings) as (served, _, _):
        for port in (TCP, TLS):
            header = version_1("203.0.113.9", "192.0.2.1", port)
            hello = client_hello(b"pass.test")
            assert (await send(served, port, hello, header)).startswith(b"hello 1")
            entry = await served.entry(listener=f"ns/gw:{port}")
            assert (entry["client"], entry["peer"]) == ("203.0.113.9", "127.0.0.1"), port


async def test_nginx_does_not_know_peer_of_terminated_connection_after_proxy_header(
    authority: Authority,
) -> None:
    balancers = ClientAddress("proxy-protocol", ("127.0.0.0/8",))
    settings = DataPlaneSettings(client_address=balancers)
    trust = ssl.create_default_context(cafile=str(authority.file))
    async with serving("nginx", authority, settings=settings) as (served, _, _):
        client = await connect(
            (served.address, TLS), trust, "end.test",
            header=version_1("203.0.113.9", "192.0.2.1", TLS),
        )  # fmt: skip
        client.close()
        entry = await served.entry(sni="end.test")
    assert (entry["client"], entry["peer"]) == ("203.0.113.9", "203.0.113.9")


async def test_nginx_logs_connections_without_their_proxy_header(authority: Authority) -> None:
    balancers = ClientAddress("proxy-protocol", ("127.0.0.0/8",))
    settings = DataPlaneSettings(client_address=balancers)
    async with serving("nginx", authority, settings=settings) as (served, _, _):
        assert await send(served, TCP, b"GET / HTTP/1.1\r\n\r\n") == b""
        assert (await served.entry(listener=f"ns/gw:{TCP}"))["reason"] == "bad_request"


def test_agent_without_channel_gets_no_connection_log(authority: Authority) -> None:
    configured = gateway(CLOSED, CLOSED, certificate(authority))
    silent = msgspec.structs.replace(ABLE, access_log=False)
    files = nginx.NginxGenerator(silent).generate(configured).file_set.files
    assert not [path for path in files if "access_log" in path]
    assert not [path for path, file in files.items() if b"access_log" in file.content]
