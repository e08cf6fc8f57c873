"""Rules match as documented: a table, and a naive implementation as oracle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gatehouse.apis.upstream_clusters import DispatchRuleSpec, ServiceAccountRef
from gatehouse.compiler.frontends.upstream_cluster import rules
from gatehouse.compiler.frontends.upstream_cluster.dispatch import DispatchUser, mismatch
from kube_base.types.request_info import RequestInfo, parse_request

PODS = parse_request("GET", "/api/v1/namespaces/ns/pods/p")
LOG = parse_request("GET", "/api/v1/namespaces/ns/pods/p/log")
STATUS = parse_request("GET", "/api/v1/namespaces/ns/pods/p/status")
LIST = parse_request("GET", "/api/v1/pods")
APPS = parse_request("PATCH", "/apis/apps/v1/namespaces/ns/deployments/d")
HEALTH = parse_request("GET", "/healthz")
ALICE = DispatchUser("alice", ("team", "system:authenticated"))
ROBOT = DispatchUser(
    "system:serviceaccount:ns:robot", ("system:serviceaccounts", "system:authenticated")
)

ALL = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}

TABLE: list[tuple[str, dict[str, Any], RequestInfo, DispatchUser, bool]] = [
    ("everything", ALL, PODS, ALICE, True),
    ("everything of resources is no path", ALL, HEALTH, ALICE, False),
    ("a path is no resource", {"verbs": ["*"], "nonResourceURLs": ["*"]}, PODS, ALICE, False),
    ("no verbs", {**ALL, "verbs": []}, PODS, ALICE, False),
    ("no groups", {**ALL, "apiGroups": []}, PODS, ALICE, False),
    ("no resources", {**ALL, "resources": []}, PODS, ALICE, False),
    ("the verb", {**ALL, "verbs": ["list", "get"]}, PODS, ALICE, True),
    ("another verb", {**ALL, "verbs": ["list", "watch"]}, PODS, ALICE, False),
    ("verbs are told apart by case", {**ALL, "verbs": ["GET"]}, PODS, ALICE, False),
    ("not the verb", {**ALL, "verbs": ["-get"]}, PODS, ALICE, False),
    ("not another verb", {**ALL, "verbs": ["-list"]}, PODS, ALICE, True),
    ("not several verbs", {**ALL, "verbs": ["-list", "-get"]}, PODS, ALICE, False),
    ("positive values hide inverted ones", {**ALL, "verbs": ["-get", "get"]}, PODS, ALICE, True),
    ("and they alone count", {**ALL, "verbs": ["-get", "list"]}, APPS, ALICE, False),
    ("* beside others", {**ALL, "verbs": ["-get", "list", "*"]}, PODS, ALICE, True),
    ("the core group", {**ALL, "apiGroups": [""]}, PODS, ALICE, True),
    ("the core group only", {**ALL, "apiGroups": [""]}, APPS, ALICE, False),
    ("all but the core group", {**ALL, "apiGroups": ["-"]}, PODS, ALICE, False),
    ("all but the core group, another", {**ALL, "apiGroups": ["-"]}, APPS, ALICE, True),
    ("the resource", {**ALL, "resources": ["pods"]}, PODS, ALICE, True),
    ("not its subresources", {**ALL, "resources": ["pods"]}, LOG, ALICE, False),
    ("a subresource", {**ALL, "resources": ["pods/log"]}, LOG, ALICE, True),
    ("not the resource itself", {**ALL, "resources": ["pods/log"]}, PODS, ALICE, False),
    ("of any resource", {**ALL, "resources": ["*/log"]}, LOG, ALICE, True),
    ("of any resource, another", {**ALL, "resources": ["*/log"]}, STATUS, ALICE, False),
    ("of any resource, none", {**ALL, "resources": ["*/log"]}, PODS, ALICE, False),
    ("no such wildcard", {**ALL, "resources": ["pods/*"]}, LOG, ALICE, False),
    ("excluding it is refused", {**ALL, "resources": ["-pods/*"]}, APPS, ALICE, False),
    ("all but pods", {**ALL, "resources": ["-pods"]}, LOG, ALICE, True),
    ("all but pods and deployments", {**ALL, "resources": ["-pods", "-deployments"]}, PODS, ALICE,
     False),
    ("all but pods and deployments", {**ALL, "resources": ["-pods", "-deployments"]}, APPS, ALICE,
     False),
    ("all but pods and deployments", {**ALL, "resources": ["-pods", "-deployments"]}, LOG, ALICE,
     True),
    ("all but a subresource of any", {**ALL, "resources": ["-*/status"]}, STATUS, ALICE, False),
    ("all but a subresource of any", {**ALL, "resources": ["-*/status"]}, PODS, ALICE, True),
    ("excluding everything is refused", {**ALL, "resources": ["-*"]}, PODS, ALICE, False),
    ("the name", {**ALL, "resourceNames": ["p"]}, PODS, ALICE, True),
    ("another name", {**ALL, "resourceNames": ["q"]}, PODS, ALICE, False),
    ("a request without a name", {**ALL, "resourceNames": ["p"]}, LIST, ALICE, False),
    ("all but a name, without one", {**ALL, "resourceNames": ["-p"]}, LIST, ALICE, True),
    ("the user", {**ALL, "users": ["alice"]}, PODS, ALICE, True),
    ("another user", {**ALL, "users": ["bob"]}, PODS, ALICE, False),
    ("users by prefix", {**ALL, "users": ["al*"]}, PODS, ALICE, True),
    ("all but users by prefix", {**ALL, "users": ["-al*"]}, PODS, ALICE, False),
    ("all but users by prefix, another", {**ALL, "users": ["-al*"]}, PODS, ROBOT, True),
    ("a ServiceAccount", {**ALL, "serviceAccounts": [{"namespace": "ns", "name": "robot"}]}, PODS,
     ROBOT, True),
    ("a ServiceAccount and nobody else",
     {**ALL, "serviceAccounts": [{"namespace": "ns", "name": "robot"}]}, PODS, ALICE, False),
    ("a user or a ServiceAccount",
     {**ALL, "users": ["x"], "serviceAccounts": [{"namespace": "ns", "name": "robot"}]}, PODS,
     ROBOT, True),
    ("exclusions or a ServiceAccount that they exclude",
     {**ALL, "users": ["-system:*"], "serviceAccounts": [{"namespace": "ns", "name": "robot"}]},
     PODS, ROBOT, True),
    ("a ServiceAccount without a namespace", {**ALL, "serviceAccounts": [{"name": "robot"}]}, PODS,
     ROBOT, False),
    ("users * are ServiceAccounts too",
     {**ALL, "users": ["*"], "serviceAccounts": [{"namespace": "ns", "name": "x"}]}, PODS, ROBOT,
     True),
    ("one of the groups", {**ALL, "userGroups": ["team", "x"]}, PODS, ALICE, True),
    ("none of the groups", {**ALL, "userGroups": ["x"]}, PODS, ALICE, False),
    ("all but a group", {**ALL, "userGroups": ["-team"]}, PODS, ALICE, False),
    ("all but a group, another user", {**ALL, "userGroups": ["-team"]}, PODS, ROBOT, True),
    ("user and group", {**ALL, "users": ["alice"], "userGroups": ["x"]}, PODS, ALICE, False),
    ("a path", {"verbs": ["get"], "nonResourceURLs": ["/healthz"]}, HEALTH, ALICE, True),
    ("a path by prefix", {"verbs": ["get"], "nonResourceURLs": ["/heal*"]}, HEALTH, ALICE, True),
    ("what is below a path", {"verbs": ["get"], "nonResourceURLs": ["/healthz/*"]}, HEALTH, ALICE,
     False),
    ("a path cannot be excluded", {"verbs": ["get"], "nonResourceURLs": ["-/x"]}, HEALTH, ALICE,
     False),
    ("the verb of a path", {"verbs": ["post"], "nonResourceURLs": ["*"]}, HEALTH, ALICE, False),
    ("both kinds in one rule", {**ALL, "nonResourceURLs": ["/healthz"]}, HEALTH, ALICE, True),
    ("both kinds in one rule", {**ALL, "nonResourceURLs": ["/healthz"]}, PODS, ALICE, True),
]  # fmt: skip


def matches(raw: dict[str, Any], request: RequestInfo, user: DispatchUser) -> bool:
    translation = rules.translate_rule(msgspec.convert(raw, DispatchRuleSpec))
    return any(mismatch(rule, request, user) is None for rule in translation.rules)


@pytest.mark.parametrize(
    ("title", "rule", "request_", "user", "expected"), TABLE, ids=lambda v: str(v)[:60]
)
def test_rule_matches_as_documented(
    title: str, rule: dict[str, Any], request_: RequestInfo, user: DispatchUser, expected: bool
) -> None:
    assert matches(rule, request_, user) is expected, title


def naive(values: Sequence[str], empty: bool, same: Callable[[str], bool]) -> bool:
    """Evaluate a list as documented, value by value."""
    if not values:
        return empty
    if "*" in values:
        return True
    plain = [value for value in values if not value.startswith("-")]
    if plain:
        return any(same(value) for value in plain)
    return not any(same(value[1:]) for value in values)


def by_prefix(path: str) -> Callable[[str], bool]:
    return lambda value: (
        path.startswith(value.rstrip("*")) if value.endswith("*") else value == path
    )


def documented(rule: DispatchRuleSpec, request: RequestInfo, user: DispatchUser) -> bool:
    def resource(value: str) -> bool:
        if value.startswith("*/"):
            return request.subresource == value[2:]
        return value == request.combined

    accounts = [f"system:serviceaccount:{a.namespace}:{a.name}" for a in rule.service_accounts]
    who = user.name in accounts or naive(rule.users, not accounts, by_prefix(user.name))
    common = (
        naive(rule.verbs, False, lambda value: value == request.verb)
        and who
        and naive(rule.user_groups, True, lambda value: value in user.groups)
    )
    if not request.is_resource:
        return common and naive(rule.non_resource_urls, False, by_prefix(request.path))
    return (
        common
        and naive(rule.api_groups, False, lambda value: value == request.group)
        and naive(rule.resources, False, resource)
        and naive(rule.resource_names, True, lambda value: value == request.name)
    )


def values(*words: str, inverted: bool = True, wild: bool = True) -> st.SearchStrategy[list[str]]:
    every = [*words, *(f"-{word}" for word in words if inverted)]
    return st.lists(st.sampled_from([*every, *(["*"] if wild else [])]), max_size=3)


RULES = st.builds(
    DispatchRuleSpec,
    verbs=values("get", "list", "create"),
    api_groups=values("", "apps", "batch"),
    resources=values("pods", "pods/log", "*/log", "*/status", "deployments"),
    resource_names=values("p", "q", ""),
    users=values("alice", "al*", "bob", "system:*"),
    service_accounts=st.lists(
        st.sampled_from(["robot", "x"]).map(
            lambda name: ServiceAccountRef(name=name, namespace="ns")
        ),
        max_size=2,
    ),
    user_groups=values("team", "x", "system:authenticated"),
    non_resource_urls=values("/healthz", "/heal*", "/healthz/*", "/livez", inverted=False),
)
REQUESTS = st.sampled_from(
    [
        PODS,
        LOG,
        STATUS,
        LIST,
        APPS,
        HEALTH,
        parse_request("POST", "/apis/batch/v1/namespaces/n/jobs"),
        parse_request("GET", "/healthz/ping"),
        parse_request("GET", "/livez"),
        parse_request("PUT", "/"),
    ]
)
USERS = st.sampled_from(
    [
        ALICE,
        ROBOT,
        DispatchUser("bob", ("x",)),
        DispatchUser("alice"),
        DispatchUser("system:anonymous", ("x", "team")),
    ]
)


@settings(max_examples=1500, deadline=None)
@given(RULES, REQUESTS, USERS)
def test_translated_rules_equal_a_naive_implementation(
    rule: DispatchRuleSpec, request_: RequestInfo, user: DispatchUser
) -> None:
    translation = rules.translate_rule(rule)
    decided = any(
        mismatch(compiled_rule, request_, user) is None for compiled_rule in translation.rules
    )
    assert decided == documented(rule, request_, user)


ANYTHING = st.lists(st.text(alphabet='-*/aA"\n \0é', max_size=6), max_size=3).map(tuple)


FIELDS = [
    "verbs",
    "api_groups",
    "resources",
    "resource_names",
    "users",
    "user_groups",
    "non_resource_urls",
]


@given(st.builds(DispatchRuleSpec, **dict.fromkeys(FIELDS, ANYTHING)))
def test_any_rule_is_translated_or_rejected_with_a_reason(rule: DispatchRuleSpec) -> None:
    translation = rules.translate_rule(rule)
    assert translation.rules or translation.problems
    for compiled_rule in translation.rules:
        for field in compiled_rule.__struct_fields__:
            names = getattr(compiled_rule, field)
            assert list(names.exact) == sorted(set(names.exact))
            assert list(names.prefixes) == sorted(set(names.prefixes))


@pytest.mark.parametrize(
    ("field", "listed", "words"),
    [
        ("resources", ["-pods", "-nodes"], "all are excluded; KubeGateway matches everything"),
        ("resources", ["-*/status"], "'-*/status' is excluded; KubeGateway ignores it"),
        ("users", ["-user-*"], "'-user-*' is excluded"),
        ("userGroups", ["-team"], "'-team' is excluded"),
    ],
)
def test_differences_to_kubegateway_are_reported(field: str, listed: list[str], words: str) -> None:
    translation = rules.translate_rule(msgspec.convert({**ALL, field: listed}, DispatchRuleSpec))
    assert any(
        words in difference and difference.startswith(f"{field}: ")
        for difference in translation.differences
    )


@pytest.mark.parametrize("listed", [["-pods"], ["pods", "-nodes"], ["*"], ["*", "-a", "-b"]])
def test_no_difference_is_reported_when_kubegateway_does_the_same(listed: list[str]) -> None:
    assert (
        rules.translate_rule(
            msgspec.convert({**ALL, "resources": listed}, DispatchRuleSpec)
        ).differences
        == ()
    )
