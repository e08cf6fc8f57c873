"""Access to the console: one login, and no request of other pages, hosts and users."""

from __future__ import annotations

from collections.abc import AsyncIterator
from importlib import resources

import aiohttp
import pytest

from fakes.console import logged_in, running_console
from gatehouse.console.server import RunningConsole
from gatehouse.kube import client as kube
from gatehouse.kube.config import Configuration
from gatehouse.kube.credentials import StaticToken

PATHS = ("/console/", "/console/main.js", "/console/api/v1/topology", "/console/api/v1/events")


@pytest.fixture
async def console() -> AsyncIterator[RunningConsole]:
    """A console whose API server does not exist: nothing here reads objects."""
    configuration = Configuration("http://127.0.0.1:9", StaticToken())
    async with kube.Client(configuration) as client, running_console(client) as result:
        yield result


def base(console: RunningConsole) -> str:
    return f"http://127.0.0.1:{console.port}"


@pytest.mark.parametrize("path", PATHS)
async def test_request_without_cookie_is_rejected(console: RunningConsole, path: str) -> None:
    async with aiohttp.ClientSession() as session, session.get(base(console) + path) as response:
        assert response.status == 401
        assert "gatehouse console" in await response.text()


@pytest.mark.parametrize("path", [*PATHS, "/console/login"])
@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:80", "", "[::1", "a b"])
async def test_request_to_another_host_name_is_rejected(
    console: RunningConsole, host: str, path: str
) -> None:
    async with logged_in(console) as session, session.get(path, headers={"Host": host}) as response:
        assert response.status == 421 or (host == "" and response.status == 400)


async def test_console_answers_behind_a_forwarded_port(console: RunningConsole) -> None:
    async with (
        logged_in(console) as session,
        session.get("/console/", headers={"Host": "localhost:9000"}) as response,
    ):
        assert response.status == 200


async def test_login_link_works_once(console: RunningConsole) -> None:
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{base(console)}/console/login?token=guess") as response:
            assert response.status == 401
        async with session.head(console.login_link) as response:
            assert response.status == 405
        async with session.get(console.login_link) as response:
            cookie = response.headers["Set-Cookie"]
            assert response.status == 200
        async with session.get(console.login_link) as response:
            assert response.status == 401
            assert "Set-Cookie" not in response.headers
        async with session.get(f"{base(console)}/console/login?token=") as response:
            assert response.status == 401
    assert f"gatehouse_console_{console.port}=" in cookie
    assert {"HttpOnly", "SameSite=Strict", "Path=/console"} <= {*cookie.split("; ")}


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_api_answers_no_other_page(console: RunningConsole, site: str) -> None:
    headers = {"Sec-Fetch-Site": site}
    async with (
        logged_in(console) as session,
        session.get("/console/api/v1/topology", headers=headers) as response,
    ):
        assert response.status == 403


@pytest.mark.parametrize("path", ["/console/", "/console/nothing", "/console/../console/x", "/x"])
async def test_every_response_has_the_security_headers(console: RunningConsole, path: str) -> None:
    async with logged_in(console) as session, session.get(path) as response:
        policy = response.headers["Content-Security-Policy"]
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["Cache-Control"] == "no-store"
        assert response.headers["Referrer-Policy"] == "no-referrer"
    directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert directives["default-src"] == directives["frame-ancestors"] == "'none'"
    assert directives["script-src"] == "'self'"
    assert "unsafe" not in policy


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_console_accepts_no_write(console: RunningConsole, method: str) -> None:
    async with (
        logged_in(console) as session,
        session.request(method, "/console/api/v1/topology") as response,
    ):
        assert response.status == 405


def test_front_end_has_no_markup_from_values_and_no_other_origin() -> None:
    files = list(resources.files("gatehouse.console").joinpath("static").iterdir())
    assert {"index.html", "main.js", "dom.js"} <= {file.name for file in files}
    for file in files:
        text = file.read_text()
        for banned in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert banned not in text, file.name
        links = text.replace("http://www.w3.org/2000/svg", "")
        for place in ('src="http', 'href="http', 'from "http', "url(http", "<style", "onclick="):
            assert place not in links, file.name
