"""Real proxies whose listener asks an authorization server before a route is chosen (GEP-5224)."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from differential import proxies
from differential.proxies import Runner
from fakes import authorization_servers, patience
from fakes.authorization_servers import AuthorizationServer
from fakes.authorized_traffic import COPY, RUNNERS, check, recording, rule, served, values
from fakes.envoy_serving import listening
from fakes.one_route import BACKEND, Object
from gatehouse.apis.gateway import ENVOY_CONTROLLER

pytestmark = pytest.mark.process

USER = "X-User"


def named(path: str, user: str = "", *filters: Object, **fields: Any) -> Object:
    """Return a rule for one user, or for all; each adds its path to what the backend gets."""
    headers = [{"name": USER, "value": user}] if user else []
    mark = {"set": [{"name": "X-Rule", "value": path + user}]}
    return {
        "matches": [{"path": {"type": "PathPrefix", "value": path}, "headers": headers}],
        "filters": [{"type": "RequestHeaderModifier", "requestHeaderModifier": mark}, *filters],
        "backendRefs": [BACKEND],
        **fields,
    }


@pytest.mark.parametrize("runner", RUNNERS)
async def test_headers_of_the_server_choose_the_route(
    runner: Runner, auth: AuthorizationServer, tmp_path: Path
) -> None:
    """ "Implementations MUST evaluate route matching exactly once after the last ListenerFilter has
    run." (ListenerFilters.requests)"""
    rules = (named("/", "alice"), named("/", "bob"), named("/"), named("/deep", "bob"))
    async with served(runner, tmp_path, auth.port, *rules, listener=(check(),)) as proxy:
        for target, expected, users in (
            ("/a", "/alice", ["alice"]), ("/a?user=bob", "/bob", ["bob"]),
            ("/a?user=eve", "/", ["eve"]), ("/a?user=", "/", []),
            ("/deep/a?user=bob", "/deepbob", ["bob"]), ("/deep?user=eve", "/", ["eve"]),
        ):  # fmt: skip
            for forged in ({}, {"X_User": "bob"}, {"X_User": "alice"}):
                status, _, echo = await proxy.send(target, **forged)
                assert (status, values(echo, "x-rule")) == (200, [expected]), target
                assert values(echo, "x-user") == users
                assert len(auth.checks) == 1
                auth.last()


@pytest.mark.parametrize("runner", RUNNERS)
async def test_server_sees_the_request_of_the_client(
    runner: Runner, auth: AuthorizationServer, tmp_path: Path
) -> None:
    async with served(runner, tmp_path, auth.port, named("/"), listener=(check(),)) as proxy:
        status, _, echo = await proxy.send("/a/../b%20c?q=%2F", "POST", b"body", X_Token="t")
        assert (status, echo["method"]) == (200, "POST")
        checked = auth.last()
        assert (checked.method, checked.target) == ("POST", "/check/b%20c?q=%2F")
        assert checked.all("host") == ["a.example"]
        assert checked.all("x-token") == ["t"]


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize(
    ("answer", "expected"), [(302, 302), (401, 401), (403, 403), (204, 403), (500, 503)]
)
async def test_denied_requests_reach_no_route(
    runner: Runner, auth: AuthorizationServer, tmp_path: Path, answer: int, expected: int
) -> None:
    """ "A filter that produces a response to the client directly [...] MUST prevent route matching
    from running" (GEP-5224)."""
    away = {"type": "RequestRedirect", "requestRedirect": {"hostname": "b.example"}}
    redirected = {**named("/away", "", away), "backendRefs": []}
    rules = (named("/a"), redirected)
    async with served(runner, tmp_path, auth.port, *rules, listener=(check(),)) as proxy:
        for path in ("/a", "/away", "/no-route"):
            status, headers, body = await proxy.send(f"{path}?status={answer}")
            assert (status, b"service" in body) == (expected, False)
            assert "b.example" not in headers.get("location", "")
            if 300 <= answer < 500:
                assert headers["www-authenticate"] == "Bearer realm=x"
        assert (await proxy.send("/away"))[0] == 302
        assert (await proxy.send("/no-route"))[0] == 404


