"""RateLimitConditions: the shares that data planes have of common limits.

KubeGateway's limiter writes one object for each cluster and one for each gateway process. This
module builds the same objects without the usage (``requestLevel``, and the ``status`` of a
process), which a control plane does not know; data planes count it
(``gatehouse_kube_inflight_requests``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from gatehouse.apis import resources
from gatehouse.apis import upstream_clusters as api
from gatehouse.compiler.frontends.gateway_api.classes import settings
from gatehouse.compiler.frontends.upstream_cluster import feature_gates
from gatehouse.compiler.frontends.upstream_cluster.flow_control import (
    SPANNING,
    LimitAllocation,
    SharedLimits,
    spread,
)
from gatehouse.compiler.frontends.upstream_cluster.translate import data_planes, request_policy
from gatehouse.compiler.ir.kube_apiserver import InFlight, TokenBucket
from gatehouse.incremental.query import Ask, Key

INSTANCE = "proxy.kubegateway.io/ratelimitcondition.instance"
"""Label of a RateLimitCondition: name of its data plane, as in KubeGateway."""

MAX_PER_DATA_PLANE_OBJECTS = 100
"""Maximum number of data planes that have an object each."""

_MAX_NAME_CHARACTERS, _MAX_LABEL_CHARACTERS = 253, 63

Object = dict[str, Any]


class Allocation(msgspec.Struct, frozen=True):
    """Shares of the common limits of one UpstreamCluster."""

    limits: tuple[LimitAllocation, ...]
    """Limits sorted by name, at least one."""
    data_planes: tuple[tuple[str, str], ...]
    """Namespace and name of the connected data planes, sorted."""


def allocation(ask: Ask, key: Key) -> Allocation | None:
    """Return the shares of an UpstreamCluster's limits; None if no limit is shared."""
    found = ask.read(key)
    if not isinstance(found, api.UpstreamCluster):
        return None
    # The first of several schemas with one name applies.
    schemas = {each.name: each for each in reversed(found.spec.flow_control.schemas)}
    shared = {name: each for name, each in schemas.items() if each.strategy in SPANNING}
    if not shared or not feature_gates.read(found.metadata.annotations).spanning:
        return None
    planes = ask(data_planes, key)
    counted = bool(ask(settings, "").counter)
    spanning = SharedLimits(gate=True, replicas=len(planes), counter=counted)
    used = (schema.name for schema in ask(request_policy, key).schemas)
    spreads = (spread(shared[name], spanning) for name in used if name in shared)
    limits = tuple(each for each in spreads if each is not None)
    return Allocation(limits, tuple(sorted(planes))) if limits else None


def conditions(cluster: str, shares: Allocation) -> Mapping[str, Object]:
    """Return the RateLimitConditions of an UpstreamCluster by name, without their owner."""
    objects = [_state(cluster, shares)]
    if len(shares.data_planes) <= MAX_PER_DATA_PLANE_OBJECTS:
        objects += [
            _instance(cluster, ".".join(each), shares.limits) for each in shares.data_planes
        ]
    return {each["metadata"]["name"]: each for each in objects}


def _state(cluster: str, shares: Allocation) -> Object:
    """Return the object with the total of each limit and the sum of its shares."""
    spec = [_item(each.name, each.whole) for each in shares.limits]
    status = [_item(each.name, _given(each, len(shares.data_planes))) for each in shares.limits]
    return {
        **_head(f"{cluster}.state", {}),
        "spec": {"upstreamCluster": cluster, "limitItemConfigurations": spec},
        "status": {"limitItemStatuses": status},
    }


def _instance(cluster: str, instance: str, limits: Iterable[LimitAllocation]) -> Object:
    """Return the object with the shares of one data plane."""
    items = [{**_item(each.name, each.share), "strategy": each.strategy} for each in limits]
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


def _given(limit: LimitAllocation, count: int) -> InFlight | TokenBucket:
    match limit.share:
        case InFlight(most):
            return InFlight(most * count)
        case TokenBucket():
            return limit.share if count else TokenBucket(0, 0)


def _item(name: str, limit: InFlight | TokenBucket) -> Object:
    match limit:
        case InFlight(most):
            return {"name": name, "maxRequestsInflight": {"max": most}}
        case TokenBucket(rate, burst):
            return {"name": name, "tokenBucket": {"qps": rate, "burst": burst}}
