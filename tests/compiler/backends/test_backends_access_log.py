"""Access log of requests: the same fields and reasons on both proxies."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from fakes import nginx_check
from fakes.envoy_serving import backend, host, listening, plain, route_to
from fakes.logged_gateways import ABLE, PROXIES, LoggedGateway, logged
from fakes.logged_requests import CLOSED, SERVICE, gateway
from fakes.patience import until
from gatehouse.compiler.backends import envoy, nginx
from gatehouse.compiler.backends.nginx import log_formats
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.access_log import AccessLog, NginxLogFormat
from gatehouse.compiler.ir.settings import (
    DataPlaneSettings,
)
from gatehouse.dataplane.origin import Origin

pytestmark = pytest.mark.process


TRACE = "0af7651916cd43dd8448eb211c80319c"


async def _hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.close()


REASONS = {
    "/ok": (200, ""),
    "/missing": (404, "no_route"),
    "/empty": (503, "no_endpoint"),
    "/closed": (None, "connection_failure"),
    "/broken": (None, "connection_failure"),
    "/users": (401, "authentication"),
    "/small": (413, "body_too_large"),
    "/invalid": (500, "invalid_route"),
    "/away": (302, ""),
}
"""Status (None: it differs) and reason of requests to each path."""

RULES = {
    path: f"shop/web/{number}" for path, number in
    {"/ok": 0, "/empty": 1, "/closed": 2, "/broken": 3, "/users": 5, "/invalid": 7,
     "/away": 8}.items()
}  # fmt: skip


@pytest.fixture(params=PROXIES)
def proxy(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def served(proxy: str) -> AsyncIterator[LoggedGateway]:
    async with (
        backend("one") as endpoint,
        listening(_hang_up) as broken,
        logged(proxy, gateway(endpoint, broken)) as result,
    ):
        yield result


async def _send(
    served: LoggedGateway, path: str, host_: str = "a.example", **more: Any
) -> tuple[int, bytes]:
    headers = {"Host": host_, **more.pop("headers", {})}
    async with (
        aiohttp.ClientSession() as session,
        session.request(
            more.pop("method", "GET"), f"http://{served.address}:8080{path}",
            headers=headers, allow_redirects=False, **more,
        ) as answer,
    ):  # fmt: skip
        return answer.status, await answer.read()


async def test_entry_has_all_fields(served: LoggedGateway) -> None:
    before = datetime.now(UTC)
    headers = {
        "User-Agent": "test", "X-Request-ID": "r-1",
        "traceparent": f"00-{TRACE}-b7ad6b7169203331-01",
    }  # fmt: skip
    _, body = await _send(
        served, "/ok/x?token=secret", method="POST", data=b"0123456789", headers=headers
    )
    entry = await served.entry(path="/ok/x")
    expected = {
        "listener": "ns/gw:8080", "client": "127.0.0.1", "peer": "127.0.0.1", "host": "a.example",
        "method": "POST", "path": "/ok/x", "protocol": "HTTP/1.1", "status": 200,
        "route": "shop/web/0", "backend": "Service/shop/web", "attempts": 1, "user_agent": "test",
        "request_id": "r-1", "trace_id": TRACE,
    }  # fmt: skip
    assert {name: entry[name] for name in expected} == expected
    assert not entry["reason"]
    assert not entry["sni"]
    assert "secret" not in json.dumps(entry)
    # A clock of the proxy may be a little late.
    written = datetime.fromisoformat(entry["time"])
    assert before - timedelta(seconds=1) <= written <= datetime.now(UTC)
    assert entry["time"][19] == "."
    assert 0 <= entry["upstream_ms"] <= entry["duration_ms"] + 1 < 10_000
    assert len(body) < entry["bytes_sent"] < len(body) + 500
    assert 10 < entry["bytes_received"] < 500
    assert entry["endpoint"].startswith("127.0.0.1:")
    assert entry["grpc_status"] is None
    assert set(entry) == {*expected, "grpc_status", "time",
                          "reason", "sni", "upstream_ms", "duration_ms",
                          "bytes_sent", "bytes_received", "endpoint"}  # fmt: skip


async def test_reason_says_why_the_proxy_answered(served: LoggedGateway) -> None:
    for path, (status, reason) in REASONS.items():
        answered, _ = await _send(served, path, method="POST", data=b"0123456789")
        assert status in (None, answered), path
        entry = await served.entry(path=path)
        assert (entry["status"], entry["reason"] or "") == (answered, reason), path
        # NGINX rejects a body by its announced length before it looks for the rule.
        assert path == "/small" or (entry["route"] or "") == RULES.get(path, ""), path
    await _send(served, "/limited/1")
    await _send(served, "/limited/2")
    assert (await served.entry(path="/limited/2"))["reason"] == "rate_limit"
    await _send(served, "/other", "b.example")
    entry = await served.entry(path="/other")
    assert (entry["host"], entry["reason"]) == ("b.example", "no_route")


HOSTILE = [
    b'GET /ok/%0a%22"\\x HTTP/1.1\r\nHost: a.example\r\nUser-Agent: a"\\\x7f\x01\xff{}\r\n',
    b"GET /ok/'${gh_dollar}$status%25REQ(X)%25 HTTP/1.1\r\nHost: a.example\r\nUser-Agent: b\r\n",
    b'GET /ok/t HTTP/1.1\r\nHost: a.example\r\ntraceparent: 00-"},{" x\r\nX-Request-ID: "\t\r\n',
    b"GET / x HTTP/1.1\r\nHost: a.example\r\n",
    b'GET /ok/z HTTP/1.1\r\nHost: a"b\r\n',
]


async def test_hostile_requests_stay_one_json_object_per_line(served: LoggedGateway) -> None:
    for lines in HOSTILE:
        reader, writer = await asyncio.open_connection(served.address, 8080)
        writer.write(lines + b"Connection: close\r\n\r\n")
        await reader.read()
        writer.close()
    await _send(served, "/ok/last")
    await served.entry(path="/ok/last")
    entries = [json.loads(line) for line in served.lines()]
    assert 1 < len(entries) <= len(HOSTILE) + 1
    names = set(entries[-1])
    assert all(set(entry) == names for entry in entries)


async def test_retries_are_counted(proxy: str) -> None:
    retried = route_to("closed", "shop/web/0/0", retry=ir.Retry(2))
    cluster = ir.Cluster("closed", (CLOSED,), origin=SERVICE)
    async with logged(proxy, plain([host("a.example", retried)], [cluster])) as served:
        await _send(served, "/x")
        entry = await served.entry(path="/x")
    assert entry["attempts"] == 3
    assert entry["endpoint"] == "127.0.0.1:9"


async def test_request_that_is_not_sent_again_has_one_attempt_and_its_reason(proxy: str) -> None:
    retried = route_to("c", "shop/web/0/0", retry=ir.Retry(2, (502, 503)))
    async with listening(_hang_up) as endpoint:
        cluster = ir.Cluster("c", (endpoint,), origin=SERVICE)
        async with logged(proxy, plain([host("a.example", retried)], [cluster])) as served:
            await _send(served, "/x", method="POST")
            entry = await served.entry(path="/x")
    assert (entry["attempts"], entry["reason"]) == (1, "connection_failure")
    assert entry["endpoint"] == f"{endpoint.address}:{endpoint.port}"


async def test_disabled_log_writes_nothing(proxy: str) -> None:
    route = ir.Route("shop/web/0/0", ir.Match(ir.PathPrefix("/")), ir.Respond(204))
    off = plain([host("a.example", route)], settings=DataPlaneSettings(access_log=None))
    async with logged(proxy, off) as served:
        # Lines about one request are written before those about the next one.
        for method in ("GET", "POST"):
            await _send(served, "/x", method=method)
            await until(partial(_is_counted, served, method))
        assert served.log.read_bytes() == b""


def _is_counted(served: LoggedGateway, method: str) -> bool:
    return f'method="{method}"' in served.requests.text()


async def test_only_chosen_status_classes_are_logged(proxy: str) -> None:
    routes = [
        ir.Route(f"shop/web/{status}/0", ir.Match(ir.PathPrefix(f"/{status}")), ir.Respond(status))
        for status in (204, 302, 404, 500)
    ]
    chosen = DataPlaneSettings(access_log=AccessLog((3, 5)))
    async with logged(proxy, plain([host("a.example", *routes)], settings=chosen)) as served:
        for status in (204, 302, 404, 500):
            await _send(served, f"/{status}")
        await served.entry(status=500)
        assert [json.loads(line)["status"] for line in served.lines()] == [302, 500]


async def test_share_of_requests_is_logged(proxy: str) -> None:
    route = ir.Route("shop/web/0/0", ir.Match(ir.PathPrefix("/")), ir.Respond(204))
    sampled = DataPlaneSettings(access_log=AccessLog((2, 4), percent=30))
    async with logged(proxy, plain([host("a.example", route)], settings=sampled)) as served:
        async with aiohttp.ClientSession() as session:
            for _ in range(600):
                async with session.get(
                    f"http://{served.address}:8080/", headers={"Host": "a.example"}
                ):
                    pass

        async def last_is_logged() -> bool:
            await _send(served, "/last")
            return any(entry["path"] == "/last" for entry in served.entries())

        await until(last_is_logged)
        assert 100 < sum(entry["path"] == "/" for entry in served.entries()) < 260


FORMATS = {
    '$remote_addr "$request" ${status}\\ \\n': '127.0.0.1 "GET /x HTTP/1.1" 204\\ \\n',
    "'; } $http_x_any $arg_a": "'; } - -",
}


@pytest.mark.parametrize("text", FORMATS)
async def test_format_of_nginx_is_used(text: str) -> None:
    route = ir.Route("shop/web/0/0", ir.Match(ir.PathPrefix("/")), ir.Respond(204))
    own = DataPlaneSettings(access_log=AccessLog(nginx=NginxLogFormat(text)))
    async with logged("nginx", plain([host("a.example", route)], settings=own)) as served:
        await _send(served, "/x")
        assert await until(served.lines) == [FORMATS[text]]


@pytest.mark.parametrize(
    "text", ["$gh_log_route $no_such", "$", "a$ b", "${uri", "$http_", "a\nb", "x" * 5000]
)
def test_unusable_format_costs_only_the_format(text: str) -> None:
    origin = Origin("NginxProxy", "ns", "p", "logging.accessLog")
    own = DataPlaneSettings(
        access_log=AccessLog(nginx=NginxLogFormat(text)), sources=(("log", origin),)
    )
    gateway = plain([host("a.example")], settings=own)
    generated = nginx.NginxGenerator(ABLE).generate(gateway)
    default = nginx.NginxGenerator(ABLE).generate(plain([host("a.example")]))
    assert generated.file_set.files == default.file_set.files
    assert [finding.setting for finding in generated.unsupported] == [origin.field("format")]


def test_every_permitted_variable_exists_in_the_oldest_nginx(tmp_path: Path) -> None:
    text = " ".join(f"${name}" for name in sorted(log_formats.PERMITTED_VARIABLES))
    own = DataPlaneSettings(access_log=AccessLog(nginx=NginxLogFormat(text)))
    generated = nginx.NginxGenerator(
        msgspec.structs.replace(nginx.NginxCapabilities.parse("1.22.1"), access_log=True)
    ).generate(plain([host("a.example")], settings=own))
    assert not generated.unsupported
    result = nginx_check.check(generated.file_set, tmp_path)
    assert result.accepted, result.output


def test_format_of_nginx_is_reported_on_envoy() -> None:
    origin = Origin("NginxProxy", "ns", "p", "logging.accessLog")
    own = DataPlaneSettings(
        access_log=AccessLog(nginx=NginxLogFormat("$uri")), sources=(("log", origin),)
    )
    generated = envoy.EnvoyGenerator(envoy.EnvoyCapabilities()).generate(
        plain([host("a.example")], settings=own)
    )
    assert [finding.setting for finding in generated.unsupported] == [origin.field("format")]
