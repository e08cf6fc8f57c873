"""ClusterRoles and bindings that a server creates at start, as objects."""

from __future__ import annotations

from collections.abc import Iterable

from kube_api_server.rbac.rules import RBAC_GROUP, PolicyRule
from kube_base.types.objects import Object

READ_VERBS = "get list watch"
WRITE_VERBS = "create delete deletecollection patch update"
READ_AND_WRITE_VERBS = f"{READ_VERBS} {WRITE_VERBS}"

AUTOUPDATE = "rbac.authorization.kubernetes.io/autoupdate"
_AGGREGATE_TO = f"{RBAC_GROUP}/aggregate-to-"
_LABELS = {"kubernetes.io/bootstrapping": "rbac-defaults"}


def resource_rule(verbs: str, groups: tuple[str, ...] | str, plurals: str) -> PolicyRule:
    """Return a rule about resources. `verbs` and `plurals` are separated by spaces."""
    return {
        "verbs": verbs.split(),
        "apiGroups": [groups] if isinstance(groups, str) else list(groups),
        "resources": plurals.split(),
    }


def url_rule(urls: str) -> PolicyRule:
    """Return a rule that allows to read URLs, which are separated by spaces."""
    return {"verbs": ["get"], "nonResourceURLs": urls.split()}


def and_subresource(plurals: str, subresource: str) -> str:
    """Return plurals, each followed by its subresource."""
    return " ".join(f"{one} {one}/{subresource}" for one in plurals.split())


def cluster_role(name: str, rules: Iterable[PolicyRule], *, aggregate_to: str = "") -> Object:
    """Return a ClusterRole, whose rules the role `aggregate_to` has, too."""
    return _role_object("ClusterRole", name, aggregate_to, rules=list(rules))


def aggregated_cluster_role(name: str, *, aggregate_to: str = "") -> Object:
    """Return a ClusterRole that collects the rules of those that aggregate to it."""
    selector = {"matchLabels": {_AGGREGATE_TO + name: "true"}}
    rule = {"clusterRoleSelectors": [selector]}
    return _role_object("ClusterRole", name, aggregate_to, aggregationRule=rule, rules=[])


def cluster_role_binding(name: str, *subjects: tuple[str, str]) -> Object:
    """Return the binding of the ClusterRole with the same name to subjects: kinds and names."""
    return _role_object(
        "ClusterRoleBinding",
        name,
        "",
        roleRef={"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": name},
        subjects=[{"apiGroup": RBAC_GROUP, "kind": kind, "name": who} for kind, who in subjects],
    )


def _role_object(kind: str, name: str, aggregate_to: str, **fields: object) -> Object:
    labels = dict(_LABELS)
    if aggregate_to:
        labels[_AGGREGATE_TO + aggregate_to] = "true"
    metadata = {"name": name, "labels": labels, "annotations": {AUTOUPDATE: "true"}}
    return {"apiVersion": f"{RBAC_GROUP}/v1", "kind": kind, "metadata": metadata, **fields}
