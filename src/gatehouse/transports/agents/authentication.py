"""Who a token belongs to: reviewed once, remembered by its hash for at most a minute."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable

import msgspec

REMEMBERED_SECONDS = 60.0
"""How long a review holds, and so how long a revoked token may still be used."""


class Identity(msgspec.Struct, frozen=True):
    """Who an agent is, by its token."""

    gateway: str
    """``namespace/name`` of the Gateway whose data plane it is part of."""
    instance: str
    """Name of its Pod."""
    owner: str = ""
    """``namespace_name`` of its Deployment, as agents call it in their labels; empty: not known."""


class Denied(Exception):
    """The token is definitely not one of ours."""


class Unavailable(Exception):
    """Whose the token is cannot be told now; the agent is to try again."""


Authenticate = Callable[[str], Awaitable[Identity]]
"""Gives the identity behind a token; raises :class:`Denied` or :class:`Unavailable`."""


def token_in(metadata: Iterable[tuple[str, str | bytes]]) -> str:
    """Give the token of a call: the field's agent sends it bare, others after ``Bearer``.

    Raises :class:`Denied` if there is none.
    """
    for key, value in metadata:
        if key == "authorization":
            text = value.decode("ascii", "replace") if isinstance(value, bytes) else value
            token = text.removeprefix("Bearer ").strip()
            if token:
                return token
    raise Denied("the call carries no token in its metadata 'authorization'")


class TokenReviews:
    """Remembers good reviews, so that fetching a thousand files costs one review."""

    def __init__(self, authenticate: Authenticate, clock: Callable[[], float]) -> None:
        self._authenticate = authenticate
        self._clock = clock
        self._known: dict[bytes, tuple[float, Identity]] = {}

    async def identify(self, metadata: Iterable[tuple[str, str | bytes]]) -> Identity:
        """Give the caller's identity; raises :class:`Denied` or :class:`Unavailable`."""
        token = token_in(metadata)
        key = hashlib.sha256(token.encode()).digest()
        found = self._known.get(key)
        if found is not None and self._clock() < found[0]:
            return found[1]
        identity = await self._authenticate(token)
        now = self._clock()
        self._known = {key: entry for key, entry in self._known.items() if now < entry[0]}
        self._known[key] = (now + REMEMBERED_SECONDS, identity)
        return identity
