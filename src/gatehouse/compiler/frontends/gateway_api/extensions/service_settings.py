"""Settings of Services as backends: the field ``backend`` of a TrafficPolicy. No I/O."""

from __future__ import annotations

import math
import re

from gatehouse.apis import traffic_policies as api
from gatehouse.compiler.frontends.gateway_api.extensions.nginx_values import parse_count
from gatehouse.compiler.frontends.gateway_api.extensions.policy_fields import FieldParser
from gatehouse.compiler.frontends.gateway_api.extensions.portable_values import (
    HASH_KEYS,
    duration_seconds,
    named_value,
    positive_count,
    positive_seconds,
    request_attribute,
)
from gatehouse.compiler.frontends.gateway_api.routes import durations
from gatehouse.compiler.ir import settings as ir
from gatehouse.compiler.ir.settings import Balancing

_METHODS = {
    "RoundRobin": Balancing(),
    "LeastConnections": Balancing("least-connections"),
    "Random": Balancing("random"),
    "Hash": Balancing("hash", consistent=True),
}
BALANCING_METHODS = tuple(_METHODS)

_BREAKER = "backend.circuitBreaker"

MAX_FAILURES = 1000
"""Maximum number of failures before an endpoint is ejected."""

EJECTION_TIME = "10s"
MIN_EJECTION_TIME, MAX_EJECTION_TIME = "1s", "1h"
CHECK_PATH_PATTERN = r"/[!-~]{0,255}"
"""Path of checks: visible ASCII characters."""

CHECK_INTERVAL, MIN_CHECK_INTERVAL, MAX_CHECK_INTERVAL = "10s", "10s", "1h"
CHECK_TIMEOUT, MIN_CHECK_TIMEOUT, MAX_CHECK_TIMEOUT = "2s", "100ms", "10s"
CHECK_FAILURES, CHECK_SUCCESSES, MAX_CHECKS = 3, 1, 100


def service_settings(parse: FieldParser, backend: api.TrafficBackendSpec) -> ir.UpstreamSettings:
    """Return the settings of the clusters of a Service."""
    keep_alive, place = backend.keep_alive, "backend.keepAlive"
    balancing, key = None, None
    if backend.load_balancing is not None:
        field, chosen = "backend.loadBalancing", backend.load_balancing
        balancing = named_value(parse, f"{field}.method", _METHODS, chosen.method)
        key = request_attribute(parse, f"{field}.hashKey", HASH_KEYS, chosen.hash_key)
        if (chosen.method == "Hash") != (chosen.hash_key is not None):
            parse.problems.append(f"spec.{field}.hashKey: must be set for method Hash only")
    connections, breaker = keep_alive.max_idle_connections, backend.circuit_breaker
    parse.limit(f"{place}.maxIdleConnections", "keepAliveConnections", connections)
    return ir.UpstreamSettings(
        balancing=balancing,
        key=key,
        connections=parse(f"{place}.maxIdleConnections", parse_count, connections),
        requests=parse(f"{place}.maxRequests", positive_count, keep_alive.max_requests),
        lifetime=parse(f"{place}.maxLifetime", positive_seconds, keep_alive.max_lifetime),
        idle=parse(f"{place}.idleTimeout", positive_seconds, keep_alive.idle_timeout),
        breaker=_circuit_breaker(parse, breaker),
        endpoint_connections=parse(
            f"{_BREAKER}.maxConnectionsPerEndpoint",
            positive_count,
            breaker.max_connections_per_endpoint,
        ),
        passive_checks=_passive_checks(parse, backend.health_checks.passive),
        active_checks=_active_checks(parse, backend.health_checks.active),
    )


def _circuit_breaker(parse: FieldParser, spec: api.CircuitBreakerSpec) -> ir.CircuitBreaker | None:
    breaker = ir.CircuitBreaker(
        parse(f"{_BREAKER}.maxConnections", positive_count, spec.max_connections),
        parse(f"{_BREAKER}.maxPendingRequests", positive_count, spec.max_pending_requests),
        parse(f"{_BREAKER}.maxParallelRequests", positive_count, spec.max_parallel_requests),
    )
    return breaker if breaker != ir.CircuitBreaker() else None


def _passive_checks(
    parse: FieldParser, spec: api.PassiveHealthCheckSpec | None
) -> ir.PassiveChecks | None:
    if spec is None:
        return None
    place = "backend.healthChecks.passive"
    if not 1 <= spec.max_failures <= MAX_FAILURES:
        parse.problems.append(f"spec.{place}.maxFailures: must be from 1 to {MAX_FAILURES}")
    field, limits = f"{place}.ejectionTime", (MIN_EJECTION_TIME, MAX_EJECTION_TIME)
    seconds = _seconds_within(parse, field, spec.ejection_time or EJECTION_TIME, *limits)
    # NGINX has no parts of seconds here.
    return ir.PassiveChecks(spec.max_failures, float(math.ceil(seconds)))


def _active_checks(
    parse: FieldParser, spec: api.ActiveHealthCheckSpec | None
) -> ir.ActiveChecks | None:
    if spec is None:
        return None
    place = "backend.healthChecks.active"
    if not re.fullmatch(CHECK_PATH_PATTERN, spec.path):
        parse.problems.append(f"spec.{place}.path: must match {CHECK_PATH_PATTERN}")
    failures = CHECK_FAILURES if spec.max_failures is None else spec.max_failures
    successes = CHECK_SUCCESSES if spec.min_successes is None else spec.min_successes
    for name, number in (("maxFailures", failures), ("minSuccesses", successes)):
        if not 1 <= number <= MAX_CHECKS:
            parse.problems.append(f"spec.{place}.{name}: must be from 1 to {MAX_CHECKS}")
    intervals = MIN_CHECK_INTERVAL, MAX_CHECK_INTERVAL
    timeouts = MIN_CHECK_TIMEOUT, MAX_CHECK_TIMEOUT
    return ir.ActiveChecks(
        spec.path,
        _seconds_within(parse, f"{place}.interval", spec.interval or CHECK_INTERVAL, *intervals),
        _seconds_within(parse, f"{place}.timeout", spec.timeout or CHECK_TIMEOUT, *timeouts),
        failures,
        successes,
    )


def _seconds_within(parse: FieldParser, field: str, text: str, least: str, most: str) -> float:
    """Return a duration in seconds. Record a problem unless it is between two others."""
    seconds = parse(field, duration_seconds, text)
    if seconds is None:
        return 0.0
    limits = durations.parse_duration(least) or 0.0, durations.parse_duration(most) or 0.0
    if not limits[0] <= seconds <= limits[1]:
        parse.problems.append(f"spec.{field}: must be from {least} to {most}")
    return seconds
