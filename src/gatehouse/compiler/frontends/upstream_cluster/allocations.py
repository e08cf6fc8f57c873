"""RateLimitConditions: who has how much of the limits that data planes share.

KubeGateway's limiter keeps one for each cluster and one for each gateway process. The same is told
here, as far as a control plane knows it: what is used (``requestLevel``, and the ``status`` of a
process) it does not know; data planes count that (``gatehouse_kube_inflight_requests``).
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
"""Label with the name of the data plane, as KubeGateway writes it."""

MAX_PER_DATA_PLANE_OBJECTS = 100
"""Data planes up to which each has an object of its own."""

_LONGEST_NAME, _LONGEST_LABEL = 253, 63

Object = dict[str, Any]


class Allocation(msgspec.Struct, frozen=True):
    """How the limits of one UpstreamCluster are spread."""

    limits: tuple[LimitAllocation, ...]
    """Sorted by name, at least one."""
    data_planes: tuple[tuple[str, str], ...]
    """Namespace and name of those that are connected, sorted."""


def allocation(ask: Ask, key: Key) -> Allocation | None:
    """Give how the limits of an UpstreamCluster are spread; None: no limit spans data planes."""
    found = ask.read(key)
    if not isinstance(found, api.UpstreamCluster):
        return None
    # Of two schemas with one name the first one counts.
    schemas = {each.name: each for each in reversed(found.spec.flow_control.schemas)}
    wanted = {name: each for name, each in schemas.items() if each.strategy in SPANNING}
    if not wanted or not feature_gates.read(found.metadata.annotations).spanning:
        return None
    planes = ask(data_planes, key)
    counted = bool(ask(settings, "").counter)
    spanning = SharedLimits(gate=True, replicas=len(planes), counter=counted)
    used = (schema.name for schema in ask(request_policy, key).schemas)
    spreads = (spread(wanted[name], spanning) for name in used if name in wanted)
    limits = tuple(each for each in spreads if each is not None)
    return Allocation(limits, tuple(sorted(planes))) if limits else None


def conditions(cluster: str, found: Allocation) -> Mapping[str, Object]:
    """Give the RateLimitConditions of an UpstreamCluster by name, without their owner."""
    made = [_state(cluster, found)]
    if len(found.data_planes) <= MAX_PER_DATA_PLANE_OBJECTS:
        made += [_instance(cluster, ".".join(each), found.limits) for each in found.data_planes]
    return {each["metadata"]["name"]: each for each in made}


def _state(cluster: str, found: Allocation) -> Object:
    """What there is of each limit, and what of it is given out."""
    spec = [_item(each.name, each.whole) for each in found.limits]
    status = [_item(each.name, _given(each, len(found.data_planes))) for each in found.limits]
    return {
        **_head(f"{cluster}.state", {}),
        "spec": {"upstreamCluster": cluster, "limitItemConfigurations": spec},
        "status": {"limitItemStatuses": status},
    }


def _instance(cluster: str, instance: str, limits: Iterable[LimitAllocation]) -> Object:
    """What one data plane may use."""
    items = [{**_item(each.name, each.share), "strategy": each.strategy} for each in limits]
    labels = {INSTANCE: instance} if len(instance) <= _LONGEST_LABEL else {}
    return {
        **_head(f"{cluster}.{instance}", labels),
        "spec": {
            "upstreamCluster": cluster,
            "instance": instance,
            "limitItemConfigurations": items,
        },
    }


def _head(name: str, labels: Mapping[str, str]) -> Object:
    if len(name) > _LONGEST_NAME:
        digest = hashlib.sha256(name.encode()).hexdigest()[:16]
        name = f"{name[: _LONGEST_NAME - 17].rstrip('.-')}-{digest}"
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
