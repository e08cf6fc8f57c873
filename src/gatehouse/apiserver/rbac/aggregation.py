"""ClusterRoles made of other ClusterRoles, selected by their labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gatehouse.apiserver.rbac.rules import Object, PolicyRule, values


def selects(selector: Object, labels: Mapping[str, str]) -> bool:
    """Whether a LabelSelector selects; an empty one selects everything."""
    wanted = selector.get("matchLabels") or {}
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        _meets(expression, labels) for expression in selector.get("matchExpressions") or ()
    )


def union(role: Object, roles: Iterable[Object]) -> list[PolicyRule] | None:
    """Give the rules that ``role`` gathers from ``roles``; None when it gathers none.

    Selector by selector, each with the roles by name, as Kubernetes' controller does it.
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
            if selects(selector, other["metadata"].get("labels") or {}):
                gathered += (one for one in values(other, "rules") if one not in gathered)
    return gathered


def settled(roles: Iterable[Object]) -> list[Object]:
    """Give the ClusterRoles whose rules change when all aggregate until nothing changes.

    One pass is not enough: ``admin`` gathers ``edit``, which gathers ``view``.
    """
    now = {role["metadata"]["name"]: role for role in roles}
    changed: dict[str, Object] = {}
    # Each pass carries rules one step further, and no path is longer than there are roles.
    for _ in range(len(now)):
        still = True
        for name, role in now.items():
            rules = union(role, now.values())
            if rules is not None and rules != values(role, "rules"):
                now[name] = changed[name] = {**role, "rules": rules}
                still = False
        if still:
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
