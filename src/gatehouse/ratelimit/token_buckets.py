"""Drawing from buckets in Redis: what comes at once goes there together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from importlib import resources
from typing import Any

import msgspec
import redis.asyncio
import structlog
from redis.exceptions import NoScriptError

from gatehouse.ratelimit.descriptors import TakeRequest
from gatehouse.ratelimit.metrics import Measuring
from gatehouse.ratelimit.redis_health import RedisHealth

log = structlog.get_logger("gatehouse.counter")

SCRIPT = (resources.files("gatehouse.ratelimit") / "bucket.lua").read_text(encoding="utf-8")

BATCH_SIZE = 256
"""Draws in one message to Redis."""

MAX_CONCURRENT_BATCHES = 4
"""Messages to Redis at a time: the next ones need not wait for the way there and back."""


class TakeResult(msgspec.Struct, frozen=True):
    """What came of a draw."""

    passed: bool
    left: int
    """Whole tokens."""
    wait: float
    """Seconds until there will be enough; 0 if there were."""


class TokenBuckets:
    """All buckets. While Redis is away nothing is counted, and nobody waits for it."""

    def __init__(
        self, client: redis.asyncio.Redis, prefix: str, seconds: float, measuring: Measuring
    ) -> None:
        """``prefix``: of all keys; ``seconds``: in which Redis must answer."""
        self.outages = RedisHealth(time.monotonic)
        self._client = client
        self._prefix = prefix
        self._seconds = seconds
        self._measuring = measuring
        self._sha = ""
        self._queue: asyncio.Queue[tuple[TakeRequest, asyncio.Future[TakeResult | None]]] = (
            asyncio.Queue()
        )
        self._away = asyncio.Event()

    async def take(self, draw: TakeRequest) -> TakeResult | None:
        """Draw; None: nobody knows, since Redis is away."""
        if self.outages.since is not None:
            return None
        found: asyncio.Future[TakeResult | None] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait((draw, found))
        return await found

    async def run(self) -> None:
        """Take draws to Redis, and look for it while it is away, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(MAX_CONCURRENT_BATCHES):
                group.create_task(self._lane())
            group.create_task(self._look())

    async def probe(self) -> bool:
        """See whether Redis can do what is needed of it."""
        nothing = TakeRequest("probe", 1, 1, 0)
        try:
            async with asyncio.timeout(self._seconds):
                await self._all([nothing])
        except Exception as error:
            self._failed(error)
            return False
        away = self.outages.answered()
        if away is not None:
            log.info("redis is back; limits hold again", seconds=round(away, 1))
        return True

    async def _lane(self) -> None:
        while True:
            batch = [await self._queue.get()]
            while len(batch) < BATCH_SIZE and not self._queue.empty():
                batch.append(self._queue.get_nowait())
            results: Sequence[TakeResult | None] = [None] * len(batch)
            try:
                if self.outages.since is None:
                    async with asyncio.timeout(self._seconds):
                        results = await self._all([draw for draw, _ in batch])
            except Exception as error:
                # Whatever it is: nobody waits for an answer that does not come.
                self._failed(error)
            finally:
                for (_, found), result in zip(batch, results, strict=True):
                    if not found.done():
                        found.set_result(result)

    async def _look(self) -> None:
        while True:
            await self._away.wait()
            self._away.clear()
            while self.outages.since is not None:
                await asyncio.sleep(self.outages.pause)
                await self.probe()

    async def _all(self, draws: Sequence[TakeRequest]) -> list[TakeResult]:
        """Draw. May raise anything; what was drawn by then stays so."""
        try:
            return await self._sent(draws)
        except NoScriptError:
            # It was never told, or began anew; it says so of the first, and has done none.
            self._sha = await self._client.script_load(SCRIPT)
            return await self._sent(draws)

    async def _sent(self, draws: Sequence[TakeRequest]) -> list[TakeResult]:
        async with self._client.pipeline(transaction=False) as pipe:
            for each in draws:
                key = f"{self._prefix}:{each.bucket}"
                pipe.evalsha(self._sha or "0" * 40, 1, key, each.rate, each.burst, each.wanted)
            results: list[Any] = await pipe.execute()
        return [TakeResult(bool(passed), left, wait / 1000) for passed, left, wait in results]

    def _failed(self, error: Exception) -> None:
        self._measuring.failed()
        if self.outages.failed():
            reason = str(error) or f"no answer within {self._seconds:g} s"
            log.warning("redis is away; nothing is limited by it", reason=reason)
            self._away.set()
