"""Containment of rules, and the message about missing rules."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_api_server.identity.users import User
from kube_api_server.rbac.coverage import (
    MAX_ATOMS,
    atoms,
    compact,
    escalation_message,
    rules_cover,
    uncovered_atoms,
)
from kube_api_server.rbac.rules import EVERYTHING, Attributes, any_allows

Rule = dict[str, Any]


def rule(verbs: str, groups: str, resources: str, names: str = "") -> Rule:
    fields: Rule = {
        "verbs": verbs.split(),
        "apiGroups": groups.split(),
        "resources": resources.split(),
    }
    return {**fields, "resourceNames": names.split()} if names else fields


def urls(verbs: str, paths: str) -> Rule:
    return {"verbs": verbs.split(), "nonResourceURLs": paths.split()}


@pytest.mark.parametrize(
    ("owner", "requested", "covered"),
    [
        ([rule("get", "v1", "pods")], [rule("get", "v1", "pods")], True),
        ([rule("get", "v1", "pods")], [rule("get list", "v1", "pods")], False),
        ([rule("get", "v1", "pods"), rule("list", "v1", "pods")], [rule("get list", "v1", "pods")],
         True),
        ([rule("get", "v1", "pods"), rule("get", "v2", "nodes")],
         [rule("get", "v1 v2", "pods nodes")], False),
        ([rule("*", "v1", "pods")], [rule("get delete", "v1", "pods")], True),
        ([rule("get delete", "v1", "pods")], [rule("*", "v1", "pods")], False),
        ([rule("get", "*", "pods")], [rule("get", "v1 v2", "pods")], True),
        ([rule("get", "v1", "pods")], [rule("get", "*", "pods")], False),
        ([rule("get", "v1", "*")], [rule("get", "v1", "pods pods/log")], True),
        ([rule("get", "v1", "*")], [rule("get", "v1", "*/log")], True),
        ([rule("get", "v1", "pods")], [rule("get", "v1", "pods/log")], False),
        ([rule("get", "v1", "*/log")], [rule("get", "v1", "pods/log */log")], True),
        ([rule("get", "v1", "*/log")], [rule("get", "v1", "pods")], False),
        ([rule("get", "v1", "*/log")], [rule("get", "v1", "*")], False),
        ([rule("get", "v1", "pods", "a b")], [rule("get", "v1", "pods", "a")], True),
        ([rule("get", "v1", "pods", "a"), rule("get", "v1", "pods", "b")],
         [rule("get", "v1", "pods", "a b")], True),
        ([rule("get", "v1", "pods", "a")], [rule("get", "v1", "pods", "a b")], False),
        ([rule("get", "v1", "pods", "a")], [rule("get", "v1", "pods")], False),
        ([rule("get", "v1", "pods")], [rule("get", "v1", "pods", "a")], True),
        ([urls("get", "/apis/*")], [urls("get", "/apis/apps /apis/a/*")], True),
        ([urls("get", "/apis/*")], [urls("get", "/apis")], False),
        ([urls("get", "/apis/*")], [urls("get", "*")], False),
        ([urls("get", "*")], [urls("get", "/apis/*")], True),
        ([rule("*", "*", "*")], [urls("get", "/apis")], False),
        (list(EVERYTHING), [rule("*", "*", "*"), urls("*", "*")], True),
        ([], [], True),
        ([], [rule("get", "v1", "pods")], False),
        ([], [rule("", "v1", "pods")], True),
    ],
)  # fmt: skip
def test_covers_compares_rules(owner: list[Rule], requested: list[Rule], covered: bool) -> None:
    assert rules_cover(owner, requested) is covered


def test_uncovered_rules_are_ordered() -> None:
    owner = [rule("get", "v1", "pods")]
    requested = [rule("get list", "v1", "pods nodes", "a"), urls("get", "/x")]
    assert uncovered_atoms(owner, requested) == [
        rule("list", "v1", "pods", "a"),
        rule("get", "v1", "nodes", "a"),
        rule("list", "v1", "nodes", "a"),
        urls("get", "/x"),
    ]


def test_compact_merges_verbs_of_the_same_resource() -> None:
    pieces = [*atoms(rule("get list", "v1 v2", "pods", "a")), urls("get", "/x")]
    assert compact(pieces) == [
        rule("get list", "v1", "pods", "a"),
        rule("get list", "v2", "pods", "a"),
        urls("get", "/x"),
    ]
    assert pieces[0]["verbs"] == ["get"]


def test_escalation_message_equals_that_of_kubernetes() -> None:
    user = User("u", groups=("g", "h"))
    missing = [
        rule("delete", "apps", "deployments", "a"),
        rule("get", "apps", "deployments"),
        rule("list", "apps", "deployments"),
        urls("get", '/"'),
    ]
    assert escalation_message(user, missing).splitlines() == [
        'user "u" (groups=["g" "h"]) is attempting to grant RBAC permissions not currently held:',
        '{APIGroups:["apps"], Resources:["deployments"], ResourceNames:["a"], Verbs:["delete"]}',
        '{APIGroups:["apps"], Resources:["deployments"], Verbs:["get" "list"]}',
        '{NonResourceURLs:["/\\""], Verbs:["get"]}',
    ]


def test_rule_with_too_many_atoms_is_not_split() -> None:
    many = " ".join(str(number) for number in range(MAX_ATOMS // 2 + 1))
    big = rule("get list", "v1", many)
    halves = [rule("get", "v1", "*"), rule("list", "v1", "*")]
    assert uncovered_atoms(halves, [big, rule("get list", "v1", "pods")]) == [big]
    assert rules_cover([rule("get list", "*", "*")], [big])


def some(*texts: str) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(texts), min_size=1, max_size=3, unique=True)


VERBS = some("get", "list", "*")
RESOURCE_RULES = st.fixed_dictionaries(
    {
        "verbs": VERBS,
        "apiGroups": some("", "apps", "*"),
        "resources": some("pods", "pods/log", "nodes", "*/log", "*"),
        "resourceNames": st.one_of(st.just([]), some("a", "b")),
    }
)
URL_RULES = st.fixed_dictionaries(
    {"verbs": VERBS, "nonResourceURLs": some("/a", "/a/b", "/a/*", "/a*", "*")}
)
RULES = st.lists(st.one_of(RESOURCE_RULES, URL_RULES), max_size=4)


def concrete(atom: Rule) -> list[Attributes]:
    """Return requests that an atom allows. `*` becomes a name that occurs nowhere else."""
    verb = atom["verbs"][0].replace("*", "frobnicate")
    if "nonResourceURLs" in atom:
        return [Attributes(verb, path=atom["nonResourceURLs"][0].replace("*", "zzz"))]
    group = atom["apiGroups"][0].replace("*", "example.com")
    resource, _, subresource = atom["resources"][0].replace("*", "widgets").partition("/")
    names = atom.get("resourceNames") or ["", "a", "zzz"]
    return [Attributes(verb, group, resource, subresource, name=name) for name in names]


@given(RULES, RULES)
def test_coverage_agrees_with_authorization(owner: list[Rule], requested: list[Rule]) -> None:
    """Covered rules are allowed; every uncovered atom has a request that is not."""
    missing = uncovered_atoms(owner, requested)
    for atom in (atom for rule in requested for atom in atoms(rule)):
        allowed = all(any_allows(owner, request) for request in concrete(atom))
        assert any_allows([atom], concrete(atom)[0])
        assert allowed is (atom not in missing)
