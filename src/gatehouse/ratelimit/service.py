"""Envoy's rate limit protocol (``envoy.service.ratelimit.v3.RateLimitService``)."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import grpc
import structlog
from envoy.service.ratelimit.v3 import rls_pb2, rls_pb2_grpc

from gatehouse.ratelimit import descriptors
from gatehouse.ratelimit.descriptors import MalformedError, TakeRequest
from gatehouse.ratelimit.metrics import Measuring
from gatehouse.ratelimit.token_buckets import TakeResult, TokenBuckets

log = structlog.get_logger("gatehouse.counter")

SERVICE = "envoy.service.ratelimit.v3.RateLimitService"

LOG_INTERVAL_SECONDS = 60.0
"""A request that is malformed is said so often at most: there is one like it for each of users'."""

_Response = rls_pb2.RateLimitResponse
_Limit = _Response.RateLimit


class RateLimitService(rls_pb2_grpc.RateLimitServiceServicer):  # type: ignore[misc] # has no types
    """Answers who asks. What cannot be counted passes: data planes have limits of their own."""

    def __init__(self, buckets: TokenBuckets, measuring: Measuring) -> None:
        self._buckets = buckets
        self._measuring = measuring
        self._said = 0.0

    async def ShouldRateLimit(  # the protocol's
        self, request: Any, context: grpc.aio.ServicerContext[Any, Any]
    ) -> Any:
        """Say whether a request is over any of its limits."""
        begun = time.monotonic()
        try:
            wanted = descriptors.draws(request)
        except MalformedError as error:
            self._refused(str(error), context.peer())
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        found = await asyncio.gather(*map(self._buckets.take, wanted))
        statuses = [self._status(*each) for each in zip(wanted, found, strict=True)]
        over = any(each.code == _Response.OVER_LIMIT for each in statuses)
        self._measuring.answered(time.monotonic() - begun)
        return _Response(
            overall_code=_Response.OVER_LIMIT if over else _Response.OK, statuses=statuses
        )

    def _status(self, draw: TakeRequest, drawn: TakeResult | None) -> Any:
        if drawn is None:
            self._measuring.drawn("unlimited")
            return _Response.DescriptorStatus(code=_Response.OK)
        self._measuring.drawn("passed" if drawn.passed else "over")
        made = _Response.DescriptorStatus(
            code=_Response.OK if drawn.passed else _Response.OVER_LIMIT,
            current_limit=_Limit(requests_per_unit=draw.rate, unit=_Limit.SECOND),
            limit_remaining=drawn.left,
        )
        made.duration_until_reset.FromMilliseconds(round(drawn.wait * 1000))
        return made

    def _refused(self, reason: str, peer: str) -> None:
        self._measuring.malformed()
        now = time.monotonic()
        if not self._said or now - self._said > LOG_INTERVAL_SECONDS:
            self._said = now
            log.warning("malformed request", reason=reason, peer=peer)
