"""Decisions by roles and bindings, and their index."""

from __future__ import annotations

from typing import Any

import pytest

from kube_api_server.identity.users import User
from kube_api_server.rbac.authorizer import Authorizer
from kube_api_server.rbac.rules import EVERYTHING, Attributes

Object = dict[str, Any]

ALICE = User("alice", groups=("dev", "system:authenticated"))
BUILDER = User("system:serviceaccount:ci:builder", groups=("system:serviceaccounts",))
ROOT = User("root", groups=("system:masters",))

READ_PODS: Object = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}
READ_METRICS: Object = {"verbs": ["get"], "nonResourceURLs": ["/metrics"]}


def role(*rules: Object) -> Object:
    return {"rules": list(rules)}


def binding(ref: str, *subjects: str) -> Object:
    kind, name = ref.split("/")
    rbac_subjects = []
    for subject in subjects:
        what, who, *where = subject.split("/")
        rbac_subjects.append(
            {"kind": what, "name": who} | ({"namespace": where[0]} if where else {})
        )
    return {"roleRef": {"kind": kind, "name": name}, "subjects": rbac_subjects}


def pods(namespace: str = "", verb: str = "get") -> Attributes:
    return Attributes(verb, "", "pods", namespace=namespace)


def holding(**objects: Object) -> Authorizer:
    """Build an authorizer of objects named like `ClusterRole__name` and `Role__namespace__name`."""
    authorizer = Authorizer()
    for where, obj in objects.items():
        kind, *names = where.split("__")
        authorizer.set(kind, names[0] if len(names) == 2 else "", names[-1], obj)
    return authorizer


@pytest.mark.parametrize(
    ("subject", "user", "description"),
    [
        ("User/alice", ALICE, 'User "alice"'),
        ("Group/dev", ALICE, 'Group "dev"'),
        ("ServiceAccount/builder/ci", BUILDER, 'ServiceAccount "builder/ci"'),
        ("User/system:serviceaccount:ci:builder", BUILDER,
         'User "system:serviceaccount:ci:builder"'),
    ],
)  # fmt: skip
def test_cluster_role_binding_applies_to_all_namespaces(
    subject: str, user: User, description: str
) -> None:
    held = holding(
        ClusterRole__reader=role(READ_PODS),
        ClusterRoleBinding__b=binding("ClusterRole/reader", subject),
    )
    reason = f'RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "reader" to {description}'
    assert held.authorize(user, pods()) == (True, reason)
    assert held.authorize(user, pods("default")) == (True, reason)
    assert held.authorize(user, pods(verb="list")) == (False, "")
    assert held.authorize(User("bob"), pods()) == (False, "")


@pytest.mark.parametrize("kind", ["Role", "ClusterRole"])
def test_role_binding_applies_to_its_namespace_only(kind: str) -> None:
    held = holding(
        Role__prod__reader=role(READ_PODS),
        ClusterRole__reader=role(READ_PODS, READ_METRICS),
        RoleBinding__prod__b=binding(f"{kind}/reader", "User/bob", "User/alice", "Group/dev"),
    )
    assert held.authorize(ALICE, pods("prod")) == (
        True,
        f'RBAC: allowed by RoleBinding "b/prod" of {kind} "reader" to User "alice"',
    )
    assert held.authorize(ALICE, pods("test")) == (False, "")
    assert held.authorize(ALICE, pods()) == (False, "")
    url = Attributes("get", namespace="prod", path="/metrics")
    assert held.authorize(ALICE, url) == (False, "")


@pytest.mark.parametrize(
    "subject",
    ["ServiceAccount/builder", "User", "Group/", "Other/alice", "ServiceAccount//ci", "User/Alice"],
)
def test_invalid_subjects_of_cluster_binding_are_ignored(subject: str) -> None:
    kind, *rest = subject.split("/")
    subjects = [dict(zip(("kind", "name", "namespace"), (kind, *rest), strict=False))]
    obj = {"roleRef": {"kind": "ClusterRole", "name": "reader"}, "subjects": subjects}
    held = holding(ClusterRole__reader=role(READ_PODS), ClusterRoleBinding__b=obj)
    for user in (ALICE, BUILDER, User("", groups=("",))):
        assert held.authorize(user, pods("ci")) == (False, "")


def test_service_account_subject_defaults_to_namespace_of_binding() -> None:
    held = holding(
        Role__ci__reader=role(READ_PODS),
        RoleBinding__ci__b=binding("Role/reader", "ServiceAccount/builder"),
    )
    assert held.authorize(BUILDER, pods("ci")) == (
        True,
        'RBAC: allowed by RoleBinding "b/ci" of Role "reader" to ServiceAccount "builder/ci"',
    )


def test_cluster_role_binding_ignores_namespaced_roles() -> None:
    held = holding(
        ClusterRole__reader=role(READ_PODS),
        Role__prod__reader=role(READ_PODS),
        ClusterRoleBinding__b=binding("Role/reader", "User/alice"),
    )
    assert held.authorize(ALICE, pods("prod")) == (False, "")


