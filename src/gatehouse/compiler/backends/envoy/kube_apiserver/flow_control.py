"""Flow control: limits of flow schemas, per Envoy and shared by all."""

from __future__ import annotations

from collections.abc import Iterator

from envoy.config.route.v3 import route_components_pb2 as components
from envoy.extensions.filters.http.local_ratelimit.v3 import local_rate_limit_pb2
from envoy.type.v3 import token_bucket_pb2

from gatehouse.compiler.backends.envoy import quoting, shared_limits
from gatehouse.compiler.backends.envoy.protobufs import wrap_number
from gatehouse.compiler.ir import kube_apiserver as ir

BUCKET = "envoy.filters.http.local_ratelimit"

_MAX_TOKENS = 2**32 - 1


def limit_filters(cluster: ir.ApiCluster) -> Iterator[str]:
    """Yield the filters that the limits of a cluster need."""
    if any(isinstance(schema.limit, ir.TokenBucket) for schema in cluster.schemas):
        yield BUCKET
    if any(schema.shared is not None for schema in cluster.schemas):
        yield shared_limits.SHARED_LIMIT_FILTER


def idle_bucket() -> local_rate_limit_pb2.LocalRateLimit:
    """Return the token bucket filter, which permits everything on routes without one."""
    return local_rate_limit_pb2.LocalRateLimit(stat_prefix="kube")


def bucket(limit: ir.TokenBucket) -> local_rate_limit_pb2.LocalRateLimit:
    """Return the token bucket of a schema: shared by all workers, full at start."""
    # Envoy fills it continuously, by so many tokens per interval.
    proto = local_rate_limit_pb2.LocalRateLimit(
        stat_prefix="kube",
        token_bucket=token_bucket_pb2.TokenBucket(
            max_tokens=min(max(limit.burst, 1), _MAX_TOKENS),
            tokens_per_fill=wrap_number(min(max(limit.rate, 1), _MAX_TOKENS)),
            fill_interval=quoting.duration_of(1.0),
        ),
    )
    proto.filter_enabled.default_value.numerator = 100
    proto.filter_enforced.default_value.numerator = 100
    return proto


def shared_limit(cluster: str, schema: str, limit: ir.TokenBucket) -> components.RateLimit:
    """Return the descriptor that a route sends to the rate limit service for this limit."""
    entries = {
        "cluster": cluster, "schema": schema, "rate": str(limit.rate), "burst": str(limit.burst),
    }  # fmt: skip
    return shared_limits.descriptor(entries)


def limit_message(cluster: ir.ApiCluster, schema: ir.FlowSchema) -> str:
    """Return the message of the response to a rejected request."""
    match schema.limit:
        case ir.InFlight(max_requests):
            # A share follows the traffic, and this text is part of routes.
            total = schema.divided.total if schema.divided else max_requests
            size = f"type=MaxRequestsInflight,size={total}"
        case ir.TokenBucket(rate, burst):
            size = f"type=TokenBucket,qps={rate},burst={burst}"
    return (
        f"too many requests for cluster({cluster.name}), "
        f"limited by flowControl(name={schema.name},{size})"
    )
