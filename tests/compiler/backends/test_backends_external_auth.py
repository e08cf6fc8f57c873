"""Real proxies with authorization servers (ExternalAuth), by HTTP on both and by gRPC on Envoy."""

from __future__ import annotations

import asyncio
import functools
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import unquote

import msgspec
import pytest

from differential import proxies
from differential.proxies import PORT, Runner
from fakes import authorization_servers, patience
from fakes.authorization_servers import AuthorizationServer
from fakes.authorized_traffic import COPY, NGINX, OPEN, RUNNERS, recording, rule, served, values
from fakes.envoy_serving import listening
from fakes.one_route import BACKEND
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.authentication import Basic
from gatehouse.compiler.ir.gateway import GatewayConfiguration, SecretBytes, SecretFile
from gatehouse.compiler.ir.settings import Attribute, RateLimit, RateLimits, Settings

pytestmark = pytest.mark.process


@pytest.mark.parametrize("runner", RUNNERS)
async def test_server_gets_the_request_without_body(
    runner: Runner, auth: AuthorizationServer, tmp_path: Path
) -> None:
    async with served(runner, tmp_path, auth.port, rule("/")) as proxy:
        status, _, echo = await proxy.send(
            "/a/../b%20c//d?q=%2F&x=1", "POST", b"body", X_Token="t", X_Other="o",
            Authorization="me", X_Real_IP="6.6.6.6", X_Forwarded_For="6.6.6.6",
        )  # fmt: skip
        assert (status, echo["method"]) == (200, "POST")
        check = auth.last()
        assert (check.method, check.target) == ("POST", "/check/b%20c/d?q=%2F&x=1")
        assert check.all("host") == ["a.example"]
        assert check.all("authorization") == ["me"]
        assert check.all("content-length") == ["0"]
        assert check.all("x-token") == ["t"]
        assert check.all("x-real-ip") == ["127.0.0.1"]
        assert not any(check.all(name) for name in ("x-other", "transfer-encoding"))
        assert check.body == b""


@pytest.mark.parametrize("runner", RUNNERS)
async def test_backend_gets_permitted_headers_of_the_server_only(
    runner: Runner, auth: AuthorizationServer, tmp_path: Path
) -> None:
    async with served(runner, tmp_path, auth.port, rule("/")) as proxy:
        _, headers, echo = await proxy.send("/a", X_User="root", X_Extra="mine")
        assert values(echo, "x-user") == ["alice"]
        assert values(echo, "x-extra") == ["mine"]
        assert not {"set-cookie", "x-internal", "location"} & set(headers)
        _, _, echo = await proxy.send("/a?user=", X_User="root")
        assert values(echo, "x-user") == []


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (302, 302), (307, 307), (400, 400), (401, 401), (403, 403), (404, 404), (429, 429),
        (201, 403), (204, 403), (500, 503), (502, 503), (503, 503),
    ],
)  # fmt: skip
async def test_denied_requests_do_not_reach_the_backend(
    runner: Runner, auth: AuthorizationServer, tmp_path: Path, answer: int, expected: int
) -> None:
    async with served(runner, tmp_path, auth.port, rule("/")) as proxy:
        status, headers, body = await proxy.send(f"/a?status={answer}")
        assert status == expected
        assert b"service" not in body
        assert "x-internal" not in headers
        if 300 <= answer < 500:
            assert headers["location"] == "https://login.example/"
            assert headers["www-authenticate"] == "Bearer realm=x"
            assert headers["set-cookie"] == "denied=1"


@pytest.mark.parametrize("runner", RUNNERS)
async def test_denial_has_the_response_headers_of_the_route_and_those_of_the_server(
    runner: Runner, auth: AuthorizationServer, tmp_path: Path
) -> None:
    edit = ir.HeaderEdit(
        set=(ir.HeaderValue("X-Frame-Options", "DENY"), ir.HeaderValue("WWW-Authenticate", "own")),
        add=(ir.HeaderValue("X-Added", "a"),),
        remove=("Set-Cookie",),
    )

    def change(gateway: GatewayConfiguration) -> GatewayConfiguration:
        return changed(gateway, response_headers=edit)

    async with served(runner, tmp_path, auth.port, rule("/"), change=change) as proxy:
        for answer in (302, 401, 403, 503):
            status, headers, _ = await proxy.send(f"/a?status={answer}")
            assert (status, headers["x-frame-options"], headers["x-added"]) == (answer, "DENY", "a")
            if answer < 500:
                assert headers["location"] == "https://login.example/"
                assert headers["www-authenticate"] == "Bearer realm=x"
                assert headers["set-cookie"] == "denied=1"


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("listens", [True, False])
async def test_requests_are_rejected_without_server(
    runner: Runner, tmp_path: Path, listens: bool
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1] if listens else 0
        async with served(runner, tmp_path, port, rule("/closed"), OPEN) as proxy:
            status, _, body = await proxy.send("/closed")
            assert status == 503
            assert b"service" not in body
            status, _, _ = await proxy.send("/open")
            assert status == 200


