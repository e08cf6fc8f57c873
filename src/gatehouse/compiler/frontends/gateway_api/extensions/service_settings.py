"""Settings of Services as backends: the field ``backend`` of a TrafficPolicy. No I/O."""

from __future__ import annotations

from gatehouse.apis import traffic_policies as api
from gatehouse.compiler.frontends.gateway_api.extensions.nginx_values import parse_count
from gatehouse.compiler.frontends.gateway_api.extensions.policy_fields import FieldParser
from gatehouse.compiler.frontends.gateway_api.extensions.portable_values import (
    HASH_KEYS,
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
    )


def _circuit_breaker(parse: FieldParser, spec: api.CircuitBreakerSpec) -> ir.CircuitBreaker | None:
    breaker = ir.CircuitBreaker(
        parse(f"{_BREAKER}.maxConnections", positive_count, spec.max_connections),
        parse(f"{_BREAKER}.maxPendingRequests", positive_count, spec.max_pending_requests),
        parse(f"{_BREAKER}.maxParallelRequests", positive_count, spec.max_parallel_requests),
    )
    return breaker if breaker != ir.CircuitBreaker() else None
