"""Aggregated ClusterRoles: rules collected from ClusterRoles that label selectors match."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kube_api_server.rbac.rules import PolicyRule, values
from kube_base.types.objects import Object


def selects_role(selector: Object, labels: Mapping[str, str]) -> bool:
    """Return whether a LabelSelector matches. An empty one matches everything."""
    match_labels = selector.get("matchLabels") or {}
    return all(labels.get(key) == value for key, value in match_labels.items()) and all(
        _meets(expression, labels) for expression in selector.get("matchExpressions") or ()
    )


def aggregate_rules(role: Object, roles: Iterable[Object]) -> list[PolicyRule] | None:
    """Return the rules that `role` collects from `roles`; None if it does not aggregate.

    The order is that of Kubernetes' controller: by selector, then by role name.
    """
    rule = role.get("aggregationRule")
    if rule is None:
        return None
    name, gathered = role["metadata"]["name"], list[PolicyRule]()
    others = sorted(
        (one for one in roles if one["metadata"]["name"] != name),
        key=lambda one: str(one["metadata"]["name"]),
    )
    for selector in rule.get("clusterRoleSelectors") or ():
        for other in others:
            if selects_role(selector, other["metadata"].get("labels") or {}):
                gathered += (one for one in values(other, "rules") if one not in gathered)
    return gathered


def changed_roles(roles: Iterable[Object]) -> list[Object]:
    """Return the ClusterRoles whose rules change by complete aggregation.

    One pass is not enough: `admin` collects `edit`, which collects `view`.
    """
    current = {role["metadata"]["name"]: role for role in roles}
    changed: dict[str, Object] = {}
    # Each pass carries rules one step further, and no path is longer than the number of roles.
    for _ in range(len(current)):
        stable = True
        for name, role in current.items():
            rules = aggregate_rules(role, current.values())
            if rules is not None and rules != values(role, "rules"):
                current[name] = changed[name] = {**role, "rules": rules}
                stable = False
        if stable:
            break
    return list(changed.values())


def _meets(expression: Object, labels: Mapping[str, str]) -> bool:
    key, options = expression.get("key", ""), expression.get("values") or ()
    match expression.get("operator"):
        case "In":
            return labels.get(key) in options
        case "NotIn":
            return labels.get(key) not in options
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
    return False