def test_system_masters_are_always_authorized() -> None:
    authorizer = Authorizer()
    assert authorizer.authorize(ROOT, Attributes("frobnicate", path="/x")) == (True, "")
    assert authorizer.rules_for(ROOT, "any") == list(EVERYTHING)


def test_reason_names_missing_roles_when_request_is_denied() -> None:
    held = holding(
        ClusterRoleBinding__b=binding("ClusterRole/gone", "User/alice"),
        ClusterRoleBinding__c=binding("ClusterRole/gone", "Group/dev"),
    )
    lost = 'clusterrole.rbac.authorization.k8s.io "gone" not found'
    assert held.authorize(ALICE, pods("prod")) == (False, f"RBAC: {lost}")
    held.set("RoleBinding", "prod", "d", binding("Role/lost", "User/alice"))
    both = f'[{lost}, role.rbac.authorization.k8s.io "lost" not found]'
    assert held.authorize(ALICE, pods("prod")) == (False, f"RBAC: {both}")
    held.set("Role", "prod", "lost", role(READ_PODS))
    assert held.authorize(ALICE, pods("prod"))[0]


def test_changes_of_roles_and_bindings_apply_at_once() -> None:
    authorizer = Authorizer()

    def may() -> bool:
        return authorizer.authorize(ALICE, pods())[0]

    assert not may()
    authorizer.set("ClusterRoleBinding", "", "b", binding("ClusterRole/reader", "User/alice"))
    assert not may()
    authorizer.set("ClusterRole", "", "reader", role(READ_PODS))
    assert may()
    authorizer.set("ClusterRole", "", "reader", role())
    assert not may()
    authorizer.set("ClusterRole", "", "reader", role(READ_PODS))
    authorizer.set("ClusterRoleBinding", "", "b", binding("ClusterRole/reader", "User/bob"))
    assert not may()
    authorizer.set("ClusterRoleBinding", "", "b", binding("ClusterRole/reader", "Group/dev"))
    assert may()
    authorizer.set("ClusterRoleBinding", "", "b", None)
    authorizer.set("ClusterRoleBinding", "", "b", None)
    assert not may()
    authorizer.set("ClusterRoleBinding", "", "b", binding("ClusterRole/reader", "Group/dev"))
    authorizer.set("ClusterRole", "", "reader", None)
    assert not may()


def test_bindings_with_one_name_in_several_namespaces_are_independent() -> None:
    held = holding(
        ClusterRole__reader=role(READ_PODS),
        RoleBinding__one__b=binding("ClusterRole/reader", "User/alice"),
        RoleBinding__two__b=binding("ClusterRole/reader", "User/alice"),
        ClusterRoleBinding__b=binding("ClusterRole/reader", "User/bob"),
    )
    held.set("RoleBinding", "one", "b", None)
    assert [held.authorize(ALICE, pods(where))[0] for where in ("one", "two")] == [False, True]
    assert held.authorize(User("bob"), pods("one"))[0]


def test_rules_for_user_are_listed_once_per_binding() -> None:
    held = holding(
        ClusterRole__metrics=role(READ_METRICS),
        ClusterRoleBinding__m=binding("ClusterRole/metrics", "User/alice", "Group/dev"),
        Role__prod__reader=role(READ_PODS),
        RoleBinding__prod__b=binding("Role/reader", "Group/dev"),
    )
    assert held.rules_for(ALICE, "") == [READ_METRICS]
    assert held.rules_for(ALICE, "prod") == [READ_METRICS, READ_PODS]
    assert held.rules_for(User("bob"), "prod") == []


def test_rules_of_returns_rules_of_referenced_role() -> None:
    held = holding(Role__prod__r=role(READ_PODS), ClusterRole__r=role(READ_METRICS))
    assert held.rules_of({"kind": "Role", "name": "r"}, "prod") == [READ_PODS]
    assert held.rules_of({"kind": "ClusterRole", "name": "r"}, "prod") == [READ_METRICS]
    assert held.rules_of({"kind": "Role", "name": "r"}, "test") is None
    assert held.rules_of({"kind": "Role", "name": "r"}, "") is None
    assert held.rules_of({"kind": "Other", "name": "r"}, "prod") is None


@pytest.mark.parametrize(
    ("kind", "namespace"),
    [
        ("Role", ""),
        ("RoleBinding", ""),
        ("ClusterRole", "x"),
        ("ClusterRoleBinding", "x"),
        ("Pod", "x"),
    ],
)
def test_object_of_wrong_scope_or_kind_is_rejected(kind: str, namespace: str) -> None:
    with pytest.raises(ValueError, match=kind):
        Authorizer().set(kind, namespace, "name", {})


def test_decision_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    authorizer, checks = Authorizer(cache_size=2), list[Attributes]()
    decide = Authorizer._decide

    def counted(self: Authorizer, user: User, attributes: Attributes) -> tuple[bool, str]:
        checks.append(attributes)
        return decide(self, user, attributes)

    monkeypatch.setattr(Authorizer, "_decide", counted)
    for where in ("a", "a", "b", "b", "a", "c", "a"):
        authorizer.authorize(ALICE, pods(where))
    assert [one.namespace for one in checks] == ["a", "b", "c", "a"]
    authorizer.authorize(User("alice"), pods("a"))
    assert len(checks) == 5
