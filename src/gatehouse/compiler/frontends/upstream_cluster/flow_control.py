"""Translation of flow control schemas to limits of one data plane and shared limits.

Limits are shared by data planes if the schema's strategy asks for it and the object's feature gate
``GlobalRateLimiter`` is on, as in KubeGateway. ``globalMaxRequestsInflight`` is divided among the
connected data planes by their use (:mod:`shares`). ``globalTokenBucket`` is counted by the
rate limit service and replaces ``tokenBucket``, so that one data plane can use all of it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gatehouse.apis import upstream_clusters as api
from gatehouse.compiler.frontends.upstream_cluster.shares import even_share, minimum_share
from gatehouse.compiler.ir.kube_apiserver import DividedLimit, FlowSchema, InFlight, TokenBucket

REJECT_ALL = InFlight(0)
"""Limit that replaces an invalid one: rejects all requests."""

SPANNING = ("globalAllocate", "globalCount")


class SharedLimits(msgspec.Struct, frozen=True):
    """Inputs of shared limits."""

    gate: bool = False
    """The feature gate is on."""
    replicas: int = 1
    """Number of connected data planes."""
    counter: bool = False
    """A rate limit service is configured."""


LOCAL = SharedLimits()
"""No shared limits."""


class ReadSchema(msgspec.Struct, frozen=True):
    """Translation of a schema."""

    schema: FlowSchema | None
    """The limit; None for none."""
    problems: tuple[str, ...] = ()


class LimitAllocation(msgspec.Struct, frozen=True):
    """A limit that data planes share."""

    name: str
    strategy: str
    whole: InFlight | TokenBucket
    shares: Mapping[tuple[str, str], int] = {}
    """Shares of data planes; empty if the limit is counted for all together."""


def spread(schema: api.FlowControlSchema, spanning: SharedLimits) -> LimitAllocation | None:
    """Return the allocation of a schema's limit; None if each data plane has its own limit."""
    parsed = translate_schema(schema, spanning)
    if schema.strategy not in SPANNING or parsed.schema is None or parsed.problems:
        return None
    schema_limit = parsed.schema
    if schema_limit.shared is not None:
        return LimitAllocation(schema.name, schema.strategy, schema_limit.shared)
    if schema_limit.divided is not None:
        return LimitAllocation(schema.name, schema.strategy, InFlight(schema_limit.divided.total))
    return None


def spans(schema: api.FlowControlSchema) -> bool:
    """Return whether a schema has a limit that is divided among data planes."""
    return schema.global_max_requests_inflight is not None and schema.strategy in SPANNING


def translate_schema(schema: api.FlowControlSchema, spanning: SharedLimits) -> ReadSchema:
    """Translate a schema. An invalid one rejects all requests."""
    limits = (schema.exempt, schema.max_requests_inflight, schema.token_bucket)
    if sum(limit is not None for limit in limits) != 1:
        why = "exactly one of exempt, maxRequestsInflight, tokenBucket must be given"
        return _rejecting(schema, why)
    if schema.max_requests_inflight is not None:
        return _in_flight(schema, schema.max_requests_inflight, spanning)
    if schema.token_bucket is not None:
        return _bucket(schema, schema.token_bucket, spanning)
    return ReadSchema(None)


def _in_flight(
    schema: api.FlowControlSchema, own: api.MaxRequestsInflight, spanning: SharedLimits
) -> ReadSchema:
    if own.max < 0:
        return _rejecting(schema, f"maxRequestsInflight.max: {own.max} must not be less than 0")
    total = schema.global_max_requests_inflight
    if total is None or schema.strategy not in SPANNING:
        return ReadSchema(FlowSchema(schema.name, InFlight(own.max)))
    if total.max < own.max:
        why = f"globalMaxRequestsInflight.max: {total.max} must not be less than {own.max}"
        return _rejecting(schema, why)
    if not spanning.gate:
        return ReadSchema(FlowSchema(schema.name, InFlight(own.max)), (_gate_off(schema),))
    share = InFlight(even_share(total.max, spanning.replicas))
    divided = DividedLimit(total.max, minimum_share(total.max, spanning.replicas))
    return ReadSchema(FlowSchema(schema.name, share, divided=divided))


def _bucket(
    schema: api.FlowControlSchema, own: api.TokenBucketSpec, spanning: SharedLimits
) -> ReadSchema:
    if not 0 < own.qps <= own.burst:
        why = f"tokenBucket: qps {own.qps}, burst {own.burst}: must be burst >= qps > 0"
        return _rejecting(schema, why)
    local = FlowSchema(schema.name, TokenBucket(own.qps, own.burst))
    total = schema.global_token_bucket
    if total is None or schema.strategy not in SPANNING:
        return ReadSchema(local)
    burst = total.burst or total.qps
    if total.qps < own.qps or burst < max(own.burst, total.qps):
        why = (
            f"globalTokenBucket: qps {total.qps}, burst {burst}: must not be less than tokenBucket"
        )
        return _rejecting(schema, why)
    if not spanning.gate:
        return ReadSchema(local, (_gate_off(schema),))
    if not spanning.counter:
        why = "globalTokenBucket has no effect: no counter is configured"
        return ReadSchema(local, (f"{why}; tokenBucket applies to each data plane",))
    shared = TokenBucket(total.qps, burst)
    return ReadSchema(FlowSchema(schema.name, shared, shared))


def _gate_off(schema: api.FlowControlSchema) -> str:
    gate = "feature gate GlobalRateLimiter is off"
    return f"strategy {schema.strategy}: {gate}; the limit applies to each data plane"


def _rejecting(schema: api.FlowControlSchema, why: str) -> ReadSchema:
    problem = f"{why}; requests of policies with this schema are rejected"
    return ReadSchema(FlowSchema(schema.name, REJECT_ALL), (problem,))
