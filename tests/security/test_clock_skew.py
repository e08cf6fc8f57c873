"""Clock skew: the clocks of API servers, agents and external machines differ by some minutes.

Tokens and certificates must be valid from the start on every machine, and not before that or after
their expiry by more than the tolerance.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography import x509

from gatehouse.standalone import pki
from kube_api_server.identity import service_account_tokens
from kube_api_server.identity.service_account_tokens import ServiceAccountTokens
from kube_api_server.identity.signing_keys import Keys, SigningKey, new_key
from kube_api_server.storage import factory
from kube_api_server.storage.store import ObjectStore

ACCOUNT = {"metadata": {"name": "a", "namespace": "d", "uid": "1"}}
SKEWS = [-240, -60, 0, 60, 240]


@pytest.fixture
async def store(tmp_path: Path) -> Any:
    opened = await factory.open_store(str(tmp_path / "db"))
    await opened.put("/core/serviceaccounts/d/a", ACCOUNT, 0)
    yield opened
    await opened.close()


@pytest.fixture
def keys() -> Keys:
    result = Keys()
    result._keys = [SigningKey(new_key(), 1)]
    return result


class Clock:
    """Clock of the server in use, in seconds since 1970."""

    now = 0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> type[Clock]:
    Clock.now = int(datetime.now(UTC).timestamp())

    class FakeTime(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> FakeTime:
            return cls.fromtimestamp(Clock.now, tz)

    monkeypatch.setattr(service_account_tokens, "clock", lambda: Clock.now)
    monkeypatch.setattr("jwt.api_jwt.datetime", FakeTime)
    return Clock


@pytest.mark.parametrize("skew", SKEWS)
async def test_new_token_is_valid_on_a_server_with_another_clock(
    store: ObjectStore, keys: Keys, clock: type[Clock], skew: int
) -> None:
    token, _ = ServiceAccountTokens(keys, store).issue(ACCOUNT, {})
    clock.now += skew
    assert not isinstance(ServiceAccountTokens(keys, store).check(token, []), str)


async def test_token_of_the_far_future_is_rejected(
    store: ObjectStore, keys: Keys, clock: type[Clock]
) -> None:
    token, _ = ServiceAccountTokens(keys, store).issue(ACCOUNT, {})
    clock.now -= 310
    assert "check the clocks" in str(ServiceAccountTokens(keys, store).check(token, []))


@pytest.mark.parametrize(("late", "valid"), [(30, True), (70, False)])
async def test_expired_token_is_rejected_after_a_minute(
    store: ObjectStore, keys: Keys, clock: type[Clock], late: int, valid: bool
) -> None:
    verifier = ServiceAccountTokens(keys, store)
    token, expires = verifier.issue(ACCOUNT, {"expirationSeconds": 600})
    verifier.check(token, [])
    clock.now = expires + late
    for tokens in (verifier, ServiceAccountTokens(keys, store)):
        assert isinstance(tokens.check(token, []), str) is not valid


async def test_other_verifiers_accept_a_new_token_before_its_issue(
    store: ObjectStore, keys: Keys
) -> None:
    """Verifiers with the public keys have a leeway of their own, or none."""
    token, _ = ServiceAccountTokens(keys, store).issue(ACCOUNT, {})
    claims = jwt.decode(token, options={"verify_signature": False})
    assert claims["iat"] - claims["nbf"] == 300


def test_new_certificates_are_valid_on_machines_with_another_clock(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    installed = pki.Pki(tmp_path / "pki")
    installed.ensure(now=now)
    machine = tmp_path / "machine"
    channel = tmp_path / "channel"
    channel.mkdir()
    pki.ensure_channel(channel, ["controller"], [], now)
    pki.ensure_machine(channel, machine, "spiffe://x/m", now)
    paths = list(tmp_path.rglob("*.crt"))
    assert len(paths) == 10
    for path in paths:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        for skew in SKEWS:
            when = now + timedelta(seconds=skew)
            assert certificate.not_valid_before_utc <= when <= certificate.not_valid_after_utc
