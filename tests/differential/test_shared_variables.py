"""Variables that locations of NGINX share, by the headers that clients and backends receive."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

from differential.proxies import PORT, with_nginx
from gatehouse.compiler.ir import gateway, http
from gatehouse.compiler.ir.settings import ClientSettings, Settings
from gatehouse.standalone import echo

pytestmark = pytest.mark.process

ADDRESS = f"127.{64 + os.getpid() % 32}.{os.getpid() // 32 % 256}.7"
ORIGIN = "https://a.example"
LIMITED = Settings(client=ClientSettings(body_size=10))
COOKIE = http.Persistence("cookie", "shop", 60)
HEADER = http.Persistence("header", "X-Session")
BOTH = tuple(http.Backend(name, persistence=HEADER) for name in ("one", "two"))
WITH_COOKIE = http.Backend("one", persistence=COOKIE)


def route(path: str, action: http.Action, **more: Any) -> http.Route:
    match = http.Match(http.PathPrefix(path))
    return http.Route(f"n/r{path.replace('/', '-')}/0/0", match, action, **more)


def added(name: str, value: str) -> http.HeaderEdit:
    return http.HeaderEdit(add=(http.HeaderValue(name, value),))


def forward(*backends: http.Backend, **more: Any) -> http.Forward:
    return http.Forward(backends or (http.Backend("one"),), **more)


ROUTES = (
    route("/cookie", forward(WITH_COOKIE)),
    route("/header", forward(*BOTH)),
    route("/cors", forward(), cors=http.Cors((ORIGIN,), ("PUT",), expose=("X-E",), max_age=60)),
    route("/any", forward(), cors=http.Cors(("*",)), settings=LIMITED),
    route("/small", forward(WITH_COOKIE), settings=LIMITED),
    route(
        "/added",
        forward(
            http.Backend("one", request_headers=added("X-B", "backend")),
            mirrors=(http.Mirror("two", 1, 1),),
            rewrite=http.Rewrite(path=http.PrefixPath("/to")),
        ),
        request_headers=added("X-A", "route"),
    ),
    route("/from", http.Redirect(path=http.PrefixPath("/to"), status=302)),
)


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[aiohttp.ClientSession]:
    endpoints = {
        "one": [(ADDRESS, PORT + 1), (ADDRESS, PORT + 2)],
        "two": [(ADDRESS, PORT + 3), (ADDRESS, PORT + 4)],
    }
    clusters = tuple(
        http.Cluster(name, tuple(http.Endpoint(*endpoint) for endpoint in own))
        for name, own in endpoints.items()
    )
    hosts = (http.VirtualHost("", ROUTES),)
    configuration = gateway.GatewayConfiguration(
        "n/g",
        bind_address=ADDRESS,
        listeners=(gateway.Listener(PORT, "HTTP", hosts),),
        clusters=clusters,
    )
    names = {endpoint: name for name, own in endpoints.items() for endpoint in own}
    url = f"http://{ADDRESS}:{PORT}"
    jar = aiohttp.DummyCookieJar()
    async with (
        echo.serve_echo(names),
        with_nginx(configuration, tmp_path),
        aiohttp.ClientSession(url, cookie_jar=jar) as session,
    ):
        yield session


async def test_session_of_a_cookie_selects_the_endpoint(client: aiohttp.ClientSession) -> None:
    async with client.get("/cookie") as response:
        cookie, *attributes = response.headers["Set-Cookie"].split("; ")
        endpoint = response.headers["X-Endpoint"]
    assert cookie.startswith("shop=")
    assert attributes == ["Path=/", "HttpOnly", "Max-Age=60"]
    for cookies in (cookie, f"x={cookie}; {cookie}; shop=other") * 5:
        async with client.get("/cookie", headers={"Cookie": cookies}) as response:
            assert "Set-Cookie" not in response.headers
            assert response.headers["X-Endpoint"] == endpoint
    async with client.get("/cookie", headers={"Cookie": f"Shop=a; shop=/; {cookie}"}) as response:
        assert response.headers["Set-Cookie"].startswith("shop=")
        assert cookie not in response.headers["Set-Cookie"]


async def test_session_of_a_header_selects_the_endpoint_and_not_the_backend(
    client: aiohttp.ClientSession,
) -> None:
    async with client.get("/header") as response:
        session = response.headers["X-Session"]
        visited = [(response.headers["X-Backend"], response.headers["X-Endpoint"])]
    # One of the two backends gets all requests by chance in one of 10^11 runs.
    for _ in range(37):
        async with client.get("/header", headers={"X-Session": session}) as response:
            assert "X-Session" not in response.headers
            visited.append((response.headers["X-Backend"], response.headers["X-Endpoint"]))
    assert sorted(backend for backend, _ in {*visited}) == ["one", "two"]


async def test_permitted_origins_receive_the_policy(client: aiohttp.ClientSession) -> None:
    preflight_headers = {"Access-Control-Request-Method": "PUT"}
    for origin, permitted in ((ORIGIN, True), ("https://b.example", False), ("", False)):
        async with client.get("/cors", headers={"Origin": origin}) as response:
            assert response.headers.get("Access-Control-Allow-Origin") == (
                origin if permitted else None
            )
            assert response.headers.get("Vary") == ("Origin" if permitted else None)
            assert response.headers.get("Access-Control-Expose-Headers") == (
                "X-E" if permitted else None
            )
        async with client.options(
            "/cors", headers={"Origin": origin, **preflight_headers}
        ) as response:
            assert response.status == (204 if origin else 200)
            assert response.headers.get("Access-Control-Max-Age") == ("60" if permitted else None)
            assert response.headers.get("Access-Control-Allow-Methods") == (
                "PUT" if permitted else None
            )


async def test_response_413_has_the_headers_of_its_route(client: aiohttp.ClientSession) -> None:
    data = b"x" * 100
    async with client.post("/any", data=data, headers={"Origin": ORIGIN}) as response:
        assert response.status == 413
        assert response.headers["Access-Control-Allow-Origin"] == "*"
    async with client.post("/small", data=data) as response:
        assert response.status == 413
        assert response.headers["Set-Cookie"].startswith("shop=")


@pytest.mark.parametrize("sent", [{}, {"X-A": "client"}, {"X-B": "client"}])
async def test_added_headers_follow_those_of_the_client(
    client: aiohttp.ClientSession, sent: dict[str, str]
) -> None:
    async with client.get("/added/x", headers=sent) as response:
        echoed = await response.json()
    assert echoed["path"] == "/to/x"
    for name, value in (("X-A", "route"), ("X-B", "backend")):
        before = f"{sent[name]}," if name in sent else ""
        assert echoed["headers"][name.lower()] == f"{before}{value}"


@pytest.mark.parametrize(
    ("path", "location"),
    [("/from", "/to"), ("/from/a?b=c", "/to/a?b=c"), ("/from/a%2Fb", "/to/a%2Fb")],
)
async def test_redirect_keeps_the_rest_of_the_path(
    client: aiohttp.ClientSession, path: str, location: str
) -> None:
    url = URL(f"http://{ADDRESS}:{PORT}{path}", encoded=True)
    async with client.get(url, allow_redirects=False) as response:
        assert response.headers["Location"] == f"http://{ADDRESS}{location}"
