"""Prometheus metrics of the rate limit service."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)

_NAME = "gatehouse_ratelimit"


class ServiceMetrics:
    """Counts results. There are no labels for cluster names, because clients choose them."""

    def __init__(self, is_available: Callable[[], bool]) -> None:
        """``is_available`` returns whether Redis is available."""
        self.registry = CollectorRegistry()
        up = Gauge(f"{_NAME}_redis_up", "1 if Redis responds, else 0.", registry=self.registry)
        up.set_function(is_available)
        self._draws = Counter(
            f"{_NAME}_requests",
            "Checked descriptors: passed, over the limit, or unlimited (Redis unavailable).",
            ("result",),
            registry=self.registry,
        )
        for result in ("passed", "over", "unlimited"):
            self._draws.labels(result)
        self._malformed = Counter(
            f"{_NAME}_malformed_requests",
            "Requests with descriptors that name no limit.",
            registry=self.registry,
        )
        self._failures = Counter(
            f"{_NAME}_redis_errors", "Failed Redis commands.", registry=self.registry
        )
        self._seconds = Histogram(
            f"{_NAME}_request_duration_seconds",
            "Duration of requests.",
            buckets=_BUCKETS,
            registry=self.registry,
        )

    def drawn(self, result: str) -> None:
        """Count one take request: ``passed``, ``over`` or ``unlimited``."""
        self._draws.labels(result).inc()

    def malformed(self) -> None:
        """Count an invalid request."""
        self._malformed.inc()

    def failed(self) -> None:
        """Count a failure of Redis."""
        self._failures.inc()

    def answered(self, seconds: float) -> None:
        """Record the duration of a request in seconds."""
        self._seconds.observe(seconds)
