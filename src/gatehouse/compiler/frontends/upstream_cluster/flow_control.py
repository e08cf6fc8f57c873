"""Flow control: from schemas to limits of one data plane, and of all of them together.

Limits that span data planes are on where the schema's strategy says so and the object's feature
gate ``GlobalRateLimiter`` is on, as with KubeGateway. ``globalMaxRequestsInflight`` is divided
among the connected data planes, rounded down, 1 at least; ``globalTokenBucket`` is counted by the
shared counter, and takes the place of ``tokenBucket``, so that one data plane may use all of it.
"""

from __future__ import annotations

import msgspec

from gatehouse.apis import upstream_clusters as api
from gatehouse.compiler.ir.kube_apiserver import FlowSchema, InFlight, TokenBucket

REFUSED = InFlight(0)
"""The limit in the place of one that makes no sense."""

SPANNING = ("globalAllocate", "globalCount")


class SharedLimits(msgspec.Struct, frozen=True):
    """What limits of all data planes together depend on."""

    gate: bool = False
    """The feature gate."""
    replicas: int = 1
    """Data planes that are connected."""
    counter: bool = False
    """Whether there is a shared counter."""


LOCAL = SharedLimits()
"""Nothing spans data planes."""


class ReadSchema(msgspec.Struct, frozen=True):
    """What a schema means."""

    schema: FlowSchema | None
    """None: no limit."""
    problems: tuple[str, ...] = ()


class LimitAllocation(msgspec.Struct, frozen=True):
    """A limit of all data planes together."""

    name: str
    strategy: str
    whole: InFlight | TokenBucket
    share: InFlight | TokenBucket
    """What each data plane may use; all of it where it is counted for all."""


def spread(schema: api.FlowControlSchema, spanning: SharedLimits) -> LimitAllocation | None:
    """Give how a schema's limit is spread over data planes; None: each has a limit of its own."""
    made = read(schema, spanning)
    if schema.strategy not in SPANNING or made.schema is None or made.problems:
        return None
    found, everybody = made.schema, schema.global_max_requests_inflight
    if found.shared is not None:
        return LimitAllocation(schema.name, schema.strategy, found.shared, found.shared)
    if isinstance(found.limit, InFlight) and everybody is not None:
        return LimitAllocation(schema.name, schema.strategy, InFlight(everybody.max), found.limit)
    return None


def spans(schema: api.FlowControlSchema) -> bool:
    """Whether a schema asks for a share of something that is divided."""
    return schema.global_max_requests_inflight is not None and schema.strategy in SPANNING


def read(schema: api.FlowControlSchema, spanning: SharedLimits) -> ReadSchema:
    """Give the limit of a schema; one that makes no sense lets nothing through."""
    given = (schema.exempt, schema.max_requests_inflight, schema.token_bucket)
    if sum(each is not None for each in given) != 1:
        why = "exactly one of exempt, maxRequestsInflight, tokenBucket must be given"
        return _refused(schema, why)
    if schema.max_requests_inflight is not None:
        return _in_flight(schema, schema.max_requests_inflight, spanning)
    if schema.token_bucket is not None:
        return _bucket(schema, schema.token_bucket, spanning)
    return ReadSchema(None)


def _in_flight(
    schema: api.FlowControlSchema, own: api.MaxRequestsInflight, spanning: SharedLimits
) -> ReadSchema:
    if own.max < 0:
        return _refused(schema, f"maxRequestsInflight.max: {own.max} is less than 0")
    everybody = schema.global_max_requests_inflight
    if everybody is None or schema.strategy not in SPANNING:
        return ReadSchema(FlowSchema(schema.name, InFlight(own.max)))
    if everybody.max < own.max:
        why = f"globalMaxRequestsInflight.max: {everybody.max} is less than {own.max}"
        return _refused(schema, why)
    if not spanning.gate:
        return ReadSchema(FlowSchema(schema.name, InFlight(own.max)), (_closed(schema),))
    share = max(min(everybody.max, 1), everybody.max // max(1, spanning.replicas))
    return ReadSchema(FlowSchema(schema.name, InFlight(share)))


def _bucket(
    schema: api.FlowControlSchema, own: api.TokenBucket, spanning: SharedLimits
) -> ReadSchema:
    if not 0 < own.qps <= own.burst:
        why = f"tokenBucket: qps {own.qps} and burst {own.burst}: burst >= qps > 0 must hold"
        return _refused(schema, why)
    alone = FlowSchema(schema.name, TokenBucket(own.qps, own.burst))
    everybody = schema.global_token_bucket
    if everybody is None or schema.strategy not in SPANNING:
        return ReadSchema(alone)
    burst = everybody.burst or everybody.qps
    if everybody.qps < own.qps or burst < max(own.burst, everybody.qps):
        why = (
            f"globalTokenBucket: qps {everybody.qps} and burst {burst} allow less than tokenBucket"
        )
        return _refused(schema, why)
    if not spanning.gate:
        return ReadSchema(alone, (_closed(schema),))
    if not spanning.counter:
        why = "globalTokenBucket is not counted: the controller was given no counter"
        return ReadSchema(alone, (f"{why}; tokenBucket holds for each data plane",))
    shared = TokenBucket(everybody.qps, burst)
    return ReadSchema(FlowSchema(schema.name, shared, shared))


def _closed(schema: api.FlowControlSchema) -> str:
    gate = "the feature gate GlobalRateLimiter is not on"
    return f"strategy {schema.strategy}: {gate}; the limit holds for each data plane"


def _refused(schema: api.FlowControlSchema, why: str) -> ReadSchema:
    problem = f"{why}; requests of policies that name the schema are refused"
    return ReadSchema(FlowSchema(schema.name, REFUSED), (problem,))