@pytest.mark.long
@pytest.mark.parametrize("runner", RUNNERS)
async def test_late_server_costs_only_its_own_requests(
    runner: Runner, auth: AuthorizationServer, tmp_path: Path
) -> None:
    async with served(runner, tmp_path, auth.port, rule("/closed"), OPEN) as proxy:
        late = [asyncio.create_task(proxy.send("/closed?late")) for _ in range(50)]
        while len(auth.checks) < len(late):
            await patience.pause()
        async with patience.limit():
            assert (await proxy.send("/open"))[0] == 200
            assert (await proxy.send("/closed"))[0] == 200
        async with patience.limit():
            assert {status for status, _, _ in await asyncio.gather(*late)} == {503}


@pytest.mark.parametrize("runner", RUNNERS)
async def test_path_of_the_client_is_checked_and_the_rewritten_one_is_sent(
    runner: Runner, auth: AuthorizationServer, tmp_path: Path
) -> None:
    path = {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/inner"}
    rewrite = {"type": "URLRewrite", "urlRewrite": {"hostname": "b.example", "path": path}}
    async with served(runner, tmp_path, auth.port, rule("/a", rewrite)) as proxy:
        status, _, echo = await proxy.send("/a/x%3Fy?q=1")
        assert (status, echo["target"]) == (200, "/inner/x%3Fy?q=1")
        assert values(echo, "host") == ["b.example"]
        check = auth.last()
        assert (check.target, check.all("host")) == ("/check/a/x%3Fy?q=1", ["a.example"])
        status, _, _ = await proxy.send("/a/x?status=401")
        assert status == 401


@pytest.mark.parametrize("runner", RUNNERS)
async def test_redirects_and_retried_requests_are_checked(
    runner: Runner, auth: AuthorizationServer, tmp_path: Path
) -> None:
    away = {"type": "RequestRedirect", "requestRedirect": {"hostname": "b.example"}}
    redirected = rule("/away", away)
    del redirected["backendRefs"]
    retried = rule("/again") | {"retry": {"codes": [401, 403, 500], "attempts": 2}}
    weighted = rule("/split") | {"backendRefs": [BACKEND, {"name": "missing", "port": 80}]}
    async with served(runner, tmp_path, auth.port, redirected, retried, weighted) as proxy:
        status, headers, _ = await proxy.send("/away")
        assert (status, headers["location"]) == (302, f"http://b.example:{PORT}/away")
        for path in ("/away", "/again", "/split"):
            for answer, expected in ((401, 401), (403, 403), (204, 403), (500, 503)):
                status, headers, echo = await proxy.send(f"{path}?status={answer}")
                assert status == expected, (path, answer)
                assert b"service" not in echo
                assert "b.example" not in headers.get("location", "")
        status, _, echo = await proxy.send("/again")
        assert (status, values(echo, "x-user")) == (200, ["alice"])


@pytest.mark.parametrize("runner", RUNNERS)
async def test_mirrors_get_permitted_requests_only(
    runner: Runner, auth: AuthorizationServer, tmp_path: Path
) -> None:
    copies: list[bytes] = []
    async with listening(recording(copies)) as copy:
        mirror = {"type": "RequestMirror", "requestMirror": {"backendRef": COPY}}
        async with served(
            runner, tmp_path, auth.port, rule("/", mirror), mirrored=copy.port
        ) as proxy:
            assert (await proxy.send("/a?status=401", X_User="root"))[0] == 401
            assert (await proxy.send("/b", X_User="root"))[0] == 200
            await patience.until(lambda: copies)
            (only,) = copies
            assert only.startswith(b"GET /b ")
            assert b"x-user: alice" in only.lower()
            assert b"root" not in only


@pytest.mark.parametrize("runner", RUNNERS)
async def test_upgrades_are_checked(
    runner: Runner, auth: AuthorizationServer, tmp_path: Path
) -> None:
    async def upgraded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert b"x-user: alice" in (await reader.readuntil(b"\r\n\r\n")).lower()
        writer.write(b"HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        writer.write(await reader.readexactly(4))
        await writer.drain()

    async with served(runner, tmp_path, auth.port, rule("/"), answer=upgraded) as proxy:
        for path, expected in (("/a", b" 101 "), ("/a?status=401", b" 401 ")):
            head, echo = await proxy.upgrade(path)
            assert expected in head
            assert echo == (b"ping" if expected == b" 101 " else b"")
            assert not auth.last().all("upgrade")


@pytest.mark.parametrize("runner", RUNNERS)
async def test_encoded_characters_do_not_change_the_check(
    runner: Runner, auth: AuthorizationServer, tmp_path: Path
) -> None:
    async with served(runner, tmp_path, auth.port, rule("/")) as proxy:
        evil = "/a%0D%0AX-Token:%20x%0D%0A%3Fb%23%25"
        assert (await proxy.send(evil))[0] == 200
        check = auth.last()
        assert unquote(check.target) == f"/check{unquote(evil)}"
        assert not {"?", "#"} & set(check.target)
        assert not check.all("x-token")
        assert (await proxy.send("/public/%2e%2e/secret"))[0] == 200
        assert auth.last().target == "/check/secret"


@pytest.mark.parametrize("runner", RUNNERS)
async def test_preflight_requests_are_answered_without_check(
    runner: Runner, auth: AuthorizationServer, tmp_path: Path
) -> None:
    cors = {"type": "CORS", "cors": {"allowOrigins": ["https://c.example"]}}
    async with served(runner, tmp_path, auth.port, rule("/", cors)) as proxy:
        origin = {"Origin": "https://c.example"}
        status, headers, _ = await proxy.send(
            "/a", "OPTIONS", Access_Control_Request_Method="GET", **origin
        )
        assert status in (200, 204)
        assert headers["access-control-allow-origin"] == "https://c.example"
        assert not auth.checks
        status, _, _ = await proxy.send("/a?status=401", **origin)
        assert status == 401
        status, headers, _ = await proxy.send("/a", **origin)
        assert (status, headers["access-control-allow-origin"]) == (200, "https://c.example")


async def test_envoy_copies_all_headers_without_list(
    auth: AuthorizationServer, tmp_path: Path
) -> None:
    async with served(proxies.with_envoy, tmp_path, auth.port, rule("/", http={})) as proxy:
        status, _, echo = await proxy.send("/a", "POST", b"body", Content_Type="text/html")
        assert (status, auth.last().target) == (200, "/a")
        assert values(echo, "x-user") == ["alice"]
        assert values(echo, "x-internal") == ["secret"]
        assert values(echo, "content-type") == ["text/html"]
        assert values(echo, "content-length") == ["4"]
        assert not any(values(echo, name) for name in ("date", ":status"))


async def test_envoy_passes_the_body_up_to_its_maximum(
    auth: AuthorizationServer, tmp_path: Path
) -> None:
    limited = rule("/", forwardBody={"maxSize": 4})
    async with served(proxies.with_envoy, tmp_path, auth.port, limited) as proxy:
        status, _, echo = await proxy.send("/a", "POST", b"\xff\x00ab")
        assert (status, values(echo, "content-length")) == (200, ["4"])
        check = auth.last()
        assert (check.body, check.all("content-length")) == (b"\xff\x00ab", ["4"])
        status, _, echo = await proxy.send("/a", "POST", b"abcde")
        assert status == 413
        assert not auth.checks
        # Of unknown length.
        assert (await proxy.send("/a", "POST", pieces(b"ab", b"cd")))[0] == 200
        assert auth.last().body == b"abcd"
        assert (await proxy.send("/a", "POST", pieces(b"ab", b"cd", b"e")))[0] == 413
        assert not auth.checks


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def test_nginx_rejects_requests_of_a_rule_that_forwards_bodies(
    auth: AuthorizationServer, tmp_path: Path
) -> None:
    rules = (rule("/body", forwardBody={"maxSize": 4}), rule("/plain"), OPEN)
    reason = "filters[0].externalAuth.forwardBody: not supported by NGINX"
    runner = functools.partial(NGINX, unsupported=(reason,))
    async with served(runner, tmp_path, auth.port, *rules) as proxy:
        for method, body in (("POST", b"ab"), ("POST", b"abcde"), ("GET", None)):
            assert (await proxy.send("/body", method, body))[0] == 500
        assert not auth.checks
        assert (await proxy.send("/plain", "POST", b"ab"))[0] == 200
        assert auth.last().body == b""
        assert (await proxy.send("/open", "POST", b"ab"))[0] == 200


@pytest.mark.parametrize("listed", [[], ["x-token"]])
async def test_envoy_checks_by_grpc(tmp_path: Path, listed: list[str]) -> None:
    grpc = {"protocol": "GRPC", "grpc": {"allowedHeaders": listed}}
    async with authorization_servers.grpc_server() as server:
        checked = rule("/", **grpc, forwardBody={"maxSize": 100})
        del checked["filters"][0]["externalAuth"]["http"]
        async with served(proxies.with_envoy, tmp_path, server.port, checked) as proxy:
            status, _, echo = await proxy.send(
                "/a/../b", "POST", b"\xff", X_Token="t", X_Other="o", X_User="root",
                X_Real_IP="6.6.6.6", Forwarded="for=6.6.6.6",
            )  # fmt: skip
            assert status == 200
            assert values(echo, "x-user") == ["alice"]
            assert values(echo, "host") == ["a.example"]
            assert not any(values(echo, name) for name in ("x-gh-scope", "transfer-encoding"))
            check = server.last()
            assert (check.method, check.target, check.body) == ("POST", "/b", b"\xff")
            assert check.all("x-token") == ["t"]
            assert check.all("x-other") == ([] if listed else ["o"])
            hidden = ("x-real-ip", "forwarded", "x-gh-scope")
            assert not any(check.all(name) for name in hidden)
            status, _, echo = await proxy.send("/a?status=401")
            assert (status, echo) == (401, b"from the server")
        async with served(proxies.with_envoy, tmp_path, 0, checked) as proxy:
            assert (await proxy.send("/a"))[0] == 503


def changed(gateway: GatewayConfiguration, **fields: object) -> GatewayConfiguration:
    """Return a gateway whose only route has other fields."""
    (listener,) = gateway.listeners
    (host,) = listener.virtual_hosts
    (route,) = host.routes
    other: ir.Route = msgspec.structs.replace(route, **fields)
    hosts = (msgspec.structs.replace(host, routes=(other,)),)
    listeners = (msgspec.structs.replace(listener, virtual_hosts=hosts),)
    secrets = (SecretFile("users", SecretBytes(b"me:{PLAIN}word\n")),)
    return msgspec.structs.replace(gateway, listeners=listeners, secrets=secrets)


@pytest.mark.parametrize("runner", RUNNERS)
async def test_passwords_are_checked_after_the_server(
    runner: Runner, auth: AuthorizationServer, tmp_path: Path
) -> None:
    def change(gateway: GatewayConfiguration) -> GatewayConfiguration:
        return changed(gateway, authentication=Basic("realm", "users"))

    async with served(runner, tmp_path, auth.port, rule("/"), change=change) as proxy:
        status, headers, echo = await proxy.send("/a")
        assert (status, headers["www-authenticate"]) == (401, 'Basic realm="realm"')
        assert b"service" not in echo
        assert auth.last().target == "/check/a"
        known = {"Authorization": "Basic bWU6d29yZA=="}
        status, _, echo = await proxy.send("/a", X_User="root", **known)
        assert (status, values(echo, "x-user")) == (200, ["alice"])
        status, headers, echo = await proxy.send("/a?status=401", **known)
        assert (status, headers["www-authenticate"]) == (401, "Bearer realm=x")
        assert b"service" not in echo


@pytest.mark.parametrize("runner", RUNNERS)
async def test_requests_above_a_rate_limit_are_not_checked(
    runner: Runner, auth: AuthorizationServer, tmp_path: Path
) -> None:
    limit = RateLimit("l", (Attribute("binary_remote_addr"),), 1, "minute", 1 << 20)

    def change(gateway: GatewayConfiguration) -> GatewayConfiguration:
        rates = RateLimits((limit,), status=429)
        return changed(gateway, settings=Settings(rates=rates))

    async with served(runner, tmp_path, auth.port, rule("/"), change=change) as proxy:
        statuses = [(await proxy.send("/a"))[0] for _ in range(4)]
        assert 429 in statuses
        assert len(auth.checks) == statuses.count(200)
