"""Access log of connections whose TLS passes through, on a real Envoy."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fakes.apiservers import apiserver, connect, server_name_at, version_1
from fakes.authority import Authority
from fakes.client_hello import client_hello
from fakes.durations import be_slow
from fakes.envoy_serving import serving
from fakes.logged_tunnels import INSIDE, NAMES, TUNNELS, gateway, send
from fakes.patience import until, until_equal
from gatehouse.compiler.ir.settings import ClientAddress, DataPlaneSettings

pytestmark = pytest.mark.process

FIELDS = {
    "time", "client", "peer", "listener", "sni", "route", "backend", "endpoint", "bytes_received",
    "bytes_sent", "duration_ms", "reason", "protocol",
}  # fmt: skip

HOSTILE = {
    b'a","route":"x': "invalid:a___route___x",
    b"a\nb\r\x1b[2J": "invalid:a_b___2j",
    b"%REQ(X)%": "invalid:_req_x__",
    b"\xff\xfe\x80": "invalid:___",
    "\u202e\u2028.test".encode(): "invalid:______.test",
    b"a\0b": None,
    b"a" * 255: "a" * 255,
}
"""Server names, and what an entry has in their place. Envoy replaces characters of no hostname."""


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def trust(authority: Authority) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.file))
    context.check_hostname = False
    return context


def entries(file: Path) -> Iterator[dict[str, Any]]:
    complete, _, _ = file.read_bytes().rpartition(b"\n")
    for line in complete.splitlines():
        yield msgspec.json.decode(line)


async def test_connections_are_logged_with_their_route_and_endpoint(
    authority: Authority, trust: ssl.SSLContext, tmp_path: Path
) -> None:
    log = tmp_path / "access.log"
    async with apiserver(authority, "one") as server:
        settings = DataPlaneSettings()
        async with serving(gateway(server.endpoint, settings), output=log) as served:
            for sni in ("api.one.test", "api.listed.test"):
                client = await connect((served.address, NAMES), trust, sni, source="127.0.9.1")
                await client.echo("hello")
                await be_slow(0.05)
                client.close()
            header = version_1("192.0.2.7", "10.1.2.3", 443)
            inside = (served.address, INSIDE)
            assert await server_name_at(inside, trust, None, source="127.0.9.1", header=header)
            await until(lambda: len([*entries(log)]) >= 3)
        named, listed, proxied = entries(log)
    for entry in (named, listed, proxied):
        assert entry.keys() - {"destination"} == FIELDS
        assert entry["route"] == "garden/one/0"
        assert entry["backend"] == "Service/garden/kube-apiserver"
        assert entry["endpoint"] == f"127.0.0.1:{server.endpoint.port}"
        assert entry["peer"] == "127.0.9.1"
        assert not entry["reason"]
        assert entry["bytes_received"] > 200
        assert entry["bytes_sent"] > 500
    assert (named["sni"], named["listener"]) == ("api.one.test", f"edge/apis:{NAMES}")
    assert named["duration_ms"] >= 50
    assert (listed["sni"], listed["client"]) == ("api.listed.test", "127.0.9.1")
    assert (proxied["client"], proxied["destination"]) == ("192.0.2.7", "10.1.2.3:443")


REFUSED = {
    ("api.other.test", "127.0.8.1", "no_route"),
    ("api.listed.test", "127.0.8.1", "no_route"),
    ("api.broken.test", "127.0.8.1", "connection_failure"),
    (None, "127.0.0.1", "no_route"),
    ("10.9.9.9:443", "192.0.2.7", "no_route"),
    ("10.1.2.3:443", "192.0.2.7", "no_route"),
    ("10.1.2.3:443", "127.0.8.1", "no_route"),
    (None, "127.0.9.1", "bad_request"),
    (None, "127.0.9.2", "timeout"),
}
"""A connection without the PROXY header that its port needs has no entry."""


def rejections(file: Path) -> set[tuple[str | None, str, str]]:
    """Return server name or destination, client and reason of all entries."""
    return {(e["sni"] or e.get("destination"), e["client"], e["reason"]) for e in entries(file)}


async def test_refused_connections_are_logged_with_their_reason(
    authority: Authority, trust: ssl.SSLContext, tmp_path: Path
) -> None:
    log = tmp_path / "access.log"
    async with apiserver(authority, "one") as server:
        settings = DataPlaneSettings()
        async with serving(gateway(server.endpoint, settings), output=log) as served:
            names, inside = (served.address, NAMES), (served.address, INSIDE)
            for sni in ("api.other.test", "api.listed.test", "api.broken.test"):
                assert await server_name_at(names, trust, sni, source="127.0.8.1") == ""
            await send(names, client_hello(None))
            await send(names, b"GET / HTTP/1.1\r\n\r\n")
            for target, source in (("10.9.9.9", "127.0.9.1"), ("10.1.2.3", "127.0.8.1")):
                await send(inside, version_1("192.0.2.7", target, 443) + client_hello(None), source)
            await send(inside, b"x" * 200, "127.0.9.1")
            for target, source in (("10.1.2.3:443", "127.0.8.1"), ('"\\x', "127.0.9.1")):
                data = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nConnection: close\r\n\r\n"
                await send((served.address, TUNNELS), data.encode(), source)
            slow = b"CONNECT 10.1.2.3:443 HTTP/1.1\r\n"
            assert await send((served.address, TUNNELS), slow, "127.0.9.2")
            await until_equal(lambda: rejections(log), REFUSED)
    assert rejections(log) == REFUSED


async def test_hostile_server_names_are_quoted(
    authority: Authority, trust: ssl.SSLContext, tmp_path: Path
) -> None:
    log = tmp_path / "access.log"
    async with apiserver(authority, "one") as server:
        settings = DataPlaneSettings()
        async with serving(gateway(server.endpoint, settings), output=log) as served:
            for name in HOSTILE:
                await send((served.address, NAMES), client_hello(name))
            names = list(HOSTILE.values())
            await until_equal(lambda: [entry["sni"] for entry in entries(log)], names)


async def test_log_can_be_disabled_and_shows_clients_behind_load_balancers(
    authority: Authority, trust: ssl.SSLContext, tmp_path: Path
) -> None:
    log = tmp_path / "access.log"
    header = version_1("198.51.100.7", "192.0.2.1", NAMES)
    balancers = ClientAddress("proxy-protocol", ("127.0.9.0/24",))
    async with apiserver(authority, "one") as server:
        silent = DataPlaneSettings(client_address=balancers, access_log=None)
        async with serving(gateway(server.endpoint, silent), output=log) as served:
            names = (served.address, NAMES)

            async def ask(source: str) -> str:
                sni = "api.one.test"
                return await server_name_at(names, trust, sni, source=source, header=header)

            assert await ask("127.0.9.1") == "one"
            assert await ask("127.0.8.1") == ""
            logging = DataPlaneSettings(client_address=balancers)
            await served.serve(gateway(server.endpoint, logging))
            assert await ask("127.0.9.1") == "one"
            assert await ask("127.0.8.1") == ""
            await until(lambda: len([*entries(log)]) >= 2)
        forged, admitted = sorted(entries(log), key=lambda entry: str(entry["peer"]))
    assert (admitted["client"], admitted["peer"]) == ("198.51.100.7", "127.0.9.1")
    assert (forged["peer"], forged["reason"]) == ("127.0.8.1", "no_route")
