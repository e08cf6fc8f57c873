"""Access log as lines of text: the same fields in the same order on both proxies."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from fakes import patience
from fakes.apiservers import apiserver
from fakes.authority import Authority
from fakes.envoy_serving import backend, host, listening, plain, route_to
from fakes.logged_gateways import PROXIES, LoggedGateway, logged
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.access_log import (
    CONNECTION_FIELDS,
    NUMBER_FIELDS,
    REQUEST_FIELDS,
    AccessLog,
)
from gatehouse.compiler.ir.settings import DataPlaneSettings
from gatehouse.dataplane.origin import Origin

pytestmark = pytest.mark.process

SERVICE = Origin("Service", "shop", "web")
TEXT = DataPlaneSettings(access_log=AccessLog(style="text"))
PAIR = re.compile(r'([a-z_]+)=(?:"((?:[^"\\]|\\.)*)"|([0-9.e+-]*))(?: |$)')
"""A field: its name, and a quoted value or a number."""


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture(params=PROXIES)
def proxy(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def fields_of(line: str) -> dict[str, str]:
    """Return the fields of a line, which has nothing else."""
    matches = list(PAIR.finditer(line))
    assert "".join(match[0] for match in matches) == line, line
    names = [match[1] for match in matches]
    assert len({*names}) == len(names), line
    for match in matches:
        assert (match[2] is None) == (match[1] in NUMBER_FIELDS), line
    return {match[1]: match[2] or match[3] or "" for match in matches}


async def lines(served: LoggedGateway, count: int) -> list[str]:
    await patience.until(lambda: len(served.lines()) >= count)
    assert len(served.lines()) == count
    return served.lines()


async def ask(served: LoggedGateway, head: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(served.address, 8080)
    writer.write(head + b"\r\nConnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    return answer


HOSTILE = [
    b'GET /ok HTTP/1.1\r\nHost: a.example\r\nUser-Agent: x" reason="no_route" y="\x01\\',
    b"GET /ok HTTP/1.1\r\nHost: a.example\r\nUser-Agent: a b\\\r\nX-Request-ID: \"' %REQ(X)% $uri",
    b'GET /ok" status=200 HTTP/1.1\r\nHost: a.example',
    b'GET /ok"status=200\\?secret HTTP/1.1\r\nHost: a.example',
    b'GET /ok HTTP/1.1\r\nHost: a.example" x="',
]


async def test_line_of_request_has_all_fields_in_their_order(proxy: str) -> None:
    async with backend("one") as endpoint:
        cluster = ir.Cluster("c", (endpoint,), origin=SERVICE)
        served_hosts = [host("a.example", route_to("c", "shop/web/0/0", "/ok"))]
        async with logged(proxy, plain(served_hosts, [cluster], settings=TEXT)) as served:
            head = b"GET /ok/1?token=secret HTTP/1.1\r\nHost: a.example\r\nUser-Agent: a b"
            assert (await ask(served, head)).startswith(b"HTTP/1.1 200")
            assert b" 404 " in await ask(served, b"GET /no HTTP/1.1\r\nHost: a.example")
            forwarded, answered = map(fields_of, await lines(served, 2))
    assert tuple(forwarded) == tuple(answered) == REQUEST_FIELDS
    expected = {
        "listener": "ns/gw:8080", "client": "127.0.0.1", "peer": "127.0.0.1", "host": "a.example",
        "sni": "", "method": "GET", "path": "/ok/1", "protocol": "HTTP/1.1", "status": "200",
        "grpc_status": "", "route": "shop/web/0", "backend": "Service/shop/web", "attempts": "1",
        "endpoint": f"127.0.0.1:{endpoint.port}", "reason": "", "user_agent": "a b",
        "request_id": "", "trace_id": "",
    }  # fmt: skip
    assert {name: forwarded[name] for name in expected} == expected
    assert 0 <= float(forwarded["upstream_ms"]) <= float(forwarded["duration_ms"]) + 1
    assert (answered["reason"], answered["upstream_ms"], answered["attempts"]) == (
        "no_route", "", "0",
    )  # fmt: skip


async def test_hostile_requests_add_no_field_and_no_line(proxy: str) -> None:
    async with backend("one") as endpoint:
        cluster = ir.Cluster("c", (endpoint,), origin=SERVICE)
        served_hosts = [host("a.example", route_to("c", "shop/web/0/0", "/ok"))]
        async with logged(proxy, plain(served_hosts, [cluster], settings=TEXT)) as served:
            for head in HOSTILE:
                await ask(served, head)
            await ask(served, b"GET /ok/last HTTP/1.1\r\nHost: a.example")
            written = await lines(served, len(HOSTILE) + 1)
    for line in written:
        assert tuple(fields_of(line)) == REQUEST_FIELDS
    assert "secret" not in "".join(written)


async def _greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"welcome\n")
    await reader.read()
    writer.close()


async def test_line_of_connection_has_all_fields_in_their_order(proxy: str) -> None:
    async with listening(_greet) as endpoint:
        target = (ir_gateway.L4Backend("c"),)
        tcp = ir_gateway.L4Host("", target, origin=Origin("TCPRoute", "shop", "db"))
        gateway = ir_gateway.GatewayConfiguration(
            "ns/gw",
            l4_listeners=(ir_gateway.L4Listener(9000, "TCP", (tcp,)),),
            clusters=(ir.Cluster("c", (endpoint,), "tcp", origin=SERVICE),),
            settings=TEXT,
        )
        async with logged(proxy, gateway) as served:
            reader, writer = await asyncio.open_connection(served.address, 9000)
            assert await reader.readline() == b"welcome\n"
            writer.close()
            [line] = await lines(served, 1)
    fields = fields_of(line)
    assert tuple(fields) == tuple(name for name in CONNECTION_FIELDS if name != "destination")
    expected = {
        "listener": "ns/gw:9000", "client": "127.0.0.1", "sni": "", "protocol": "TCP",
        "bytes_received": "0", "bytes_sent": "8", "route": "shop/db/0", "reason": "",
        "backend": "Service/shop/web", "endpoint": f"127.0.0.1:{endpoint.port}",
    }  # fmt: skip
    assert {name: fields[name] for name in expected} == expected


async def test_destination_of_connect_request_cannot_add_fields(
    authority: Authority,
) -> None:
    async with apiserver(authority, "one") as server:
        destination = ir_gateway.ConnectDestination("10.1.2.3:443", "one")
        gateway = ir_gateway.GatewayConfiguration(
            "edge/apis",
            http_connect_listeners=(ir_gateway.HttpConnectListener(8080, (destination,)),),
            clusters=(ir.Cluster("one", (server.endpoint,), "tcp", origin=SERVICE),),
            settings=TEXT,
        )
        async with logged("envoy", gateway) as served:
            for name in ("10.9.9.9:443", '10.1.2.3:443" reason="'):
                head = "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n"
                head += f"X-Gardener-Destination: {name}"
                await ask(served, head.encode())
            known, hostile = map(fields_of, await lines(served, 2))
    assert tuple(known) == tuple(hostile) == CONNECTION_FIELDS
    assert (known["destination"], known["reason"]) == ("10.9.9.9:443", "no_route")
    assert (hostile["destination"], hostile["reason"]) == ("", "no_route")
