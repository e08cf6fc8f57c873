"""Envoy's rate limit protocol (``envoy.service.ratelimit.v3.RateLimitService``)."""

from __future__ import annotations

import asyncio
import time
from typing import TypeAlias

import grpc
import structlog
from envoy.service.ratelimit.v3 import rls_pb2, rls_pb2_grpc

from gatehouse.ratelimit import descriptors
from gatehouse.ratelimit.descriptors import MalformedDescriptorError, TakeRequest
from gatehouse.ratelimit.metrics import ServiceMetrics
from gatehouse.ratelimit.token_buckets import TakeResult, TokenBuckets

log = structlog.get_logger("gatehouse.counter")

RATE_LIMIT_SERVICE = "envoy.service.ratelimit.v3.RateLimitService"

LOG_INTERVAL_SECONDS = 60.0
"""Minimum interval in seconds between log entries for malformed requests, because one may follow
each user request."""

_Response = rls_pb2.RateLimitResponse
_Limit = _Response.RateLimit

_Context: TypeAlias = (
    "grpc.aio.ServicerContext[rls_pb2.RateLimitRequest, rls_pb2.RateLimitResponse]"
)


class RateLimitService(rls_pb2_grpc.RateLimitServiceServicer):
    """The service. Requests that cannot be counted are allowed: data planes have local limits
    too."""

    def __init__(self, buckets: TokenBuckets, metrics: ServiceMetrics) -> None:
        self._buckets = buckets
        self._metrics = metrics
        self._logged_at = 0.0

    async def ShouldRateLimit(  # name of the protocol
        self, request: rls_pb2.RateLimitRequest, context: _Context
    ) -> rls_pb2.RateLimitResponse:
        """Return whether a request is over any of its limits."""
        begun = time.monotonic()
        try:
            takes = descriptors.take_requests(request)
        except MalformedDescriptorError as error:
            self._log_malformed(str(error), context.peer())
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        results = await asyncio.gather(*map(self._buckets.take, takes))
        statuses = [self._status(*entry) for entry in zip(takes, results, strict=True)]
        over = any(status.code == _Response.OVER_LIMIT for status in statuses)
        self._metrics.answered(time.monotonic() - begun)
        return _Response(
            overall_code=_Response.OVER_LIMIT if over else _Response.OK, statuses=statuses
        )

    def _status(
        self, take: TakeRequest, result: TakeResult | None
    ) -> rls_pb2.RateLimitResponse.DescriptorStatus:
        if result is None:
            self._metrics.drawn("unlimited")
            return _Response.DescriptorStatus(code=_Response.OK)
        self._metrics.drawn("passed" if result.passed else "over")
        status = _Response.DescriptorStatus(
            code=_Response.OK if result.passed else _Response.OVER_LIMIT,
            current_limit=_Limit(
                requests_per_unit=take.rate,
                unit=_Limit.SECOND if take.seconds == 1 else _Limit.MINUTE,
            ),
            limit_remaining=result.left,
        )
        status.duration_until_reset.FromMilliseconds(round(result.wait * 1000))
        return status

    def _log_malformed(self, reason: str, peer: str) -> None:
        self._metrics.malformed()
        now = time.monotonic()
        if not self._logged_at or now - self._logged_at > LOG_INTERVAL_SECONDS:
            self._logged_at = now
            log.warning("malformed request", reason=reason, peer=peer)
