"""Sessions and started logins: their stored state and lifetimes. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from gatehouse.sidecars.authenticator.config import Party
from gatehouse.sidecars.authenticator.cookie_cipher import CookieCipher

LOGIN_SECONDS = 600
"""Time in seconds in which a user must log in at the provider."""


class LoginSession(msgspec.Struct, frozen=True, array_like=True):
    """A logged-in user."""

    subject: str
    begun: float
    """Login time in Unix seconds."""
    ends: float
    """Expiry in Unix seconds, unless it is refreshed."""
    fresh: float
    """Expiry of the provider's confirmation in Unix seconds. After it, the session is refreshed or
    ends."""
    claims: dict[str, Any]
    """Claims used by rules or headers."""
    sid: str = ""
    """Session ID of the provider."""
    refresh: str = ""
    """Refresh token; empty for none."""
    id_token: str = ""
    """ID token, stored if it must be sent to the provider at logout."""
    id: str = ""
    """Random ID of the login; refreshed sessions keep it. Empty in cookies of older versions."""


class Login(msgspec.Struct, frozen=True, array_like=True):
    """State of a login while the user is at the provider."""

    nonce: str
    verifier: str
    """PKCE code verifier (RFC 7636); empty if PKCE is not used."""
    target: str
    """Path to return to."""
    begun: float


_State = TypeVar("_State", LoginSession, Login)


class SessionCodec:
    """Encrypts sessions and logins for cookies, and decrypts them."""

    def __init__(self, party: Party, secret: bytes) -> None:
        self._cipher = CookieCipher(secret, party.owner, party.issuer, party.client_id)
        # The purpose includes the claims: older sessions do not contain newly required ones.
        self._session_purpose = "\0".join(("session", str(party.token_hint), *sorted(party.claims)))

    def session(self, text: str) -> LoginSession | None:
        """Decrypt a session. Return None if it is not valid for this party."""
        return self._decrypt(LoginSession, self._session_purpose, text)

    def login(self, state: str, text: str) -> Login | None:
        """Decrypt the login with this ``state``. Return None if it is not valid."""
        return self._decrypt(Login, f"login\0{state}", text)

    def encode_session(self, session: LoginSession) -> str:
        """Encrypt a session."""
        return self._cipher.encrypt(self._session_purpose, msgspec.msgpack.encode(session))

    def encode_login(self, state: str, login: Login) -> str:
        """Encrypt a login."""
        return self._cipher.encrypt(f"login\0{state}", msgspec.msgpack.encode(login))

    def _decrypt(self, kind: type[_State], purpose: str, text: str) -> _State | None:
        content = self._cipher.decrypt(purpose, text)
        try:
            return None if content is None else msgspec.msgpack.decode(content, type=kind)
        except msgspec.MsgspecError:
            return None


def new_session(
    party: Party,
    claims: Mapping[str, Any],
    now: float,
    fresh: float,
    refresh: str,
    token: str,
    login_id: str = "",
) -> LoginSession:
    """Build the session of a user who has just logged in with the random ID ``login_id``."""
    return LoginSession(
        subject=claims["sub"],
        begun=now,
        ends=now + party.timeout,
        fresh=fresh,
        claims={name: claims[name] for name in sorted(party.claims) if name in claims},
        sid=str(claims.get("sid", "")),
        refresh=refresh,
        id_token=token if party.token_hint else "",
        id=login_id,
    )
