"""Reviews with a cache and single-flight: concurrent equal requests cause one review."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import Awaitable, Callable

import msgspec

from gatehouse.sidecars.reviewer import impersonation, reviews, tokens
from gatehouse.sidecars.reviewer.cache import CacheTTLs, TTLCache
from gatehouse.sidecars.reviewer.concurrency import BusyError, ClusterLimiter
from gatehouse.sidecars.reviewer.impersonation import ImpersonationPermission
from gatehouse.sidecars.reviewer.metrics import ReviewKind, ReviewMetrics
from gatehouse.sidecars.reviewer.review_client import ReviewClient
from gatehouse.sidecars.reviewer.reviews import Verdict
from gatehouse.sidecars.reviewer.user_headers import ReviewedUser

MAX_CONCURRENT_PERMISSIONS = 8
"""Maximum number of permissions of one request that are reviewed at a time, after the name's."""

_Answer = tuple[Verdict, float]
"""A verdict and its remaining time in seconds."""


class CachingReviewer:
    """Answers requests with as few reviews as possible."""

    def __init__(self, upstream: ReviewClient, limiter: ClusterLimiter) -> None:
        self.caches = {
            "tokens": TTLCache(),
            # Separate, so that invalid tokens evict only each other.
            "refused": TTLCache(),
            "access": TTLCache(),
        }
        self.metrics = ReviewMetrics(self.caches, lambda: limiter.active, lambda: upstream.retries)
        self._upstream, self._limiter = upstream, limiter
        self._key = os.urandom(32)
        self._flights: dict[bytes, asyncio.Task[tuple[Verdict, float]]] = {}

    async def token(self, cluster: str, token: str, keep: CacheTTLs) -> _Answer:
        """Return the user of a token. Raises ReviewUnavailableError or BusyError."""
        caches = self.caches["tokens"], self.caches["refused"]
        key = self._digest("token", cluster, token)

        def read(body: bytes) -> Verdict:
            return reviews.token_verdict(body, tokens.expiry(token))

        async def ask() -> Verdict:
            return await self._upstream.review(
                cluster, reviews.TOKEN, reviews.of_token(token), read
            )

        return await self._cached_review(cluster, "token", key, caches, keep, ask)

    async def impersonation(
        self, cluster: str, client: ReviewedUser, target: ReviewedUser, keep: CacheTTLs
    ) -> _Answer:
        """Return whether a client may impersonate a user, which requires all permissions.

        Raises ReviewUnavailableError, BusyError, or MalformedHeaderError for too many permissions.
        """
        first, *others = impersonation.permissions(target)
        # Most denied clients lack every permission, so the first review alone decides.
        groups = [[first]]
        groups += [
            others[at : at + MAX_CONCURRENT_PERMISSIONS]
            for at in range(0, len(others), MAX_CONCURRENT_PERMISSIONS)
        ]
        shortest = keep.good
        for group in groups:
            checks = [self._permission(cluster, client, permission, keep) for permission in group]
            results = await asyncio.gather(*checks, return_exceptions=True)
            for needed, result in zip(group, results, strict=True):
                if isinstance(result, BaseException):
                    raise result
                verdict, remaining = result
                if not verdict.granted:
                    reason = impersonation.denial(client, needed, verdict.reason)
                    return Verdict(False, reason=reason), remaining
                shortest = min(shortest, remaining)
        return Verdict(True), shortest

    def sweep(self) -> None:
        """Remove expired verdicts."""
        for cache in self.caches.values():
            cache.sweep()

    async def _permission(
        self, cluster: str, client: ReviewedUser, needed: ImpersonationPermission, keep: CacheTTLs
    ) -> _Answer:
        caches = self.caches["access"], self.caches["access"]
        key = self._digest("access", cluster, client, needed)

        async def ask() -> Verdict:
            body = reviews.of_permission(client, needed)
            return await self._upstream.review(
                cluster, reviews.ACCESS, body, reviews.access_verdict
            )

        return await self._cached_review(cluster, "access", key, caches, keep, ask)

    async def _cached_review(
        self,
        cluster: str,
        kind: ReviewKind,
        key: bytes,
        caches: tuple[TTLCache, TTLCache],
        keep: CacheTTLs,
        ask: Callable[[], Awaitable[Verdict]],
    ) -> _Answer:
        """Return a verdict from the caches of granted and denied verdicts, or from a review."""
        for cache in caches:
            if cached := cache.get(key, keep):
                self.metrics.hit(cluster, kind)
                return cached
        flight = self._flights.get(key)
        if flight is None:
            flight = asyncio.create_task(self._review(cluster, kind, ask))
            self._flights[key] = flight
            flight.add_done_callback(lambda _: self._flights.pop(key, None))
        verdict, started = await asyncio.shield(flight)
        cache, other = caches if verdict.granted else reversed(caches)
        # An older, opposite verdict must not be used by a request with a longer TTL.
        other.forget(key)
        cache.put(key, verdict, started, keep)
        return verdict, max(0.0, cache.remaining(verdict, started, keep))

    async def _review(
        self, cluster: str, kind: ReviewKind, ask: Callable[[], Awaitable[Verdict]]
    ) -> tuple[Verdict, float]:
        """Run a review within the cluster's limit. Return the verdict and the time of its
        request."""
        begun, outcome = time.monotonic(), "failed"
        try:
            async with self._limiter.acquire(cluster):
                started = time.monotonic()
                verdict = await ask()
            outcome = "granted" if verdict.granted else "refused"
        except BusyError:
            outcome = "busy"
            raise
        finally:
            self.metrics.reviewed(cluster, kind, outcome, time.monotonic() - begun)
        return verdict, started

    def _digest(self, *parts: object) -> bytes:
        """Return a keyed digest of a request, from which a token cannot be derived."""
        return hashlib.blake2b(
            msgspec.msgpack.encode(parts), key=self._key, digest_size=32
        ).digest()
