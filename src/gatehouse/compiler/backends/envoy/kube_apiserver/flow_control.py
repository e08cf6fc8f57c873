"""How much: the limits of flow schemas, each in this Envoy, and those of all Envoys together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from envoy.config.core.v3 import grpc_service_pb2
from envoy.config.route.v3 import route_components_pb2 as components
from envoy.extensions.filters.http.local_ratelimit.v3 import local_rate_limit_pb2
from envoy.extensions.filters.http.ratelimit.v3 import rate_limit_pb2
from envoy.type.v3 import token_bucket_pb2

from gatehouse.compiler.backends.envoy import names, quoting
from gatehouse.compiler.backends.envoy.protobufs import number
from gatehouse.compiler.ir import kube_apiserver as ir

BUCKET = "envoy.filters.http.local_ratelimit"
SHARED = "envoy.filters.http.ratelimit"

RATE_LIMIT_TIMEOUT_SECONDS = 0.3
"""Seconds to wait for the shared counter; after it, the limit of one data plane is all."""

_MOST = 2**32 - 1


def filters(cluster: ir.ApiCluster) -> Iterator[str]:
    """Give the filters that the requests of a cluster need, for its limits."""
    if any(isinstance(each.limit, ir.TokenBucket) for each in cluster.schemas):
        yield BUCKET
    if any(each.shared is not None for each in cluster.schemas):
        yield SHARED


def idle_bucket() -> Any:
    """Give the filter of buckets, which lets all through where no route has one."""
    return local_rate_limit_pb2.LocalRateLimit(stat_prefix="kube")


def bucket(limit: ir.TokenBucket) -> Any:
    """Give the bucket of a schema: one for all workers, full at first."""
    # Envoy fills it all the time, so many in each interval.
    made = local_rate_limit_pb2.LocalRateLimit(
        stat_prefix="kube",
        token_bucket=token_bucket_pb2.TokenBucket(
            max_tokens=min(max(limit.burst, 1), _MOST),
            tokens_per_fill=number(min(max(limit.rate, 1), _MOST)),
            fill_interval=quoting.seconds(1.0),
        ),
    )
    made.filter_enabled.default_value.numerator = 100
    made.filter_enforced.default_value.numerator = 100
    return made


def shared_filter(counter: str) -> Any:
    """Give the filter that asks the shared counter, for routes that say of what."""
    made = rate_limit_pb2.RateLimit(
        domain="gatehouse",
        timeout=quoting.seconds(RATE_LIMIT_TIMEOUT_SECONDS),
        disable_x_envoy_ratelimited_header=True,
    )
    service = made.rate_limit_service
    service.grpc_service.CopyFrom(
        grpc_service_pb2.GrpcService(
            envoy_grpc=grpc_service_pb2.GrpcService.EnvoyGrpc(cluster_name=names.counter(counter)),
            timeout=quoting.seconds(RATE_LIMIT_TIMEOUT_SECONDS),
        )
    )
    service.transport_api_version = 2
    return made


def shared_limit(cluster: str, schema: str, limit: ir.TokenBucket) -> Any:
    """Give what the shared counter is asked."""
    made = components.RateLimit()
    entries = {
        "cluster": cluster, "schema": schema, "rate": str(limit.rate), "burst": str(limit.burst),
    }  # fmt: skip
    for key, value in entries.items():
        made.actions.add().generic_key.CopyFrom(
            components.RateLimit.Action.GenericKey(
                descriptor_key=key, descriptor_value=quoting.text(value)
            )
        )
    return made


def refusal(cluster: ir.ApiCluster, schema: ir.FlowSchema) -> str:
    """Say what a refused client is told."""
    match schema.limit:
        case ir.InFlight(most):
            size = f"type=MaxRequestsInflight,size={most}"
        case ir.TokenBucket(rate, burst):
            size = f"type=TokenBucket,qps={rate},burst={burst}"
    return (
        f"too many requests for cluster({cluster.name}), "
        f"limited by flowControl(name={schema.name},{size})"
    )
