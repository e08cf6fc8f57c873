"""Escalation checks of writes to roles and bindings."""

from __future__ import annotations

from typing import Any

import pytest

from kube_api_server.errors import StatusError
from kube_api_server.identity.users import User
from kube_api_server.rbac.authorizer import Authorizer
from kube_api_server.rbac.escalation import check_escalation
from kube_api_server.rbac.rules import EVERYTHING, RBAC_GROUP
from kube_api_server.rbac.signers import check_attestation

Object = dict[str, Any]

USER = User("u", groups=("g",))
ROOT = User("root", groups=("system:masters",))


def rule(verb: str, resource: str, group: str = "", *names: str) -> Object:
    fields = {"verbs": [verb], "apiGroups": [group], "resources": [resource]}
    return {**fields, "resourceNames": list(names)} if names else fields


GET_PODS, GET_NODES = rule("get", "pods"), rule("get", "nodes")


def named(namespace: str = "", **fields: Any) -> Object:
    metadata = {"name": "x"} | ({"namespace": namespace} if namespace else {})
    return {"metadata": metadata, **fields}


def role(*rules: Object, namespace: str = "") -> Object:
    return named(namespace, rules=list(rules))


def binding(kind: str, name: str, namespace: str = "", *subjects: str) -> Object:
    ref = {"apiGroup": RBAC_GROUP, "kind": kind, "name": name}
    return named(namespace, roleRef=ref, subjects=[{"kind": "User", "name": s} for s in subjects])


def holding(*rules: Object, namespace: str = "") -> Authorizer:
    """Build an authorizer that grants rules to USER, in a namespace or everywhere."""
    authorizer = Authorizer()
    authorizer.set("ClusterRole", "", "held", role(*rules))
    kind = "RoleBinding" if namespace else "ClusterRoleBinding"
    authorizer.set(kind, namespace, "held", binding("ClusterRole", "held", namespace, "u"))
    authorizer.set("ClusterRole", "", "nodes", role(GET_PODS, GET_NODES))
    authorizer.set("Role", "prod", "nodes", role(GET_NODES))
    return authorizer


def refused(held: Authorizer, kind: str, obj: Object, old: Object | None = None) -> str:
    """Return the message of a rejected write; empty if it is allowed."""
    try:
        check_escalation(held, USER, kind, obj, old)
    except StatusError as error:
        return error.message
    return ""


ATTEMPT = 'user "u" (groups=["g"]) is attempting to grant RBAC permissions not currently held:\n'
NODES = f'{ATTEMPT}{{APIGroups:[""], Resources:["nodes"], Verbs:["get"]}}'


def test_role_is_rejected_unless_user_has_its_rules() -> None:
    held = holding(GET_PODS)
    assert refused(held, "ClusterRole", role(GET_PODS)) == ""
    assert refused(held, "Role", role(GET_PODS, namespace="prod")) == ""
    assert refused(held, "ClusterRole", role(GET_PODS, GET_NODES)) == (
        f'clusterroles.{RBAC_GROUP} "x" is forbidden: {NODES}'
    )
    assert refused(held, "Role", role(GET_NODES, namespace="prod")) == (
        f'roles.{RBAC_GROUP} "x" is forbidden: {NODES}'
    )


def test_namespaced_rules_can_be_granted_only_in_their_namespace() -> None:
    held = holding(GET_PODS, namespace="prod")
    assert refused(held, "Role", role(GET_PODS, namespace="prod")) == ""
    assert ATTEMPT in refused(held, "Role", role(GET_PODS, namespace="test"))
    assert ATTEMPT in refused(held, "ClusterRole", role(GET_PODS))


@pytest.mark.parametrize(
    ("held", "creates", "updates"),
    [
        (rule("escalate", "roles", RBAC_GROUP), True, True),
        (rule("*", "roles", RBAC_GROUP), True, True),
        (rule("escalate", "roles", RBAC_GROUP, "x"), False, True),
        (rule("escalate", "roles", RBAC_GROUP, "y"), False, False),
        (rule("escalate", "clusterroles", RBAC_GROUP), False, False),
        (rule("update", "roles", RBAC_GROUP), False, False),
    ],
)
def test_escalate_verb_permits_granting_missing_rules(
    held: Object, creates: bool, updates: bool
) -> None:
    authorizer, obj = holding(held), role(GET_NODES, namespace="prod")
    old = role(namespace="prod")
    assert (refused(authorizer, "Role", obj) == "") is creates
    assert (refused(authorizer, "Role", obj, old) == "") is updates


def test_aggregation_rule_requires_cluster_admin() -> None:
    rule = {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}
    gathering = named(rules=[], aggregationRule=rule)
    message = (
        f'clusterroles.{RBAC_GROUP} "x" is forbidden: '
        "must have cluster-admin privileges to use the aggregationRule"
    )
    assert refused(holding(GET_PODS), "ClusterRole", gathering) == message
    assert refused(holding(GET_PODS), "ClusterRole", role(), gathering) == message
    assert refused(holding(*EVERYTHING), "ClusterRole", gathering) == ""


