"""RateLimitConditions: the shares that data planes have of common limits.

KubeGateway's limiter writes one object for each cluster and one for each gateway process. This
module builds the same objects without the usage (``requestLevel``, and the ``status`` of a
process), which changes too often; data planes count it (``gatehouse_kube_inflight_requests``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import msgspec

from gatehouse.apis import resources
from gatehouse.apis import upstream_clusters as api
from gatehouse.compiler.frontends.gateway_api.classes import settings
from gatehouse.compiler.frontends.upstream_cluster.flow_control import (
    SPANNING,
    LimitAllocation,
    SharedLimits,
    spread,
)
from gatehouse.compiler.frontends.upstream_cluster.record import effective_gates
from gatehouse.compiler.frontends.upstream_cluster.shares import divided_limit, uses
from gatehouse.compiler.frontends.upstream_cluster.translate import data_planes, request_policy
from gatehouse.compiler.ir.kube_apiserver import InFlight, TokenBucket
from gatehouse.incremental.query import Ask, Key
from kube_base.types.objects import Object

INSTANCE = "proxy.kubegateway.io/ratelimitcondition.instance"
"""Label of a RateLimitCondition: name of its data plane, as in KubeGateway."""

WRITE_INTERVAL_SECONDS = 2.0
"""Minimum time in seconds between two writes of an object, since shares follow the traffic."""

MAX_PER_DATA_PLANE_OBJECTS = 100
"""Maximum number of data planes that have an object each."""

_MAX_NAME_CHARACTERS, _MAX_LABEL_CHARACTERS = 253, 63


class Allocation(msgspec.Struct, frozen=True):
    """Shares of the common limits of one UpstreamCluster."""

    limits: tuple[LimitAllocation, ...]
    """Limits sorted by name, at least one."""
    data_planes: tuple[tuple[str, str], ...]
    """Namespace and name of the connected data planes, sorted."""


def allocation(ask: Ask, key: Key) -> Allocation | None:
    """Return the shares of an UpstreamCluster's limits; None if no limit is shared."""
    cluster = ask.read(key)
    if not isinstance(cluster, api.UpstreamCluster):
        return None
    # The first of several schemas with one name applies.
    schemas = {schema.name: schema for schema in reversed(cluster.spec.flow_control.schemas)}
    shared = {name: schema for name, schema in schemas.items() if schema.strategy in SPANNING}
    if not shared or not effective_gates(ask, key).spanning:
        return None
    planes = ask(data_planes, key)
    counted = bool(ask(settings).counter)
    spanning = SharedLimits(gate=True, replicas=len(planes), counter=counted)
    used = (schema.name for schema in ask(request_policy, key).schemas)
    spreads = (spread(shared[name], spanning) for name in used if name in shared)
    limits = tuple(_with_shares(ask, key, limit) for limit in spreads if limit is not None)
    return Allocation(limits, tuple(sorted(planes))) if limits else None


def _with_shares(ask: Ask, key: Key, limit: LimitAllocation) -> LimitAllocation:
    if not isinstance(limit.whole, InFlight):
        return limit
    shares = divided_limit(ask(uses, key), limit.name, limit.whole.max)
    return msgspec.structs.replace(limit, shares=shares)


def rate_limit_conditions(cluster: str, shares: Allocation) -> Mapping[str, Object]:
    """Return the RateLimitConditions of an UpstreamCluster by name, without their owner."""
    objects = [_state(cluster, shares)]
    if len(shares.data_planes) <= MAX_PER_DATA_PLANE_OBJECTS:
        objects += [
            _instance(cluster, data_plane, shares.limits) for data_plane in shares.data_planes
        ]
    return {condition["metadata"]["name"]: condition for condition in objects}


def _state(cluster: str, shares: Allocation) -> Object:
    """Return the object with the total of each limit and the sum of its shares."""
    spec = [_item(limit.name, limit.whole) for limit in shares.limits]
    status = [_item(limit.name, _given(limit, len(shares.data_planes))) for limit in shares.limits]
    return {
        **_head(f"{cluster}.state", {}),
        "spec": {"upstreamCluster": cluster, "limitItemConfigurations": spec},
        "status": {"limitItemStatuses": status},
    }


def _instance(
    cluster: str, data_plane: tuple[str, str], limits: Iterable[LimitAllocation]
) -> Object:
    """Return the object with the shares of one data plane."""
    instance = ".".join(data_plane)
    items = [
        {**_item(limit.name, _share(limit, data_plane)), "strategy": limit.strategy}
        for limit in limits
    ]
    labels = {INSTANCE: instance} if len(instance) <= _MAX_LABEL_CHARACTERS else {}
    return {
        **_head(f"{cluster}.{instance}", labels),
        "spec": {
            "upstreamCluster": cluster,
            "instance": instance,
            "limitItemConfigurations": items,
        },
    }


def _head(name: str, labels: Mapping[str, str]) -> Object:
    if len(name) > _MAX_NAME_CHARACTERS:
        digest = hashlib.sha256(name.encode()).hexdigest()[:16]
        name = f"{name[: _MAX_NAME_CHARACTERS - 17].rstrip('.-')}-{digest}"
    resource = resources.RATE_LIMIT_CONDITIONS
    labels = {"app.kubernetes.io/managed-by": "gatehouse", **labels}
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name, "labels": labels},
    }


def _share(limit: LimitAllocation, data_plane: tuple[str, str]) -> InFlight | TokenBucket:
    return InFlight(limit.shares[data_plane]) if data_plane in limit.shares else limit.whole


def _given(limit: LimitAllocation, count: int) -> InFlight | TokenBucket:
    match limit.whole:
        case InFlight():
            return InFlight(sum(limit.shares.values()))
        case TokenBucket():
            return limit.whole if count else TokenBucket(0, 0)


def _item(name: str, limit: InFlight | TokenBucket) -> Object:
    match limit:
        case InFlight(most):
            return {"name": name, "maxRequestsInflight": {"max": most}}
        case TokenBucket(rate, burst):
            return {"name": name, "tokenBucket": {"qps": rate, "burst": burst}}
