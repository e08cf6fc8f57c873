"""Default roles and bindings, and their restoration at every start."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from gatehouse.apiserver_extension.roles import CONTROLLER_USER, NODE_USER, gatehouse_roles
from kube_api_server.builtin.kinds import BUILTIN_KINDS
from kube_api_server.identity.users import User
from kube_api_server.rbac import defaults
from kube_api_server.rbac.aggregation import changed_roles
from kube_api_server.rbac.authorizer import Authorizer
from kube_api_server.rbac.coverage import rules_cover
from kube_api_server.rbac.defaults import reconcile_default
from kube_api_server.rbac.role_objects import AUTOUPDATE
from kube_api_server.rbac.rules import RBAC_GROUP, Attributes
from kube_api_server.rbac.validation import validate_rbac, with_defaults

Object = dict[str, Any]
GATEWAY_API = "gateway.networking.k8s.io"


READ_ONLY = ("endpoints", "endpointslices", "events", "resourcequotas")
"""Kinds of namespaces that their users only read. Events may be created in the core group."""


def objects() -> list[Object]:
    """Return the objects of Kubernetes and of Gatehouse."""
    return [*defaults.objects(), *gatehouse_roles()]


def server() -> Authorizer:
    """Build the authorizer of a new server, with a user for each user-facing role."""
    held, roles = Authorizer(), [one for one in objects() if one["kind"] == "ClusterRole"]
    for one in [*objects(), *changed_roles(roles)]:
        held.set(one["kind"], "", one["metadata"]["name"], one)
    for name in ("admin", "edit", "view"):
        ref = {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": name}
        subjects = [{"kind": "User", "name": name}]
        held.set("RoleBinding", "prod", name, {"roleRef": ref, "subjects": subjects})
    return held


SERVER = server()


def may(user: str, text: str, group: str = "", namespace: str = "prod") -> bool:
    verb, resource = text.split()
    plural, _, subresource = resource.partition("/")
    attributes = Attributes(verb, group, plural, subresource, namespace)
    return SERVER.authorize(User(user), attributes)[0]


@pytest.mark.parametrize(
    ("user", "verb", "denied"),
    [
        ("view", "list", {"leases", "podtemplates", "rolebindings", "roles", "secrets"}),
        ("edit", "create", {*READ_ONLY, "podtemplates", "rolebindings", "roles"}),
        ("admin", "create", {*READ_ONLY, "podtemplates"}),
    ],
)
def test_roles_of_users_include_the_kinds_of_namespaces(
    user: str, verb: str, denied: set[str]
) -> None:
    """The exceptions are those of Kubernetes, which has no rule for PodTemplates."""
    kinds = [served.resource for served in BUILTIN_KINDS if served.persisted]
    assert denied == {
        kind.plural
        for kind in kinds
        if kind.namespaced and not may(user, f"{verb} {kind.plural}", kind.group)
    }


def test_default_objects_are_valid_and_distinct() -> None:
    names = set()
    for obj in objects():
        kind, metadata = obj["kind"], obj["metadata"]
        assert validate_rbac(kind, obj) == []
        assert with_defaults(kind, obj) == obj
        assert obj["apiVersion"] == "rbac.authorization.k8s.io/v1"
        assert metadata["labels"]["kubernetes.io/bootstrapping"] == "rbac-defaults"
        assert metadata["annotations"] == {AUTOUPDATE: "true"}
        names.add((kind, metadata["name"]))
    assert len(names) == len(objects())
    for kind, name in names:
        assert kind == "ClusterRole" or ("ClusterRole", name) in names
    objects()[0]["rules"].clear()
    assert objects()[0]["rules"]


@pytest.mark.parametrize(
    ("text", "group", "least"),
    [
        ("list pods", "", "view"),
        ("get pods/log", "", "view"),
        ("watch events", "events.k8s.io", "view"),
        ("get deployments/scale", "apps", "view"),
        ("list httproutes", GATEWAY_API, "view"),
        ("get gateways/status", GATEWAY_API, "view"),
        ("get snippetsfilters", "gateway.nginx.org", "view"),
        ("get secrets", "", "edit"),
        ("create deployments", "apps", "edit"),
        ("patch deployments/scale", "apps", "edit"),
        ("create serviceaccounts/token", "", "edit"),
        ("delete tcproutes", GATEWAY_API, "edit"),
        ("update leases", "coordination.k8s.io", "edit"),
        ("update horizontalpodautoscalers", "autoscaling", "edit"),
        ("create rolebindings", RBAC_GROUP, "admin"),
        ("create localsubjectaccessreviews", "authorization.k8s.io", "admin"),
        ("create snippetsfilters", "gateway.nginx.org", "admin"),
        ("list upstreamclusters", "proxy.kubegateway.io", "admin"),
        ("update gateways/status", GATEWAY_API, ""),
        ("create gatewayclasses", GATEWAY_API, ""),
        ("update pods/status", "", ""),
        ("create endpointslices", "discovery.k8s.io", ""),
        ("update namespaces", "", ""),
        ("get nodes", "", ""),
        ("create clusterroles", RBAC_GROUP, ""),
        ("bind roles", RBAC_GROUP, ""),
        ("escalate roles", RBAC_GROUP, ""),
        ("get customresourcedefinitions", "apiextensions.k8s.io", ""),
    ],
)
def test_user_roles_grant_expected_permissions(text: str, group: str, least: str) -> None:
    order = ("view", "edit", "admin")
    allowed = [name for name in order if may(name, text, group)]
    assert allowed == ([] if not least else list(order[order.index(least) :]))
    assert not any(may(name, text, group, "test") for name in order)


@pytest.mark.parametrize(
    ("user", "text", "group", "allowed"),
    [
        (CONTROLLER_USER, "watch secrets", "", True),
        (CONTROLLER_USER, "create deployments", "apps", True),
        (CONTROLLER_USER, "create deployments", "", False),
        (CONTROLLER_USER, "delete secrets", "", True),
        (CONTROLLER_USER, "create gatewayclasses", GATEWAY_API, True),
        (CONTROLLER_USER, "update gatewayclasses", GATEWAY_API, False),
        (CONTROLLER_USER, "patch gatewayclasses", GATEWAY_API, False),
        (CONTROLLER_USER, "update gatewayclasses/status", GATEWAY_API, True),
        (CONTROLLER_USER, "update gateways", GATEWAY_API, False),
        (CONTROLLER_USER, "create events", "", True),
        (CONTROLLER_USER, "create events", "events.k8s.io", False),
        (CONTROLLER_USER, "create tokenreviews", "authentication.k8s.io", True),
        (CONTROLLER_USER, "create serviceaccounts/token", "", False),
        (CONTROLLER_USER, "create pods", "", False),
        (NODE_USER, "create pods", "", True),
        (NODE_USER, "update pods/status", "", True),
        (NODE_USER, "update deployments/status", "apps", True),
        (NODE_USER, "update deployments", "apps", False),
        (NODE_USER, "get secrets", "", True),
        (NODE_USER, "list secrets", "", False),
        (NODE_USER, "create serviceaccounts/token", "", True),
        (NODE_USER, "create events", "events.k8s.io", False),
        (NODE_USER, "patch pods", "", False),
        (NODE_USER, "update jobs/status", "batch", True),
        (NODE_USER, "list endpointslices", "discovery.k8s.io", False),
        (NODE_USER, "get gateways", GATEWAY_API, False),
    ],
)
def test_component_roles_grant_expected_permissions(
    user: str, text: str, group: str, allowed: bool
) -> None:
    assert may(user, text, group) is allowed


@pytest.mark.parametrize(
    ("group", "requested", "allowed"),
    [
        ("system:unauthenticated", Attributes("get", path="/version"), True),
        ("system:unauthenticated", Attributes("get", path="/apis"), False),
        ("system:authenticated", Attributes("get", path="/apis/apps/v1"), True),
        ("system:authenticated", Attributes("get", path="/openid/v1/jwks"), False),
        ("system:serviceaccounts", Attributes("get", path="/openid/v1/jwks"), True),
        ("system:authenticated",
         Attributes("create", "authorization.k8s.io", "selfsubjectaccessreviews"), True),
        ("system:authenticated",
         Attributes("create", "authorization.k8s.io", "subjectaccessreviews"), False),
        ("system:authenticated", Attributes("list", "", "pods"), False),
    ],
)  # fmt: skip
def test_default_groups_have_expected_permissions(
    group: str, requested: Attributes, allowed: bool
) -> None:
    assert SERVER.authorize(User("somebody", groups=(group,)), requested)[0] is allowed


def default(kind: str, name: str) -> Object:
    return next(o for o in objects() if (o["kind"], o["metadata"]["name"]) == (kind, name))


def test_reconcile_creates_missing_objects_and_keeps_complete_objects() -> None:
    for requested in objects():
        assert reconcile_default(None, requested) == requested
        stored = copy.deepcopy(requested)
        stored["metadata"] |= {"uid": "1", "resourceVersion": "2"}
        assert reconcile_default(stored, requested) is None


def test_reconcile_adds_rules_and_keeps_additions() -> None:
    requested = default("ClusterRole", "system:basic-user")
    stored = copy.deepcopy(requested)
    extra = {"verbs": ["get"], "apiGroups": [""], "resources": ["nodes"]}
    stored["rules"] = [requested["rules"][1], extra]
    stored["metadata"] |= {"labels": {"mine": "1"}, "uid": "1"}
    before = copy.deepcopy(stored)
    after = reconcile_default(stored, requested)
    assert stored == before
    assert after is not None
    assert after["rules"][:2] == stored["rules"]
    assert rules_cover(after["rules"], requested["rules"])
    assert after["metadata"]["labels"] == {"mine": "1", **requested["metadata"]["labels"]}
    assert after["metadata"]["uid"] == "1"
    assert reconcile_default(after, requested) is None


def test_reconcile_skips_protected_objects() -> None:
    requested = default("ClusterRole", "system:basic-user")
    stored = {**requested, "rules": [], "metadata": {"annotations": {AUTOUPDATE: "false"}}}
    assert reconcile_default(stored, requested) is None


def test_reconcile_adds_subjects() -> None:
    requested = default("ClusterRoleBinding", "system:public-info-viewer")
    stored = copy.deepcopy(requested)
    stored["subjects"] = [
        {"kind": "User", "name": "a"},
        {"kind": "Group", "name": "system:authenticated"},
    ]
    after = reconcile_default(stored, requested)
    assert after is not None
    assert [one["name"] for one in after["subjects"]] == [
        "a",
        "system:authenticated",
        "system:unauthenticated",
    ]


def test_reconcile_replaces_binding_when_its_role_differs() -> None:
    requested = default("ClusterRoleBinding", "cluster-admin")
    stored = copy.deepcopy(requested)
    stored["roleRef"]["name"] = "view"
    stored["metadata"]["uid"] = "1"
    assert reconcile_default(stored, requested) == requested


def test_reconcile_restores_aggregation_rule() -> None:
    requested = default("ClusterRole", "edit")
    other = {"matchLabels": {"a": "b"}}
    stored = copy.deepcopy(requested)
    stored["rules"] = [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]
    stored["aggregationRule"] = {"clusterRoleSelectors": [other]}
    after = reconcile_default(stored, requested)
    assert after is not None
    selectors = requested["aggregationRule"]["clusterRoleSelectors"]
    assert after["aggregationRule"]["clusterRoleSelectors"] == [other, *selectors]
    assert after["rules"] == stored["rules"]
    plain = default("ClusterRole", "system:discovery")
    unwanted = {**copy.deepcopy(plain), "aggregationRule": {"clusterRoleSelectors": [other]}}
    assert reconcile_default(unwanted, plain) == plain
