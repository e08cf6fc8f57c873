"""What becomes of a question: answered from memory, or asked once for all who wait for it."""

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
from gatehouse.sidecars.reviewer.impersonation import Permission
from gatehouse.sidecars.reviewer.metrics import Kind, Measuring
from gatehouse.sidecars.reviewer.review_client import UnavailableError, Upstream
from gatehouse.sidecars.reviewer.reviews import Verdict
from gatehouse.sidecars.reviewer.user_headers import User

MAX_CONCURRENT_PERMISSIONS = 8
"""Permissions of one question that are asked about at a time, after the name's."""

_Answer = tuple[Verdict, float]
"""What was said, and for how many seconds it is still good."""


class CachingReviewer:
    """Answers by asking clusters as little as may be."""

    def __init__(self, upstream: Upstream, turns: ClusterLimiter) -> None:
        self.memories = {
            "tokens": TTLCache(),
            # Apart, so that made-up tokens drive out each other only.
            "refused": TTLCache(),
            "access": TTLCache(),
        }
        self.measuring = Measuring(self.memories, lambda: turns.asked, lambda: upstream.retries)
        self._upstream, self._turns = upstream, turns
        self._key = os.urandom(32)
        self._flights: dict[bytes, asyncio.Task[tuple[Verdict, float]]] = {}

    async def token(self, cluster: str, token: str, keep: CacheTTLs) -> _Answer:
        """Say whose a token is. Raises UnavailableError or BusyError."""
        memories = self.memories["tokens"], self.memories["refused"]
        key = self._digest("token", cluster, token)

        def read(body: bytes) -> Verdict:
            return reviews.token_verdict(body, tokens.expiry(token))

        async def ask() -> Verdict:
            return await self._upstream.review(
                cluster, reviews.TOKEN, reviews.of_token(token), read
            )

        return await self._answer(cluster, "token", key, memories, keep, ask)

    async def impersonation(
        self, cluster: str, client: User, wanted: User, keep: CacheTTLs
    ) -> _Answer:
        """Say whether a client may be taken for another; all that is needed must be allowed.

        Raises UnavailableError, BusyError, or MalformedError if it is too much.
        """
        first, *others = impersonation.permissions(wanted)
        # Most who may not may nothing of it: they are not to cost more than one question.
        groups = [[first]]
        groups += [
            others[at : at + MAX_CONCURRENT_PERMISSIONS]
            for at in range(0, len(others), MAX_CONCURRENT_PERMISSIONS)
        ]
        shortest = keep.good
        for group in groups:
            asked = [self._permission(cluster, client, each, keep) for each in group]
            answers = await asyncio.gather(*asked, return_exceptions=True)
            for needed, answer in zip(group, answers, strict=True):
                if isinstance(answer, BaseException):
                    raise answer
                verdict, left = answer
                if not verdict.granted:
                    said = impersonation.refusal(client, needed, verdict.reason)
                    return Verdict(False, reason=said), left
                shortest = min(shortest, left)
        return Verdict(True), shortest

    def sweep(self) -> None:
        """Forget what is good no more."""
        for memory in self.memories.values():
            memory.sweep()

    async def _permission(
        self, cluster: str, client: User, needed: Permission, keep: CacheTTLs
    ) -> _Answer:
        memories = self.memories["access"], self.memories["access"]
        key = self._digest("access", cluster, client, needed)

        async def ask() -> Verdict:
            body = reviews.of_permission(client, needed)
            return await self._upstream.review(
                cluster, reviews.ACCESS, body, reviews.access_verdict
            )

        return await self._answer(cluster, "access", key, memories, keep, ask)

    async def _answer(
        self,
        cluster: str,
        kind: Kind,
        key: bytes,
        memories: tuple[TTLCache, TTLCache],
        keep: CacheTTLs,
        ask: Callable[[], Awaitable[Verdict]],
    ) -> _Answer:
        """Answer from the memories of what was granted and refused, or by asking."""
        for memory in memories:
            if found := memory.get(key, keep):
                self.measuring.hit(cluster, kind)
                return found
        flight = self._flights.get(key)
        if flight is None:
            flight = asyncio.create_task(self._ask(cluster, kind, ask))
            self._flights[key] = flight
            flight.add_done_callback(lambda _: self._flights.pop(key, None))
        verdict, asked = await asyncio.shield(flight)
        memory, other = memories if verdict.granted else reversed(memories)
        # What was said before is not to be believed again by who would keep it longer.
        other.forget(key)
        memory.put(key, verdict, asked, keep)
        return verdict, max(0.0, memory.left(verdict, asked, keep))

    async def _ask(
        self, cluster: str, kind: Kind, ask: Callable[[], Awaitable[Verdict]]
    ) -> tuple[Verdict, float]:
        """Have a cluster asked in its turn; gives the moment from which the answer counts, too."""
        begun, outcome = time.monotonic(), "failed"
        try:
            async with self._turns.acquire(cluster):
                asked = time.monotonic()
                verdict = await ask()
            outcome = "granted" if verdict.granted else "refused"
        except BusyError:
            outcome = "busy"
            raise
        finally:
            self.measuring.reviewed(cluster, kind, outcome, time.monotonic() - begun)
        return verdict, asked

    def _digest(self, *parts: object) -> bytes:
        """Name a question by what nobody can read a token from."""
        return hashlib.blake2b(
            msgspec.msgpack.encode(parts), key=self._key, digest_size=32
        ).digest()


__all__ = ["CachingReviewer", "BusyError", "UnavailableError"]
