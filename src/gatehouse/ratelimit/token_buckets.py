"""Token buckets in Redis. Concurrent requests are sent in batches."""

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
from gatehouse.ratelimit.metrics import ServiceMetrics
from gatehouse.ratelimit.redis_health import RedisHealth

log = structlog.get_logger("gatehouse.counter")

_SCRIPT = (resources.files("gatehouse.ratelimit") / "bucket.lua").read_text(encoding="utf-8")

BATCH_SIZE = 256
"""Maximum number of take requests in one message to Redis."""

MAX_CONCURRENT_BATCHES = 4
"""Maximum number of messages to Redis at a time, to hide the round-trip time."""


class TakeResult(msgspec.Struct, frozen=True):
    """Result of a take request."""

    passed: bool
    left: int
    """Whole tokens left."""
    wait: float
    """Seconds until there are enough tokens; 0 if there were."""


class TokenBuckets:
    """All token buckets. While Redis is unavailable, empty is counted and no request waits for
    it."""

    def __init__(
        self, client: redis.asyncio.Redis, prefix: str, seconds: float, metrics: ServiceMetrics
    ) -> None:
        """``prefix`` is that of all keys; ``seconds`` is the timeout of a Redis request."""
        self.outages = RedisHealth(time.monotonic)
        self._client = client
        self._prefix = prefix
        self._seconds = seconds
        self._metrics = metrics
        self._sha = ""
        self._queue: asyncio.Queue[tuple[TakeRequest, asyncio.Future[TakeResult | None]]] = (
            asyncio.Queue()
        )
        self._outage_started = asyncio.Event()

    async def take(self, request: TakeRequest) -> TakeResult | None:
        """Take tokens. Return None if the result is unknown because Redis is unavailable."""
        if self.outages.since is not None:
            return None
        result: asyncio.Future[TakeResult | None] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait((request, result))
        return await result

    async def run(self) -> None:
        """Send take requests to Redis, and probe it while it is unavailable, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(MAX_CONCURRENT_BATCHES):
                group.create_task(self._send_batches())
            group.create_task(self._probe_during_outages())

    async def probe(self) -> bool:
        """Return whether Redis can execute take requests."""
        empty = TakeRequest("probe", 1, 1, 0)
        try:
            async with asyncio.timeout(self._seconds):
                await self._execute([empty])
        except Exception as error:
            self._failed(error)
            return False
        outage = self.outages.answered()
        if outage is not None:
            log.info("redis available, limits enforced", seconds=round(outage, 1))
        return True

    async def _send_batches(self) -> None:
        while True:
            batch = [await self._queue.get()]
            while len(batch) < BATCH_SIZE and not self._queue.empty():
                batch.append(self._queue.get_nowait())
            results: Sequence[TakeResult | None] = [None] * len(batch)
            try:
                if self.outages.since is None:
                    async with asyncio.timeout(self._seconds):
                        results = await self._execute([request for request, _ in batch])
            except Exception as error:
                # Any error: requests must not wait for a response that never comes.
                self._failed(error)
            finally:
                for (_, future), result in zip(batch, results, strict=True):
                    if not future.done():
                        future.set_result(result)

    async def _probe_during_outages(self) -> None:
        while True:
            await self._outage_started.wait()
            self._outage_started.clear()
            while self.outages.since is not None:
                await asyncio.sleep(self.outages.pause)
                await self.probe()

    async def _execute(self, requests: Sequence[TakeRequest]) -> list[TakeResult]:
        """Execute take requests. May raise any exception; tokens taken before that stay taken."""
        try:
            return await self._send(requests)
        except NoScriptError:
            # Redis does not have the script, or restarted. The first command fails, so none was
            # executed.
            self._sha = await self._client.script_load(_SCRIPT)
            return await self._send(requests)

    async def _send(self, requests: Sequence[TakeRequest]) -> list[TakeResult]:
        async with self._client.pipeline(transaction=False) as pipe:
            for request in requests:
                key = f"{self._prefix}:{request.bucket}"
                limit = (request.rate, request.burst, request.tokens, request.seconds)
                pipe.evalsha(self._sha or "0" * 40, 1, key, *limit)
            results: list[Any] = await pipe.execute()
        return [TakeResult(bool(passed), left, wait / 1000) for passed, left, wait in results]

    def _failed(self, error: Exception) -> None:
        self._metrics.failed()
        if self.outages.failed():
            reason = str(error) or f"no response within {self._seconds:g} s"
            log.warning("redis unavailable, limits not enforced", reason=reason)
            self._outage_started.set()
