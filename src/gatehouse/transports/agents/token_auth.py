"""Authentication of agents by token. Reviews are cached by the token's hash for at most a
minute."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable

import msgspec

REVIEW_TTL_SECONDS = 60.0
"""Lifetime of a cached review in seconds. A revoked token may be used for this time."""

MAX_CONCURRENT_TOKEN_REVIEWS = 32
"""Maximum number of concurrent reviews, because thousands of agents may connect at once."""


class Identity(msgspec.Struct, frozen=True):
    """Identity of an agent, proved by its token or certificate."""

    gateway: str
    """``namespace/name`` of the Gateway whose data plane it belongs to. For an external machine:
    ``ExternalLoadBalancer namespace/name``."""
    instance: str
    """Name of its Pod or machine."""
    owner: str = ""
    """``namespace_name`` of its Deployment, the form of agents' labels; empty if unknown."""
    expires: float = 0.0
    """Expiry in seconds since the epoch; 0 if the identity is checked again with each review."""


class Denied(Exception):
    """The credential is definitely not valid."""


class AuthenticationUnavailable(Exception):
    """The credential cannot be checked now; the agent should retry."""


Authenticate = Callable[[str], Awaitable[Identity]]
"""Returns the identity of a token. Raises :class:`Denied` or :class:`AuthenticationUnavailable`."""


def token_in(metadata: Iterable[tuple[str, str | bytes]]) -> str:
    """Return the token of a call. NGINX Agent sends it bare, others after ``Bearer``.

    Raises :class:`Denied` if there is none.
    """
    for key, value in metadata:
        if key == "authorization":
            text = value.decode("ascii", "replace") if isinstance(value, bytes) else value
            token = text.removeprefix("Bearer ").strip()
            if token:
                return token
    raise Denied("metadata 'authorization': token not found")


class _Review:
    """A review in progress and the number of calls that wait for it."""

    def __init__(self, task: asyncio.Task[Identity]) -> None:
        self.task = task
        self.waiters = 0


class TokenReviews:
    """Cache of successful reviews, so that fetching a thousand files costs one review."""

    def __init__(self, authenticate: Authenticate, clock: Callable[[], float]) -> None:
        self._authenticate = authenticate
        self._clock = clock
        self._cache: dict[bytes, tuple[float, Identity]] = {}
        """Expiry and identity by the token's hash, in the order of expiry."""
        self._reviews: dict[bytes, _Review] = {}
        self._slots = asyncio.Semaphore(MAX_CONCURRENT_TOKEN_REVIEWS)

    async def identify(self, metadata: Iterable[tuple[str, str | bytes]]) -> Identity:
        """Return the caller's identity.

        Raises :class:`Denied` or :class:`AuthenticationUnavailable`.
        """
        token = token_in(metadata)
        key = hashlib.sha256(token.encode()).digest()
        cached = self._cache.get(key)
        if cached is not None and self._clock() < cached[0]:
            return cached[1]
        review = self._reviews.get(key)
        if review is None:
            review = self._reviews[key] = _Review(asyncio.create_task(self._review(key, token)))
        review.waiters += 1
        try:
            # A cancelled call must not cancel a review that other calls wait for.
            return await asyncio.shield(review.task)
        finally:
            review.waiters -= 1
            if not review.waiters:
                review.task.cancel()
                self._reviews.pop(key, None)

    async def _review(self, key: bytes, token: str) -> Identity:
        async with self._slots:
            identity = await self._authenticate(token)
        self._remember(key, identity)
        return identity

    def _remember(self, key: bytes, identity: Identity) -> None:
        now = self._clock()
        self._cache.pop(key, None)
        while self._cache and now >= self._cache[oldest := next(iter(self._cache))][0]:
            del self._cache[oldest]
        self._cache[key] = (now + REVIEW_TTL_SECONDS, identity)
