"""Counters of failed attempts at endpoints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from gatehouse.agent.nginx.failed_attempts import FailedAttempt
from gatehouse.runtime.prometheus import Sample

MAX_COUNTED_ENDPOINTS = 1000
"""Maximum number of endpoints with counters. Failures of further endpoints are not counted."""


class EndpointFailures:
    """Counters of failed attempts since the start of the agent."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()
        """Numbers by endpoint and reason."""
        self._endpoints: set[str] = set()

    def count(self, attempts: Iterable[FailedAttempt]) -> None:
        """Count failed attempts."""
        for attempt in attempts:
            endpoint = attempt.endpoint
            known = endpoint in self._endpoints
            if endpoint and (known or len(self._endpoints) < MAX_COUNTED_ENDPOINTS):
                self._endpoints.add(endpoint)
                self._counts[endpoint, attempt.reason] += 1

    def samples(self) -> Iterator[Sample]:
        """Yield the counters."""
        name = "gatehouse_agent_endpoint_failures"
        help_ = "Failed attempts of NGINX at endpoints by reason, from its error log."
        for (endpoint, reason), number in self._counts.items():
            labels = {"endpoint": endpoint, "reason": reason}
            yield Sample(name, help_, number, "counter", labels)
