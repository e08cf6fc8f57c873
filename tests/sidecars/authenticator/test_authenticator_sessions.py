"""Sessions of the authenticator: refresh, logout, expiry, restart."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from fakes.authenticator_process import (
    ORIGIN,
    AuthenticatorProcess,
    query_of,
    relying_party,
    running,
)
from fakes.oidc_provider import CLIENT, ENDS_AT_ONCE, OidcProvider
from fakes.patience import until

pytestmark = pytest.mark.process


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
        relying_party(provider, name="r1", owner="shop/others"),
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
