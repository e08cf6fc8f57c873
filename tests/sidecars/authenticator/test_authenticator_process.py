"""The authenticator's process with a real provider: logins, sessions, their ends."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jwt
import pytest

from fakes import patience
from fakes.authenticator_process import (
    ORIGIN,
    AuthenticatorProcess,
    query_of,
    relying_party,
    running,
)
from fakes.authority import Authority
from fakes.oidc_provider import CLIENT, ENDS_AT_ONCE, OidcProvider
from fakes.patience import until
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


@pytest.mark.parametrize("methods", [["client_secret_basic"], ["client_secret_post"]])
@pytest.mark.parametrize("pkce", [True, False])
async def test_code_is_exchanged_with_each_client_authentication_method(
    authenticator: AuthenticatorProcess, provider: OidcProvider, methods: list[str], pkce: bool
) -> None:
    provider.methods = methods
    await authenticator.serving(provider, pkce=pkce)
    assert (await authenticator.log_in(provider)).status == 302
    assert ("code_challenge" in provider.authorized[0]) is pkce


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


async def test_login_with_wrong_client_secret_is_rejected(
    authenticator: AuthenticatorProcess, provider: OidcProvider
) -> None:
    party = relying_party(provider)
    configuration = authenticator.configuration(party, secret="no", trust=provider.authority)
    assert await authenticator.serve(configuration) == ""
    assert (await authenticator.log_in(provider)).status == 403
    assert "invalid_client" in authenticator.log


async def test_denial_by_provider_is_logged_and_returned(
    authenticator: AuthenticatorProcess, provider: OidcProvider
) -> None:
    await authenticator.serving(provider)
    provider.denies = "access_denied\n[emerg]"
    assert (await authenticator.log_in(provider)).status == 403
    (line,) = authenticator.log.splitlines()
    assert r"filter shop/users: login denied: the provider says 'access_denied\n" in line


@pytest.mark.parametrize(
    ("forged", "why"),
    [
        ({"iss": "https://other.example"}, "issuer"),
        ({"aud": "other"}, "Audience"),
        ({"aud": [CLIENT, "other"]}, "azp"),
        ({"azp": "other"}, "azp"),
        ({"nonce": "other"}, "nonce"),
        ({"exp": int(time.time()) - 60}, "expired"),
        ({"sub": None}, "sub"),
    ],
)
async def test_invalid_id_token_is_rejected(
    authenticator: AuthenticatorProcess, provider: OidcProvider, forged: dict[str, Any], why: str
) -> None:
    # The process logs the same problem of a filter once a minute.
    await authenticator.serving(provider, filter=f"shop/{'-'.join(forged)}")
    provider.forged = forged
    assert (await authenticator.log_in(provider)).status == 403
    assert why in authenticator.log
    assert (await authenticator.ask("check")).status == 401


async def test_keys_are_rotated(
    authenticator: AuthenticatorProcess, provider: OidcProvider
) -> None:
    await authenticator.serving(provider)
    assert (await authenticator.log_in(provider)).status == 302
    assert (await authenticator.log_in(provider)).status == 302
    assert provider.counted("/keys") == 1
    provider.rotate("ES256")
    assert (await authenticator.log_in(provider)).status == 302
    assert provider.counted("/keys") == 2
    # A key that is published nowhere is asked for once more, and then refused.
    published = provider.keys
    provider.rotate()
    provider.keys = published
    assert (await authenticator.log_in(provider)).status == 403


async def test_token_signed_with_client_secret_is_rejected(
    authenticator: AuthenticatorProcess, provider: OidcProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    await authenticator.serving(provider)

    def signed(nonce: str) -> str:
        now = int(time.time())
        claims = {"iss": provider.issuer, "aud": CLIENT, "sub": "a", "iat": now, "exp": now + 60}
        key = "a secret that signs the tokens of tests"
        return jwt.encode({**claims, "nonce": nonce}, key, algorithm="HS256")

    monkeypatch.setattr(provider, "id_token", signed)
    assert (await authenticator.log_in(provider)).status == 403
    assert "signed with 'HS256'" in authenticator.log


async def test_session_is_refreshed_once_for_concurrent_requests(
    authenticator: AuthenticatorProcess, provider: OidcProvider
) -> None:
    provider.lifetime = ENDS_AT_ONCE
    await authenticator.serving(provider, backend_claims=("name",))
    provider.user = {"sub": "alice", "name": "Alice"}
    await authenticator.log_in(provider)
    provider.user, provider.lifetime = {"sub": "alice", "name": "Alice B."}, 60
    old = dict(authenticator.cookies)
    answers = await asyncio.gather(*(authenticator.ask("check") for _ in range(20)))
    assert {answer.status for answer in answers} == {200}
    assert {answer.headers["X-Claim-0"] for answer in answers} == {"Alice B."}
    assert provider.counted("/token") == 2
    assert authenticator.cookies != old
    assert "X-Set-Cookie-0" not in (await authenticator.ask("check")).headers
    assert authenticator.log == ""


async def test_session_ends_when_refresh_fails(
    authenticator: AuthenticatorProcess, provider: OidcProvider
) -> None:
    provider.lifetime, provider.refreshable = ENDS_AT_ONCE, False
    await authenticator.serving(provider)
    await authenticator.log_in(provider)
    assert (await authenticator.ask("check")).status == 401


async def test_refresh_for_another_user_is_rejected(
    authenticator: AuthenticatorProcess, provider: OidcProvider
) -> None:
    provider.lifetime = ENDS_AT_ONCE
    await authenticator.serving(provider)
    await authenticator.log_in(provider)
    provider.user = {"sub": "mallory"}
    assert (await authenticator.ask("check")).status == 401
    assert "for another user" in authenticator.log


async def test_session_expires_after_its_timeout(
    authenticator: AuthenticatorProcess, provider: OidcProvider
) -> None:
    await authenticator.serving(provider)
    await authenticator.log_in(provider)
    assert (await authenticator.ask("check")).status == 200
    await authenticator.serving(provider, timeout=0.05)
    await authenticator.log_in(provider)

    async def is_expired() -> bool:
        return (await authenticator.ask("check")).status == 401

    await until(is_expired)


@pytest.mark.parametrize("hint", [True, False])
async def test_logout_ends_local_and_provider_session(
    authenticator: AuthenticatorProcess, provider: OidcProvider, hint: bool
) -> None:
    await authenticator.serving(provider, after_logout="/bye", token_hint=hint)
    await authenticator.log_in(provider)
    gone = await authenticator.ask("logout")
    query = query_of(gone.location)
    assert gone.location.startswith(f"{provider.issuer}/logout?")
    assert query["post_logout_redirect_uri"] == f"{ORIGIN}/bye"
    assert query["client_id"] == CLIENT
    assert ("id_token_hint" in query) is hint
    assert authenticator.cookies == {}
    assert (await authenticator.ask("check")).status == 401


async def test_logout_ends_local_session_while_provider_is_unavailable(
    authenticator: AuthenticatorProcess, provider: OidcProvider
) -> None:
    provider.away = True
    await authenticator.serving(provider, after_logout="/bye")
    gone = await authenticator.ask("logout")
    assert gone.location == f"{ORIGIN}/bye"


async def test_front_channel_logout_ends_session(
    authenticator: AuthenticatorProcess, provider: OidcProvider
) -> None:
    await authenticator.serving(provider)
    await authenticator.log_in(provider)
    cookies = dict(authenticator.cookies)
    wrong = await authenticator.ask("ended", "/ended?iss=https://other.example&sid=s-1")
    assert wrong.status == 400
    assert (await authenticator.ask("check")).status == 200
    assert (await authenticator.ask("ended", f"/ended?iss={provider.issuer}&sid=s-1")).status == 200
    assert authenticator.cookies == {}
    authenticator.cookies = cookies
    assert (await authenticator.ask("check")).status == 401
    await authenticator.log_in(provider)
    assert (await authenticator.ask("check")).status == 200


async def test_unavailable_provider_blocks_logins_and_keeps_sessions(
    authenticator: AuthenticatorProcess, provider: OidcProvider
) -> None:
    await authenticator.serving(provider)
    await authenticator.log_in(provider)
    provider.away = True
    await authenticator.serving(provider, name="q", scopes=("openid", "email"))
    assert (await authenticator.ask("check", name="q")).status == 200
    cookies, authenticator.cookies = authenticator.cookies, {}
    answers = [await authenticator.ask("login", name="q") for _ in range(5)]
    assert {answer.status for answer in answers} == {503}
    assert (await authenticator.ask("check", name="q")).status == 401
    # It is left alone for a while.
    assert provider.counted("/.well-known/openid-configuration") == 2
    (line,) = authenticator.log.splitlines()
    assert "filter shop/users: the provider is not available: " in line
    assert "unexpected status 502" in line
    provider.away = False

    async def redirected() -> bool:
        return (await authenticator.ask("login", name="q")).status == 302

    await until(redirected)
    authenticator.cookies = cookies


async def test_provider_with_wrong_issuer_or_ca_is_rejected(
    authenticator: AuthenticatorProcess, provider: OidcProvider
) -> None:
    party = relying_party(provider, issuer="https://127.0.0.1:1")
    assert (
        await authenticator.serve(authenticator.configuration(party, trust=provider.authority))
        == ""
    )
    assert (await authenticator.ask("login")).status == 503
    assert "the issuer is" in authenticator.log
    other = authenticator.configuration(relying_party(provider, name="q"))
    assert "filter shop/users: trust.pem: " in await authenticator.serve(other)


async def test_sessions_survive_restart(tmp_path: Path, provider: OidcProvider) -> None:
    async with running(tmp_path) as authenticator:
        await authenticator.serving(provider)
        begun = await authenticator.ask("login")
        await authenticator.log_in(provider)
        authenticator.process.send_signal(signal.SIGKILL)
        authenticator.process.wait()
        authenticator.start()
        await authenticator.serving(provider)
        assert (await authenticator.ask("check")).status == 200
        # So does a login that has begun.
        back = await authenticator.at_provider(provider, begun.location)
        assert (await authenticator.ask("callback", back.removeprefix(ORIGIN))).status == 302


async def test_session_of_another_relying_party_is_rejected(
    authenticator: AuthenticatorProcess, provider: OidcProvider
) -> None:
    await authenticator.serving(provider)
    await authenticator.log_in(provider)
    parties = [
        relying_party(provider, name="r1", filter="shop/others"),
        relying_party(provider, name="r2"),
    ]
    configuration = authenticator.configuration(*parties, trust=provider.authority)
    assert await authenticator.serve(configuration) == ""
    assert (await authenticator.ask("check", name="r1")).status == 401
    assert (await authenticator.ask("check", name="r2")).status == 200
    changed = authenticator.configuration(
        relying_party(provider, name="r3"), secret="new", trust=provider.authority
    )
    assert await authenticator.serve(changed) == ""
    assert (await authenticator.ask("check", name="r3")).status == 401


async def test_session_too_large_for_cookies_is_rejected(
    authenticator: AuthenticatorProcess, provider: OidcProvider
) -> None:
    await authenticator.serving(provider, backend_claims=("groups",))
    provider.user = {"sub": "a", "groups": ["staff" * 100] * 10}
    assert (await authenticator.log_in(provider)).status == 302
    assert {"SESSION", "SESSION_1"} <= set(authenticator.cookies)
    assert (await authenticator.ask("check")).status == 200
    provider.user = {"sub": "a", "groups": ["staff" * 100] * 40}
    assert (await authenticator.log_in(provider)).status == 500
    assert "too long for cookies" in authenticator.log


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


async def test_unreachable_and_untrusted_providers_are_logged(
    authenticator: AuthenticatorProcess, provider: OidcProvider, tmp_path: Path
) -> None:
    nobody = relying_party(provider, metadata_url="https://127.0.0.1:1/")
    other = Authority(tmp_path).pem.decode()
    configurations = [
        authenticator.configuration(nobody, trust=provider.authority),
        authenticator.configuration(relying_party(provider, name="q"), trust=other),
    ]
    assert await authenticator.serve(*configurations) == ""
    for name in ("p", "q"):
        assert (await authenticator.ask("login", name=name)).status == 503
    one, another = authenticator.log.splitlines()
    assert "127.0.0.1:1/: connect call failed" in one
    assert "the certificate is not trusted: " in another


async def test_revoked_certificate_is_not_trusted(
    authenticator: AuthenticatorProcess, provider: OidcProvider
) -> None:
    configurations = [
        authenticator.configuration(
            relying_party(provider, name=name, revoked="revoked.pem"),
            trust=provider.authority,
            revoked=provider.revocations(its_own=its_own),
        )
        for name, its_own in (("p", False), ("q", True))
    ]
    assert await authenticator.serve(*configurations) == ""
    assert (await authenticator.ask("login", name="p")).status == 302
    assert (await authenticator.ask("login", name="q")).status == 503
    assert "the certificate is not trusted: certificate revoked" in authenticator.log


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