@pytest.mark.parametrize("old", [None, "changed"])
def test_binding_is_rejected_unless_user_has_rules_of_role(old: str | None) -> None:
    before = None if old is None else binding("ClusterRole", "nodes", "prod")
    held = holding(GET_PODS)
    requested = binding("ClusterRole", "nodes", "prod", "u")
    message = f'rolebindings.{RBAC_GROUP} "x" is forbidden: {NODES}'
    assert refused(held, "RoleBinding", requested, before) == message
    assert refused(holding(GET_PODS, GET_NODES), "RoleBinding", requested, before) == ""
    assert refused(held, "ClusterRoleBinding", binding("ClusterRole", "nodes")).startswith(
        f'clusterrolebindings.{RBAC_GROUP} "x" is forbidden'
    )


@pytest.mark.parametrize(
    ("held", "bound"),
    [
        (rule("bind", "clusterroles", RBAC_GROUP), True),
        (rule("bind", "clusterroles", RBAC_GROUP, "nodes"), True),
        (rule("bind", "clusterroles", RBAC_GROUP, "other"), False),
        (rule("bind", "roles", RBAC_GROUP), False),
        (rule("bind", "clusterroles"), False),
    ],
)
def test_bind_verb_permits_binding_of_role(held: Object, bound: bool) -> None:
    requested = binding("ClusterRole", "nodes", "prod", "u")
    assert (refused(holding(held), "RoleBinding", requested) == "") is bound
    assert (refused(holding(held, namespace="prod"), "RoleBinding", requested) == "") is bound
    assert refused(holding(held, namespace="test"), "RoleBinding", requested) != ""
    assert refused(holding(held, namespace="prod"), "ClusterRoleBinding", requested | named()) != ""


def test_forbidden_error_names_its_object() -> None:
    with pytest.raises(StatusError) as caught:
        check_escalation(holding(), USER, "Role", role(GET_NODES, namespace="prod"))
    error = caught.value
    assert (error.code, error.reason, error.kind, error.group, error.name) == (
        (403, "Forbidden", "roles", RBAC_GROUP, "x")
    )


def test_binding_to_missing_role_is_rejected() -> None:
    lost = binding("ClusterRole", "lost", "prod")
    message = f'clusterroles.{RBAC_GROUP} "lost" not found'
    assert refused(holding(*EVERYTHING[1:]), "RoleBinding", lost) == message
    assert refused(holding(rule("bind", "clusterroles", RBAC_GROUP)), "RoleBinding", lost) == ""
    elsewhere = binding("Role", "nodes", "test")
    assert refused(holding(GET_NODES), "RoleBinding", elsewhere) == (
        f'roles.{RBAC_GROUP} "nodes" not found'
    )
    assert refused(holding(), "ClusterRoleBinding", binding("Role", "nodes")) == (
        'unsupported role reference kind: "Role"'
    )


def test_garbage_collector_metadata_changes_are_allowed() -> None:
    held, old = holding(), role(GET_NODES)
    new = {**old, "metadata": {"name": "x", "finalizers": ["a/b"], "ownerReferences": []}}
    assert refused(held, "ClusterRole", new, old) == ""
    assert refused(held, "ClusterRole", {**new, "metadata": {"name": "x", "labels": {}}}, old) != ""


def test_system_masters_can_write_any_role() -> None:
    check_escalation(Authorizer(), ROOT, "ClusterRole", role(*EVERYTHING))
    check_escalation(Authorizer(), ROOT, "ClusterRoleBinding", binding("ClusterRole", "lost"))


CERTIFICATES = "certificates.k8s.io"


@pytest.mark.parametrize(
    ("held", "signer", "allowed"),
    [
        ((), "", True),
        ((), "example.com/s", False),
        (("example.com/s",), "example.com/s", True),
        (("example.com/*",), "example.com/s", True),
        (("example.com/t", "example.org/*"), "example.com/s", False),
    ],
)
def test_bundle_of_a_signer_needs_permission_to_attest(
    held: tuple[str, ...], signer: str, allowed: bool
) -> None:
    authorizer = holding(*(rule("attest", "signers", CERTIFICATES, name) for name in held))
    bundle = named(spec={"signerName": signer, "trustBundle": "text"})
    if allowed:
        check_attestation(authorizer, USER, bundle)
        return
    with pytest.raises(StatusError) as error:
        check_attestation(authorizer, USER, bundle)
    assert error.value.message == (
        'clustertrustbundles.certificates.k8s.io "x" is forbidden: '
        f'user not permitted to attest for signerName "{signer}"'
    )


def test_bundle_of_a_signer_keeps_its_owner_without_permission() -> None:
    bundle = named(spec={"signerName": "example.com/s", "trustBundle": "text"})
    metadata = {**bundle["metadata"], "ownerReferences": [], "finalizers": ["example.com/f"]}
    check_attestation(holding(), USER, {**bundle, "metadata": metadata}, bundle)
