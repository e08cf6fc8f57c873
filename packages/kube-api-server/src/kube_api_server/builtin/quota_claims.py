"""Amounts that objects claim from ResourceQuotas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any

from kube_api_server.builtin.quota_scopes import (
    QuotaScope,
    is_in_scope,
    pod_scope_of,
    volume_scope_of,
)
from kube_api_server.builtin.resource_claims import claimed_devices
from kube_api_server.builtin.resource_quotas import CORE, DEVICES
from kube_base.types.objects import Object
from kube_base.types.quantities import quantity

Amounts = Counter[str]
"""Amounts by name of the quota."""

_BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
_ALL_REQUIRED = frozenset(
    {"cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"}
)
"""Names whose quota requires an amount of each container."""


class QuotaClaim:
    """Amounts that one object claims, and its scope."""

    def __init__(self, key: str, obj: Mapping[str, Any] | None) -> None:
        """Calculate the claim of the object with this store key, or the empty one of None."""
        self.amounts: Amounts = claims(key, obj) if obj is not None else Counter()
        self.scope: QuotaScope = None
        if obj is not None and key.startswith("/core/pods/"):
            self.scope = pod_scope_of(obj)
        elif obj is not None and key.startswith("/core/persistentvolumeclaims/"):
            self.scope = volume_scope_of(obj)

    def within(self, quota: Mapping[str, Any]) -> Amounts:
        """Return the amounts that a quota counts."""
        return self.amounts if is_in_scope(quota, self.scope) else Counter()


def claims(key: str, obj: Mapping[str, Any]) -> Amounts:
    """Return what an object counts for, by name of the quota. ``key``: its store key."""
    _, group, plural, _ = key.split("/", 3)
    if group != "core":
        counted: Amounts = Counter({f"count/{plural}.{group}": 1})
        if plural == "resourceclaims":
            for name, count in claimed_devices(obj):
                counted[f"{name}{DEVICES}"] += count
        return counted
    result: Amounts = Counter({f"count/{plural}": 1})
    spec = obj.get("spec") or {}
    match plural:
        case "events":
            # The same objects are served in both groups.
            result["count/events.events.k8s.io"] = 1
        case "pods":
            if (obj.get("status") or {}).get("phase") not in ("Failed", "Succeeded"):
                result += _pod_claims(spec)
        case "services":
            result += Counter({"services": 1}) + _service_claims(spec)
        case "persistentvolumeclaims":
            result += _volume_claims(obj)
        case _ if plural in CORE:
            result[plural] = 1
    return +result


def missing_amounts(names: Iterable[str], pod: Object) -> str:
    """Return names for which containers of a Pod must have amounts, with the containers."""
    spec = pod.get("spec") or {}
    missing: dict[str, set[str]] = {}
    if not (spec.get("resources") or {}):
        for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
            amounts = _named(_requests(container), _limits(container))
            for name in _ALL_REQUIRED.intersection(names).difference(amounts):
                missing.setdefault(name, set()).add(str(container.get("name")))
    return "; ".join(f"{name} for: {','.join(sorted(missing[name]))}" for name in sorted(missing))


def _service_claims(spec: Mapping[str, Any]) -> Amounts:
    is_balanced = spec.get("type") == "LoadBalancer"
    has_ports = spec.get("type") == "NodePort" or (
        is_balanced and spec.get("allocateLoadBalancerNodePorts") is not False
    )
    ports = len(spec.get("ports") or ()) if has_ports else 0
    return Counter({"services.loadbalancers": int(is_balanced), "services.nodeports": ports})


def _volume_claims(obj: Mapping[str, Any]) -> Amounts:
    spec, metadata = obj.get("spec") or {}, obj.get("metadata") or {}
    requests = (spec.get("resources") or {}).get("requests") or {}
    amounts: dict[str, Any] = {"persistentvolumeclaims": 1}
    if "storage" in requests:
        amounts["requests.storage"] = quantity(str(requests["storage"]))
    storage_class = (metadata.get("annotations") or {}).get(_BETA_CLASS)
    storage_class = storage_class or spec.get("storageClassName")
    if storage_class:
        prefix = f"{storage_class}.storageclass.storage.k8s.io/"
        amounts |= {f"{prefix}{name}": amount for name, amount in amounts.items()}
    return Counter(amounts)


def _pod_claims(spec: Mapping[str, Any]) -> Amounts:
    requests, limits = _of_pod(spec, _requests), _of_pod(spec, _limits)
    overhead = _amounts(spec.get("overhead"))
    limited = {name: amount for name, amount in overhead.items() if name in limits}
    named = _named(requests + Counter(overhead), limits + Counter(limited))
    return Counter({"pods": 1}) + named


def _named(requests: Amounts, limits: Amounts) -> Amounts:
    """Return requests and limits by the names of their quotas."""
    result: Amounts = Counter()
    for name, amount in requests.items():
        if "/" not in name:
            result[name] = amount
        result[f"requests.{name}"] = amount
    for name, amount in limits.items():
        result[f"limits.{name}"] = amount
    return result


def _of_pod(spec: Mapping[str, Any], read: Callable[[Mapping[str, Any]], Amounts]) -> Amounts:
    """Return the sum of the containers, or the maximum of an init container if it is larger.

    Init containers that restart run beside all later containers.
    """
    total: Amounts = Counter()
    for container in spec.get("containers") or ():
        total += read(container)
    beside: Amounts = Counter()
    largest: Amounts = Counter()
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            beside += read(container)
            largest |= beside
        else:
            largest |= beside + read(container)
    return (total + beside) | largest | read(spec)


def _requests(container: Mapping[str, Any]) -> Amounts:
    """Return the requests of a container. A limit without a request is also a request."""
    resources = container.get("resources") or {}
    return Counter({**_amounts(resources.get("limits")), **_amounts(resources.get("requests"))})


def _limits(container: Mapping[str, Any]) -> Amounts:
    return Counter(_amounts((container.get("resources") or {}).get("limits")))


def _amounts(resources: Mapping[str, Any] | None) -> dict[str, Any]:
    amounts: dict[str, Decimal] = {
        name: quantity(str(text)) for name, text in (resources or {}).items()
    }
    return amounts