@pytest.mark.parametrize("runner", RUNNERS)
async def test_requests_are_rejected_without_server(runner: Runner, tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        async with served(runner, tmp_path, port, named("/"), listener=(check(),)) as proxy:
            status, _, body = await proxy.send("/a")
            assert (status, b"service" in body) == (503, False)


@pytest.mark.parametrize("runner", RUNNERS)
async def test_check_of_the_rule_follows_the_check_of_the_listener(
    runner: Runner, auth: AuthorizationServer, tmp_path: Path
) -> None:
    http = {"path": "/second", "allowedHeaders": [USER], "allowedResponseHeaders": ["X-Extra"]}
    checked = rule("/", http=http)
    checked["matches"][0]["headers"] = [{"name": USER, "value": "alice"}]
    async with served(runner, tmp_path, auth.port, checked, listener=(check(),)) as proxy:
        status, _, echo = await proxy.send("/a", X_User="root", X_Extra="mine")
        assert (status, values(echo, "x-user"), values(echo, "x-extra")) == (
            200, ["alice"], ["extra"],
        )  # fmt: skip
        first, second = auth.checks
        assert (first.target, second.target) == ("/check/a", "/second/a")
        assert second.all("x-user") == ["alice"]
        assert (await proxy.send("/a?user=bob"))[0] == 404


@pytest.mark.parametrize("runner", RUNNERS)
async def test_rules_change_and_copy_the_headers_of_the_server(
    runner: Runner, auth: AuthorizationServer, tmp_path: Path
) -> None:
    copies: list[bytes] = []

    def changed(path: str, **edit: Any) -> Object:
        change = {"type": "RequestHeaderModifier", "requestHeaderModifier": edit}
        return named(path, "alice") | {"filters": [change]}

    own = {"name": USER, "value": "own"}
    mirror = {"type": "RequestMirror", "requestMirror": {"backendRef": COPY}}
    rules = (
        changed("/set", set=[own]), changed("/add", add=[own]), changed("/remove", remove=[USER]),
        named("/copy", "alice", mirror),
    )  # fmt: skip
    async with listening(recording(copies)) as copy, served(
        runner, tmp_path, auth.port, *rules, mirrored=copy.port, listener=(check(),)
    ) as proxy:  # fmt: skip
        for path, users in (("/set", "own"), ("/add", "alice,own"), ("/remove", "")):
            status, _, echo = await proxy.send(path, X_User="root")
            assert (status, ",".join(values(echo, "x-user"))) == (200, users), path
        assert (await proxy.send("/copy", X_User="root"))[0] == 200
        await patience.until(lambda: copies)
        assert b"x-user: alice" in copies[0].lower()


async def _head(reader: asyncio.StreamReader) -> bytes:
    """Return the next head of a request; nothing at the end of the connection."""
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""


@pytest.mark.parametrize("runner", RUNNERS)
async def test_upgrades_and_retried_requests_are_checked_once(
    runner: Runner, auth: AuthorizationServer, tmp_path: Path
) -> None:
    """ "Implementations MUST NOT re-run any filters.requests entries after the pre-routing stage
    completes." (GEP-5224)"""
    heads: list[bytes] = []

    async def failing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await _head(reader):
            heads.append(head)
            if b"upgrade: websocket" in head.lower():
                writer.write(b"HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
                writer.write(await reader.readexactly(4))
            else:
                writer.write(b"HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()

    retried = named("/", "alice", retry={"codes": [503], "attempts": 6})
    async with served(
        runner, tmp_path, auth.port, retried, listener=(check(),), answer=failing
    ) as proxy:
        assert (await proxy.send("/a"))[0] == 503
        assert (len(heads), len(auth.checks)) == (7, 1)
        assert all(b"x-user: alice" in head.lower() for head in heads)
        head, echo = await proxy.upgrade("/a")
        assert (b" 101 " in head, echo) == (True, b"ping")
        assert len(auth.checks) == 2


async def test_envoy_checks_by_grpc_and_keeps_the_host(tmp_path: Path) -> None:
    """ "If a ListenerFilter attempts to modify either header, implementations MUST NOT allow that
    modification to take effect." (ListenerFilters.requests)"""
    async with authorization_servers.grpc_server() as server:
        by_grpc = check(protocol="GRPC", grpc={})
        del by_grpc["externalAuth"]["http"]
        rules = (named("/", "alice"), named("/"))
        async with served(
            proxies.with_envoy,
            tmp_path,
            server.port,
            *rules,
            listener=(by_grpc,),
            controller=ENVOY_CONTROLLER,
        ) as proxy:
            status, _, echo = await proxy.send("/a", X_User="root")
            assert (status, values(echo, "x-rule")) == (200, ["/alice"])
            assert values(echo, "host") == ["a.example"]
            assert (await proxy.send("/a?status=401"))[0] == 401
