"""Attacks on sessions of OpenID Connect: copied cookies, and logouts that anyone may send."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fakes.authenticator_process import AuthenticatorProcess
from fakes.authenticator_process import running as authenticator_process
from fakes.oidc_provider import ENDS_AT_ONCE, OidcProvider, oidc_provider
from gatehouse.sidecars.authenticator import ended_sessions
from gatehouse.sidecars.authenticator.ended_sessions import EndedSessions
from gatehouse.sidecars.authenticator.sessions import LoginSession


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[OidcProvider]:
    with oidc_provider(tmp_path / "pki") as result:
        yield result


@pytest.fixture
async def authenticator(
    tmp_path_factory: pytest.TempPathFactory, provider: OidcProvider
) -> AsyncIterator[AuthenticatorProcess]:
    # The path of a Unix socket is short.
    async with authenticator_process(tmp_path_factory.mktemp("a")) as result:
        yield result


@pytest.mark.process
@pytest.mark.parametrize("action", ["check", "admit"])
async def test_copied_cookie_ends_with_the_logout_of_its_user(
    authenticator: AuthenticatorProcess, provider: OidcProvider, action: str
) -> None:
    """A thief with a copy of a session cookie, after its user logged out: the copy is worth
    nothing, whether it is refreshed or not, and also after a change of the filter. Other sessions
    of the user go on."""
    expected = {"check": 401, "admit": 302}[action]
    provider.lifetime = 300
    await authenticator.serving(provider)
    await authenticator.log_in(provider)
    elsewhere = dict(authenticator.cookies)
    authenticator.cookies = {}
    await authenticator.log_in(provider)
    copy = dict(authenticator.cookies)
    assert (await authenticator.ask("logout")).status == 302
    for name in ("p", "q"):
        authenticator.cookies = dict(copy)
        assert (await authenticator.ask(action, name=name)).status == expected
        authenticator.cookies = dict(elsewhere)
        assert (await authenticator.ask(action, name=name)).status == 200
        # Another configuration of the filter can read the same cookies.
        await authenticator.serving(provider, name="q", scopes=("openid", "email"))


@pytest.mark.process
async def test_refreshed_copy_ends_with_the_logout_of_its_user(
    authenticator: AuthenticatorProcess, provider: OidcProvider
) -> None:
    """A thief who refreshes a copied cookie before its user logs out: both cookies end."""
    provider.lifetime = ENDS_AT_ONCE
    await authenticator.serving(provider)
    await authenticator.log_in(provider)
    cookies = dict(authenticator.cookies)
    provider.lifetime = 300
    assert (await authenticator.ask("check")).status == 200
    refreshed, authenticator.cookies = dict(authenticator.cookies), cookies
    assert refreshed != cookies
    await authenticator.ask("logout")
    for copy in (cookies, refreshed):
        authenticator.cookies = dict(copy)
        assert (await authenticator.ask("check")).status == 401


def session(number: int, begun: float = -1.0) -> LoginSession:
    return LoginSession("alice", begun, 1000.0, 100.0, {}, sid=f"sid-{number}", id=f"id-{number}")


def test_invented_logouts_do_not_displace_ended_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anyone, with unauthenticated logouts of invented sessions of any length: memory is bounded,
    and a session that really ended stays ended."""
    monkeypatch.setattr(ended_sessions, "MAX_UNKNOWN", 100)
    ended = EndedSessions()
    assert not ended.is_ended(session(1), now=1.0)
    ended.end("sid-1", now=2.0)
    ended.log_out(session(2), now=2.0)
    for number in range(10_000):
        ended.end(f"invented-{number}" + "x" * (number % 1000), now=3.0)
    assert len(ended) <= 103
    assert ended.is_ended(session(1), now=4.0)
    assert ended.is_ended(session(2), now=4.0)
    assert not ended.is_ended(session(3), now=4.0)


def test_flood_of_invented_logouts_costs_at_most_a_few_megabytes() -> None:
    """Anyone, with a million logouts of 32 KB each: what the authenticator stores has a limit."""
    ended = EndedSessions()
    for number in range(30_000):
        ended.end(f"{number}" * 5_000, now=1.0)
    assert len(ended) == ended_sessions.MAX_UNKNOWN
    assert all(len(digest) == 16 for digest in ended._unknown)


def test_logout_of_an_unknown_session_ends_it_where_it_arrives() -> None:
    """A provider, with a logout for a session that this replica has not seen yet: the session does
    not begin here, but a new login with the same ID does."""
    ended = EndedSessions()
    ended.end("sid-1", now=2.0)
    assert ended.is_ended(session(1, begun=1.0), now=3.0)
    assert not ended.is_ended(session(1, begun=2.5), now=3.0)


def test_ended_sessions_are_forgotten_when_their_cookies_have_expired() -> None:
    ended = EndedSessions()
    for number in range(100):
        assert not ended.is_ended(session(number), now=float(number))
        ended.end(f"sid-{number}", now=float(number))
        ended.log_out(session(number), now=float(number))
        ended.end(f"unknown-{number}", now=float(number))
    ended.expire(before=90.0)
    assert len(ended) == 40
    assert ended.is_ended(session(95), now=100.0)
