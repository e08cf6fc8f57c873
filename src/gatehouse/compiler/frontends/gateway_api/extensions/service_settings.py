"""Settings of Services as backends: the field ``backend`` of a TrafficPolicy. No I/O."""

from __future__ import annotations

import math

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
_EJECTION_SECONDS, _MIN_EJECTION_SECONDS, _MAX_EJECTION_SECONDS = 10.0, 1.0, 3600.0


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
    ejection = parse(f"{place}.ejectionTime", duration_seconds, spec.ejection_time)
    seconds = _EJECTION_SECONDS if ejection is None else ejection
    if not _MIN_EJECTION_SECONDS <= seconds <= _MAX_EJECTION_SECONDS:
        limits = f"{MIN_EJECTION_TIME} to {MAX_EJECTION_TIME}"
        parse.problems.append(f"spec.{place}.ejectionTime: must be from {limits}")
    # NGINX has no parts of seconds here.
    return ir.PassiveChecks(spec.max_failures, float(math.ceil(seconds)))
