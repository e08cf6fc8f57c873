"""Sessions, and logins that have begun: what of them is kept, and until when. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from gatehouse.sidecars.authenticator.config import Party
from gatehouse.sidecars.authenticator.cookie_cipher import CookieCipher

LOGIN_SECONDS = 600
"""How long a user may take to log in at the provider."""


class Session(msgspec.Struct, frozen=True, array_like=True):
    """Who is logged in."""

    subject: str
    begun: float
    """When the user logged in."""
    ends: float
    """When it is over, unless it is refreshed."""
    fresh: float
    """Until when the provider vouches for it; then it is refreshed, or over."""
    claims: dict[str, Any]
    """Those that anything asks for."""
    sid: str = ""
    """What the provider calls it."""
    refresh: str = ""
    """The token to refresh it with; empty for none."""
    id_token: str = ""
    """Kept if the provider is to be told it at a logout."""


class Login(msgspec.Struct, frozen=True, array_like=True):
    """What is remembered while a user is at the provider."""

    nonce: str
    verifier: str
    """Of PKCE (RFC 7636); empty if it is not used."""
    target: str
    """Where to return."""
    begun: float


_Kept = TypeVar("_Kept", Session, Login)


class SessionCodec:
    """Turns sessions and logins into text for cookies, and back."""

    def __init__(self, party: Party, secret: bytes) -> None:
        self._seal = CookieCipher(secret, party.filter, party.issuer, party.client_id)
        # What is newly asked for is not in sessions of before.
        self._session = "\0".join(("session", str(party.token_hint), *sorted(party.claims)))

    def session(self, text: str) -> Session | None:
        """Read a session; None for what is none of this party's."""
        return self._opened(Session, self._session, text)

    def login(self, state: str, text: str) -> Login | None:
        """Read the login that is called ``state``."""
        return self._opened(Login, f"login\0{state}", text)

    def encode_session(self, session: Session) -> str:
        """Write a session."""
        return self._seal.encrypt(self._session, msgspec.msgpack.encode(session))

    def encode_login(self, state: str, login: Login) -> str:
        """Write a login."""
        return self._seal.encrypt(f"login\0{state}", msgspec.msgpack.encode(login))

    def _opened(self, kind: type[_Kept], purpose: str, text: str) -> _Kept | None:
        content = self._seal.decrypt(purpose, text)
        try:
            return None if content is None else msgspec.msgpack.decode(content, type=kind)
        except msgspec.MsgspecError:
            return None


def new_session(
    party: Party, claims: Mapping[str, Any], now: float, fresh: float, refresh: str, token: str
) -> Session:
    """Give the session of a user who has just logged in."""
    return Session(
        subject=claims["sub"],
        begun=now,
        ends=now + party.timeout,
        fresh=fresh,
        claims={name: claims[name] for name in sorted(party.claims) if name in claims},
        sid=str(claims.get("sid", "")),
        refresh=refresh,
        id_token=token if party.token_hint else "",
    )
