"""The authenticator's process with a real provider: logins, rules, requests of proxies."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from fakes import patience
from fakes.authenticator_process import (
    ORIGIN,
    AuthenticatorProcess,
    query_of,
    running,
)
from fakes.oidc_provider import CLIENT, ENDS_AT_ONCE, OidcProvider
from gatehouse.sidecars.authenticator.config import REQUESTS_SOCKET, ClaimConfig, RuleConfig

pytestmark = pytest.mark.process

ADMINS = RuleConfig((ClaimConfig("groups", ("admins",)),))


async def test_login_returns_user_to_requested_path(
    authenticator: AuthenticatorProcess, provider: OidcProvider
) -> None:
    await authenticator.serving(
        provider,
        scopes=("openid", "email"),
        extra=(("prompt", "login"),),
        backend_claims=("sub", "groups"),
    )
    assert (await authenticator.ask("check")).status == 401
    begun = await authenticator.ask("login", "/orders?page=2")
    query = query_of(begun.location)
    assert begun.location.startswith(f"{provider.issuer}/authorize?tenant=a&")
    assert query["redirect_uri"] == f"{ORIGIN}/callback"
    assert (query["scope"], query["prompt"], query["client_id"]) == (
        "openid email",
        "login",
        CLIENT,
    )
    assert query["code_challenge_method"] == "S256"
    (cookie,) = authenticator.set
    assert re.fullmatch(
        r"SESSION_login_[0-9a-f]{16}=\S+; Path=/callback; HttpOnly; SameSite=Lax; Secure; "
        r"Max-Age=600",
        cookie,
    )
    back = await authenticator.at_provider(provider, begun.location)
    done = await authenticator.ask("callback", back.removeprefix(ORIGIN))
    assert (done.status, done.location) == (302, "/orders?page=2")
    assert done.headers["Referrer-Policy"] == "no-referrer"
    assert set(authenticator.cookies) == {"SESSION"}
    assert re.fullmatch(
        r"SESSION=\S+; Path=/; HttpOnly; SameSite=Lax; Secure", authenticator.set[0]
    )
    authenticator.cookies["theme"] = "dark"
    let_in = await authenticator.ask("check")
    assert let_in.status == 200
    assert let_in.headers["X-Claim-0"] == "alice"
    assert let_in.headers["X-Claim-1"] == "staff,admins"
    assert let_in.headers["X-Cookie"] == "theme=dark"
    assert authenticator.log == ""


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", {}, 302),
        ("HEAD", {}, 302),
        ("GET", {"mode": "navigate"}, 302),
        ("GET", {"mode": "cors"}, 401),
        ("GET", {"mode": "websocket"}, 401),
        ("GET", {"upgrade": "websocket"}, 401),
        ("POST", {}, 401),
        ("DELETE", {"mode": "navigate"}, 401),
    ],
)
async def test_only_navigations_are_sent_to_the_provider(
    authenticator: AuthenticatorProcess,
    provider: OidcProvider,
    method: str,
    headers: dict[str, str],
    status: int,
) -> None:
    await authenticator.serving(provider)
    assert (await authenticator.ask("login", method=method, **headers)).status == status


async def test_authorization_rules_accept_or_reject_users(
    authenticator: AuthenticatorProcess, provider: OidcProvider
) -> None:
    await authenticator.serving(provider, rules=(ADMINS,))
    await authenticator.log_in(provider)
    assert (await authenticator.ask("check")).status == 200
    provider.user = {"sub": "bob", "groups": ["staff"]}
    await authenticator.log_in(provider)
    assert (await authenticator.ask("check")).status == 403


async def test_code_is_valid_once_and_for_its_own_login(
    authenticator: AuthenticatorProcess, provider: OidcProvider
) -> None:
    await authenticator.serving(provider)
    begun = await authenticator.ask("login")
    cookies = dict(authenticator.cookies)
    back = (await authenticator.at_provider(provider, begun.location)).removeprefix(ORIGIN)
    authenticator.cookies.clear()
    assert (await authenticator.ask("callback", back)).status == 400
    # Another login's cookie under this one's name does not open.
    other = await authenticator.ask("login")
    (value,) = authenticator.cookies.values()
    authenticator.cookies = dict.fromkeys(cookies, value)
    assert (await authenticator.ask("callback", back)).status == 400
    assert other.status == 302
    authenticator.cookies = dict(cookies)
    assert (await authenticator.ask("callback", back)).status == 302
    authenticator.cookies = dict(cookies)
    assert (await authenticator.ask("callback", back)).status == 403
    assert "wrong code" in authenticator.log


async def test_process_exits_after_linger_time_of_last_party(
    tmp_path: Path, provider: OidcProvider
) -> None:
    async with running(tmp_path, 0.5) as authenticator:
        await authenticator.serving(provider)
        await authenticator.serving(provider, name="q")
        assert (await authenticator.ask("check")).status == 401
        assert await authenticator.serve() == ""
        assert await asyncio.to_thread(authenticator.process.wait, patience.SECONDS) == 0
        assert not os.listdir(tmp_path / "authenticators")  # noqa: PTH208


async def test_login_redirects_only_to_own_origin(
    authenticator: AuthenticatorProcess, provider: OidcProvider
) -> None:
    await authenticator.serving(provider)
    done = await authenticator.log_in(provider, "//evil.example/")
    assert done.location == "/"
    assert urlsplit(done.location).netloc == ""


async def test_unknown_parties_and_actions_return_503(
    authenticator: AuthenticatorProcess, provider: OidcProvider
) -> None:
    await authenticator.serving(provider)
    assert (await authenticator.ask("check", name="other")).status == 503
    assert (await authenticator.ask("other")).status == 503


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"Cookie: a=\x01", 400),
        (b"Cookie: SESSION=1\xe9", 401),
        (b"Cookie: " + b"a=b; " * 6000, 401),
        (b"Cookie: a=\xe9; SESSION=%s", 200),
        (b"Cookie: a=b\r\nCookie: SESSION=%s", 200),
    ],
)
async def test_malformed_requests_are_answered_without_log_entry(
    authenticator: AuthenticatorProcess, provider: OidcProvider, line: bytes, status: int
) -> None:
    await authenticator.serving(provider)
    await authenticator.log_in(provider)
    line = line.replace(b"%s", authenticator.cookies["SESSION"].encode())
    reader, writer = await asyncio.open_unix_connection(authenticator.home / REQUESTS_SOCKET)
    path = authenticator.path("p", "check").encode()
    writer.write(b"GET " + path + b" HTTP/1.1\r\nHost: a\r\n" + line + b"\r\n\r\n")
    assert f" {status} ".encode() in await reader.readline()
    writer.close()
    await writer.wait_closed()
    assert authenticator.log == ""


async def test_ext_authz_response_sets_headers_and_lists_headers_to_remove(
    authenticator: AuthenticatorProcess, provider: OidcProvider
) -> None:
    provider.user = {"sub": "alice", "groups": []}
    fields: dict[str, Any] = {
        "backend_claims": ("sub", "groups"),
        "headers": ("x-user", "x-groups"),
    }
    await authenticator.serving(provider, rules=(), **fields)
    begun = await authenticator.ask("admit", "/orders")
    assert (begun.status, begun.location.partition("?")[0]) == (302, f"{provider.issuer}/authorize")
    assert (await authenticator.ask("admit", method="POST")).status == 401
    await authenticator.log_in(provider)
    let_in = await authenticator.ask("admit", method="POST")
    assert (let_in.status, let_in.headers["x-user"]) == (200, "alice")
    assert let_in.headers["x-envoy-auth-headers-to-remove"] == "cookie,x-groups"
    authenticator.cookies["theme"] = "dark"
    let_in = await authenticator.ask("admit")
    assert let_in.headers["Cookie"] == "theme=dark"
    assert let_in.headers["x-envoy-auth-headers-to-remove"] == "x-groups"
    provider.away = True
    authenticator.cookies.clear()
    assert (await authenticator.ask("admit")).status == 302
    await authenticator.serving(provider, rules=(ADMINS,), **fields, name="q")
    authenticator.cookies.clear()
    assert (await authenticator.ask("admit", name="q")).status == 503


async def test_ext_authz_returns_refreshed_sessions_and_denials(
    authenticator: AuthenticatorProcess, provider: OidcProvider
) -> None:
    await authenticator.serving(provider, rules=(ADMINS,))
    provider.lifetime = ENDS_AT_ONCE
    await authenticator.log_in(provider)
    assert (await authenticator.ask("admit")).status == 200
    assert [cookie.partition("=")[0] for cookie in authenticator.set] == ["SESSION"]
    provider.user = {"sub": "bob", "groups": ["staff"]}
    await authenticator.log_in(provider)
    assert (await authenticator.ask("admit")).status == 403
