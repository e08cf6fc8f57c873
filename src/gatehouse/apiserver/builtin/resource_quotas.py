"""Names and limits of ResourceQuotas. Only numbers of objects are supported.

https://kubernetes.io/docs/concepts/policy/resource-quotas/#quota-on-object-count
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gatehouse.apis.objects import Object
from gatehouse.apis.quantities import quantity
from gatehouse.apiserver.builtin.validation import invalid_cause
from gatehouse.apiserver.errors import Cause

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
"""Names of quotas without `count/`."""


def check_resource_quota(obj: Object, _: Object | None) -> Iterator[Cause]:
    """Yield the fields that are invalid, and those that this server could not enforce."""
    spec = obj.get("spec") or {}
    for field in ("scopes", "scopeSelector"):
        if spec.get(field):
            yield invalid_cause(f"spec.{field}", spec[field], "must not be set: not supported")
    for name, amount in sorted((spec.get("hard") or {}).items()):
        field = f"spec.hard[{name}]"
        if not _is_supported(name):
            why = f"must be count/<resource>.<group> or one of {', '.join(sorted(CORE))}"
            yield invalid_cause(field, name, why)
            continue
        number = quantity(str(amount))
        if number < 0:
            yield invalid_cause(field, amount, "must be greater than or equal to 0")
        elif number % 1:
            yield invalid_cause(field, amount, "must be an integer")


def hard_limits(quota: Mapping[str, Any]) -> dict[str, int]:
    """Return the limits of a ResourceQuota by name."""
    hard = (quota.get("spec") or {}).get("hard") or {}
    return {name: int(quantity(str(hard[name]))) for name in sorted(hard)}


def _is_supported(name: str) -> bool:
    return name in CORE or COUNT.fullmatch(name) is not None
