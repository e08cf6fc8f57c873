"""The authenticator with providers that reject, are away, or cannot be trusted."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import jwt
import pytest

from fakes.authenticator_process import (
    AuthenticatorProcess,
    relying_party,
)
from fakes.authority import Authority
from fakes.oidc_provider import CLIENT, OidcProvider
from fakes.patience import until

pytestmark = pytest.mark.process


@pytest.mark.parametrize("methods", [["client_secret_basic"], ["client_secret_post"]])
@pytest.mark.parametrize("pkce", [True, False])
async def test_code_is_exchanged_with_each_client_authentication_method(
    authenticator: AuthenticatorProcess, provider: OidcProvider, methods: list[str], pkce: bool
) -> None:
    provider.methods = methods
    await authenticator.serving(provider, pkce=pkce)
    assert (await authenticator.log_in(provider)).status == 302
    assert ("code_challenge" in provider.authorized[0]) is pkce


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
    await authenticator.serving(provider, owner=f"shop/{'-'.join(forged)}")
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
