"""Aggregated ClusterRoles."""

from __future__ import annotations

from typing import Any

import pytest

from kube_api_server.rbac.aggregation import aggregate_rules, changed_roles, selects_role

Object = dict[str, Any]


def rule(resource: str) -> Object:
    return {"verbs": ["get"], "apiGroups": [""], "resources": [resource]}


def role(name: str, rules: str = "", gathers: str = "", **labels: str) -> Object:
    cluster_role: Object = {
        "metadata": {"name": name, "labels": labels},
        "rules": [rule(resource) for resource in rules.split()],
    }
    if gathers:
        selectors = [{"matchLabels": {label: "true"}} for label in gathers.split()]
        cluster_role["aggregationRule"] = {"clusterRoleSelectors": selectors}
    return cluster_role


def expression(key: str, operator: str, *options: str) -> Object:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(options)}]}


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ({}, True),
        ({"matchLabels": {"a": "1"}}, True),
        ({"matchLabels": {"a": "1", "b": "2"}}, False),
        ({"matchLabels": {"b": ""}}, False),
        (expression("a", "In", "1", "2"), True),
        (expression("a", "In", "2"), False),
        (expression("b", "In", "2"), False),
        (expression("a", "NotIn", "1"), False),
        (expression("b", "NotIn", "1"), True),
        (expression("a", "Exists"), True),
        (expression("b", "Exists"), False),
        (expression("a", "DoesNotExist"), False),
        (expression("b", "DoesNotExist"), True),
        (expression("a", "Near", "1"), False),
        ({"matchLabels": {"a": "1"}} | expression("b", "Exists"), False),
    ],
)
def test_cluster_role_selector_matches_labels(selector: Object, selected: bool) -> None:
    assert selects_role(selector, {"a": "1"}) is selected


def test_union_is_ordered_and_without_duplicates() -> None:
    top = role("top", "old", gathers="x y", x="true")
    others = [
        role("b", "pods nodes", x="true"),
        role("a", "pods", x="true", y="true"),
        role("c", "secrets", y="true"),
        role("d", "leases"),
        top,
    ]
    assert aggregate_rules(top, others) == [rule("pods"), rule("nodes"), rule("secrets")]
    assert aggregate_rules(role("plain", "pods"), others) is None


def test_changed_roles_aggregates_rules_transitively() -> None:
    roles = [
        role("admin", gathers="admin"),
        role("edit", gathers="edit", admin="true"),
        role("view", gathers="view", edit="true"),
        role("more", "pods", view="true"),
    ]
    changed = {one["metadata"]["name"]: one["rules"] for one in changed_roles(roles)}
    assert changed == {name: [rule("pods")] for name in ("view", "edit", "admin")}
    assert roles[0]["rules"] == []


def test_changed_roles_is_empty_without_changes() -> None:
    assert (
        changed_roles([role("view", "pods", gathers="view"), role("more", "pods", view="true")])
        == []
    )


def test_changed_roles_terminates_for_cyclic_aggregation() -> None:
    roles = [
        role("a", gathers="a", b="true"),
        role("b", gathers="b", a="true"),
        role("c", "pods", a="true"),
    ]
    assert [one["rules"] for one in changed_roles(roles)] == [[rule("pods")], [rule("pods")]]
