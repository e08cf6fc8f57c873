"""Names, limits and scopes of ResourceQuotas.

https://kubernetes.io/docs/concepts/policy/resource-quotas
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from kube_api_server.builtin.quota_scopes import check_scopes
from kube_api_server.causes import invalid_cause
from kube_api_server.errors import Cause
from kube_base.types.objects import Object
from kube_base.types.quantities import canonical, quantity

COUNT = re.compile(r"count/([a-z0-9-]+)(?:\.([a-z0-9.-]+))?")
"""Name of the quota of a resource: plural name, and group."""

CORE = frozenset(
    {
        "configmaps",
        "persistentvolumeclaims",
        "pods",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "services",
        "services.loadbalancers",
        "services.nodeports",
    }
)
"""Names of numbers of objects without `count/`."""

COMPUTE = frozenset(
    {
        "cpu",
        "ephemeral-storage",
        "limits.cpu",
        "limits.ephemeral-storage",
        "limits.memory",
        "memory",
        "requests.cpu",
        "requests.ephemeral-storage",
        "requests.memory",
        "requests.storage",
    }
)
"""Names of sums of requests and limits. Pages and extended resources have names of a pattern."""

DEVICES = ".deviceclass.resource.k8s.io/devices"
"""End of the name of the quota of devices of a class."""

_SUM = re.compile(
    r"(requests\.)?hugepages-[0-9A-Za-z]+"
    r"|requests\.(?![a-z0-9.-]*kubernetes\.io/)[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[\w.-]+"
    r"|[a-z0-9.-]+\.storageclass\.storage\.k8s\.io/(requests\.storage|persistentvolumeclaims)"
    r"|[a-z0-9.-]+\.deviceclass\.resource\.k8s\.io/devices"
)
_BINARY = re.compile(r"memory|storage|hugepages")


def check_resource_quota(obj: Object, old: Object | None) -> Iterator[Cause]:
    """Yield the fields that are invalid, and those that this server could not enforce."""
    spec = obj.get("spec") or {}
    for name, amount in sorted((spec.get("hard") or {}).items()):
        field = f"spec.hard[{name}]"
        if not _is_supported(name):
            yield invalid_cause(field, name, "must be a standard resource for quota")
            continue
        number = quantity(str(amount))
        if number < 0:
            yield invalid_cause(field, amount, "must be greater than or equal to 0")
        elif number != number.to_integral_value() and is_whole(name):
            yield invalid_cause(field, amount, "must be an integer")
    yield from check_scopes(spec, COMPUTE | CORE)
    if old is not None:
        scopes = spec.get("scopes") or []
        if set(scopes) != set((old.get("spec") or {}).get("scopes") or ()):
            yield invalid_cause("spec.scopes", scopes, "field is immutable")


def hard_limits(quota: Mapping[str, Any]) -> dict[str, Decimal]:
    """Return the limits of a ResourceQuota by name."""
    hard = (quota.get("spec") or {}).get("hard") or {}
    return {name: quantity(str(hard[name])) for name in sorted(hard)}


def is_whole(name: str) -> bool:
    """Return whether a quota has a number of objects, and not an amount."""
    return name in CORE or name.startswith("count/")


def is_sum(name: str) -> bool:
    """Return whether a quota counts what objects request, and not the objects themselves."""
    return name in COMPUTE or _SUM.fullmatch(name) is not None


def format_amount(name: str, amount: Decimal) -> str:
    """Return an amount of a quota as a quantity."""
    if is_whole(name):
        return str(int(amount))
    whole = int(amount)
    if _BINARY.search(name) and whole and whole == amount and whole % 1024 == 0:
        return canonical(f"{whole // 1024}Ki")
    return canonical(f"{amount:f}")


def _is_supported(name: str) -> bool:
    return name in CORE or is_sum(name) or COUNT.fullmatch(name) is not None
