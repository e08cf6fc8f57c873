"""Flow control of a server: a seat for each request, and metrics named as in kube-apiserver."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import AsyncIterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from kube_api_server.errors import StatusError
from kube_api_server.fairness.schemas import EXEMPT, SHARES, Flow
from kube_api_server.fairness.seats import SeatPool, SeatRejectedError

RETRY_AFTER_SECONDS = 1
"""Value of Retry-After in responses 429."""

_FLOW = ("priority_level", "flow_schema")
_SECONDS = (0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0)


def too_many_requests(message: str = "") -> StatusError:
    """Build a 429."""
    text = message or "Too many requests, please try again later."
    error = StatusError(429, "TooManyRequests", text)
    error.retry_after = RETRY_AFTER_SECONDS
    return error


class RequestFlowControl:
    """Seats of all priority levels."""

    def __init__(self, seats: int, registry: CollectorRegistry) -> None:
        """`seats` is the number of requests that run concurrently on all levels together."""
        total = sum(SHARES.values())
        self.pools = {
            level: SeatPool(-(-seats * share // total)) for level, share in SHARES.items()
        }
        self._queued = Gauge(
            "apiserver_flowcontrol_current_inqueue_requests",
            "Requests that wait for a seat.",
            _FLOW,
            registry=registry,
        )
        self._executing = Gauge(
            "apiserver_flowcontrol_current_executing_requests",
            "Requests that hold seats.",
            _FLOW,
            registry=registry,
        )
        self._rejected = Counter(
            "apiserver_flowcontrol_rejected_requests",
            "Requests that got no seat, by reason.",
            (*_FLOW, "reason"),
            registry=registry,
        )
        self._dispatched = Counter(
            "apiserver_flowcontrol_dispatched_requests",
            "Requests that got a seat.",
            _FLOW,
            registry=registry,
        )
        self._waited = Histogram(
            "apiserver_flowcontrol_request_wait_duration_seconds",
            "Time in seconds that requests waited for a seat.",
            (*_FLOW, "execute"),
            buckets=_SECONDS,
            registry=registry,
        )
        self._add_gauges(registry)

    def _add_gauges(self, registry: CollectorRegistry) -> None:
        nominal = Gauge(
            "apiserver_flowcontrol_nominal_limit_seats",
            "Seats of a priority level.",
            ("priority_level",),
            registry=registry,
        )
        used = Gauge(
            "apiserver_flowcontrol_current_executing_seats",
            "Seats in use.",
            ("priority_level",),
            registry=registry,
        )
        for level, pool in self.pools.items():
            nominal.labels(level).set(pool.seats)
            used.labels(level).set_function(functools.partial(getattr, pool, "used"))

    def reject(self, flow: Flow, reason: str, message: str = "") -> StatusError:
        """Count a rejection. Return its error."""
        self._rejected.labels(flow.level, flow.schema, reason).inc()
        return too_many_requests(message)

    @contextlib.asynccontextmanager
    async def seat(self, flow: Flow, seats: int = 1) -> AsyncIterator[None]:
        """Hold seats inside the context. Raises ApiError 429."""
        labels = (flow.level, flow.schema)
        async with contextlib.AsyncExitStack() as stack:
            if flow.level != EXEMPT:
                await self._wait(stack, flow, seats)
            self._dispatched.labels(*labels).inc()
            with self._executing.labels(*labels).track_inprogress():
                yield

    async def _wait(self, stack: contextlib.AsyncExitStack, flow: Flow, seats: int) -> None:
        """Enter the pool of the level. Raises ApiError 429."""
        labels, started = (flow.level, flow.schema), time.perf_counter()
        pool, executed = self.pools[flow.level], "false"
        try:
            with self._queued.labels(*labels).track_inprogress():
                await stack.enter_async_context(pool.occupied(flow.name, seats))
            executed = "true"
        except SeatRejectedError as error:
            raise self.reject(flow, error.reason) from error
        finally:
            waited = time.perf_counter() - started
            self._waited.labels(*labels, executed).observe(waited)
