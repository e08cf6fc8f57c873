"""TrafficPolicy of ``gatehouse.dev``: settings of traffic that do not depend on the proxy."""

from __future__ import annotations

from gatehouse.apis.meta import View
from gatehouse.apis.nginx_gateway import TargetsPolicy, TargetsSpec


class KeepAliveSpec(View, frozen=True):
    """Keep-alive connections."""

    max_requests: int | None = None
    max_lifetime: str | None = None
    idle_timeout: str | None = None


class BackendKeepAliveSpec(KeepAliveSpec, frozen=True):
    """Keep-alive connections to endpoints."""

    max_idle_connections: int | None = None


class ClientSpec(View, frozen=True):
    """Limits towards clients."""

    max_body_size: str | int | None = None
    max_header_size: str | int | None = None
    body_timeout: str | None = None
    keep_alive: KeepAliveSpec = KeepAliveSpec()


class TimeoutsSpec(View, frozen=True):
    """Timeouts towards backends."""

    connect: str | None = None
    send: str | None = None
    read: str | None = None


class RequestAttributeSpec(View, frozen=True):
    """An attribute of a request."""

    type: str
    name: str = ""


class RequestRateSpec(View, frozen=True):
    """A request rate for each value of a key."""

    requests: int
    per: str
    burst: int = 0
    key: RequestAttributeSpec | None = None


class RateRulesSpec(View, frozen=True):
    """Rates that are counted by each instance on its own, or by all together."""

    rules: tuple[RequestRateSpec, ...] = ()


class RateLimitSettingsSpec(View, frozen=True):
    """Rate limits, and the response to requests above them."""

    local: RateRulesSpec = RateRulesSpec()
    shared: RateRulesSpec = RateRulesSpec()
    status_code: int | None = None
    dry_run: bool | None = None


class LoadBalancingSpec(View, frozen=True):
    """Choice of the endpoint for a request."""

    method: str
    hash_key: RequestAttributeSpec | None = None


class CircuitBreakerSpec(View, frozen=True):
    """Limits of a backend, beyond which requests are rejected."""

    max_connections: int | None = None
    max_pending_requests: int | None = None
    max_parallel_requests: int | None = None
    max_connections_per_endpoint: int | None = None


class PassiveHealthCheckSpec(View, frozen=True):
    """Ejection of endpoints that requests do not reach."""

    max_failures: int
    ejection_time: str | None = None


class ActiveHealthCheckSpec(View, frozen=True):
    """Requests of the proxy itself that find out which endpoints work."""

    path: str = "/"
    interval: str | None = None
    timeout: str | None = None
    max_failures: int | None = None
    min_successes: int | None = None


class HealthChecksSpec(View, frozen=True):
    """Health of endpoints, besides their readiness."""

    passive: PassiveHealthCheckSpec | None = None
    active: ActiveHealthCheckSpec | None = None


class TrafficBackendSpec(View, frozen=True):
    """Settings of a Service as a backend."""

    load_balancing: LoadBalancingSpec | None = None
    keep_alive: BackendKeepAliveSpec = BackendKeepAliveSpec()
    circuit_breaker: CircuitBreakerSpec = CircuitBreakerSpec()
    health_checks: HealthChecksSpec = HealthChecksSpec()


class ResponseCompressionSpec(View, frozen=True):
    """Compression of responses."""

    mode: str
    types: tuple[str, ...] = ()
    min_length: int | None = None


class RetriesSpec(View, frozen=True):
    """Retries of requests whose rule sets none."""

    attempts: int
    codes: tuple[int, ...] = ()
    backoff: str | None = None


class TrafficPolicySpec(TargetsSpec, frozen=True, kw_only=True):
    """``spec`` of a TrafficPolicy."""

    client: ClientSpec | None = None
    timeouts: TimeoutsSpec | None = None
    response_buffering: str | None = None
    compression: ResponseCompressionSpec | None = None
    retries: RetriesSpec | None = None
    rate_limit: RateLimitSettingsSpec | None = None
    backend: TrafficBackendSpec | None = None


class TrafficPolicy(TargetsPolicy, frozen=True):
    """A TrafficPolicy."""

    spec: TrafficPolicySpec = TrafficPolicySpec()
