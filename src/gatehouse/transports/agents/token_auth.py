"""Who an agent is by its token: reviewed once, remembered by its hash for at most a minute."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable

import msgspec

REMEMBERED_SECONDS = 60.0
"""How long a review holds, and so how long a revoked token may still be used."""

REVIEWS_MAX = 32
"""Reviews at once: thousands of agents that connect at one moment must not flood who reviews."""


class Identity(msgspec.Struct, frozen=True):
    """Who an agent is, by its token or by its certificate."""

    gateway: str
    """``namespace/name`` of the Gateway whose data plane it is part of; of a machine outside, what
    asks for it: ``ExternalLoadBalancer namespace/name``."""
    instance: str
    """Name of its Pod, or of the machine."""
    owner: str = ""
    """``namespace_name`` of its Deployment, as agents call it in their labels; empty: not known."""
    expires: float = 0.0
    """When, in seconds since the epoch, it is nobody any more; 0: whoever vouches is asked anew."""


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


class _Review:
    """One that is waited for, by however many calls."""

    def __init__(self, work: asyncio.Task[Identity]) -> None:
        self.work = work
        self.awaited_by = 0


class TokenReviews:
    """Remembers good reviews, so that fetching a thousand files costs one review."""

    def __init__(self, authenticate: Authenticate, clock: Callable[[], float]) -> None:
        self._authenticate = authenticate
        self._clock = clock
        self._known: dict[bytes, tuple[float, Identity]] = {}
        """Until when, in this order; by the token's hash."""
        self._reviews: dict[bytes, _Review] = {}
        self._slots = asyncio.Semaphore(REVIEWS_MAX)

    async def identify(self, metadata: Iterable[tuple[str, str | bytes]]) -> Identity:
        """Give the caller's identity; raises :class:`Denied` or :class:`Unavailable`."""
        token = token_in(metadata)
        key = hashlib.sha256(token.encode()).digest()
        found = self._known.get(key)
        if found is not None and self._clock() < found[0]:
            return found[1]
        review = self._reviews.get(key)
        if review is None:
            review = self._reviews[key] = _Review(asyncio.create_task(self._review(key, token)))
        review.awaited_by += 1
        try:
            # One call that is given up must not end the review that others wait for.
            return await asyncio.shield(review.work)
        finally:
            review.awaited_by -= 1
            if not review.awaited_by:
                review.work.cancel()
                self._reviews.pop(key, None)

    async def _review(self, key: bytes, token: str) -> Identity:
        async with self._slots:
            identity = await self._authenticate(token)
        self._remember(key, identity)
        return identity

    def _remember(self, key: bytes, identity: Identity) -> None:
        now = self._clock()
        self._known.pop(key, None)
        while self._known and now >= self._known[oldest := next(iter(self._known))][0]:
            del self._known[oldest]
        self._known[key] = (now + REMEMBERED_SECONDS, identity)
