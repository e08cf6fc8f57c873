"""Validation of the four kinds, with the messages that clients see."""

from __future__ import annotations

from typing import Any

import pytest

from kube_api_server.errors import Cause, invalid_error
from kube_api_server.rbac.rules import RBAC_GROUP
from kube_api_server.rbac.validation import validate_rbac, with_defaults

Object = dict[str, Any]

RULE: Object = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}
URLS: Object = {"verbs": ["get"], "nonResourceURLs": ["/a", "/b"]}
NAMESPACED = "namespaced rules cannot apply to non-resource URLs"
BOTH = "rules cannot apply to both regular resources and non-resource URLs"


def messages(causes: list[Cause]) -> list[str]:
    return [f"{cause.reason} {cause.field}: {cause.message}" for cause in causes]


@pytest.mark.parametrize(
    ("kind", "rule", "expected"),
    [
        ("Role", RULE, []),
        ("ClusterRole", RULE, []),
        ("ClusterRole", URLS, []),
        ("ClusterRole", RULE | {"apiGroups": None}, [
            "FieldValueRequired rules[0].apiGroups: Required value: "
            "resource rules must supply at least one api group"]),
        ("Role", RULE | {"resources": []}, [
            "FieldValueRequired rules[0].resources: Required value: "
            "resource rules must supply at least one resource"]),
        ("Role", RULE | {"verbs": []}, [
            "FieldValueRequired rules[0].verbs: Required value: "
            "verbs must contain at least one value"]),
        ("Role", URLS, [
            f'FieldValueInvalid rules[0].nonResourceURLs: Invalid value: ["/a","/b"]: {NAMESPACED}',
        ]),
        ("ClusterRole", URLS | {"resourceNames": ["a"]}, [
            f'FieldValueInvalid rules[0].nonResourceURLs: Invalid value: ["/a","/b"]: {BOTH}']),
    ],
)  # fmt: skip
def test_role_rules_are_validated(kind: str, rule: Object, expected: list[str]) -> None:
    assert messages(validate_rbac(kind, {"rules": [rule]})) == expected


def test_role_without_rules_is_valid() -> None:
    assert validate_rbac("Role", {}) == validate_rbac("ClusterRole", {"rules": None}) == []


def test_validation_message_equals_that_of_kubernetes() -> None:
    causes = validate_rbac("Role", {"rules": [RULE, RULE | {"verbs": []}]})
    assert str(invalid_error("Role", RBAC_GROUP, "x", causes)) == (
        'Role.rbac.authorization.k8s.io "x" is invalid: rules[1].verbs: Required value: '
        "verbs must contain at least one value"
    )


PATH = "aggregationRule.clusterRoleSelectors"


@pytest.mark.parametrize(
    ("selectors", "expected"),
    [
        ([{"matchLabels": {"a": "b"}}], []),
        ([], [f"FieldValueRequired {PATH}: Required value: at least one clusterRoleSelector "
              "required if aggregationRule is non-nil"]),
        ([{"matchExpressions": [{"key": "a", "operator": "In"}]}], [
            f"FieldValueRequired {PATH}[0].matchExpressions[0].values: Required value: "
            "must be specified when `operator` is 'In' or 'NotIn'"]),
        ([{"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}], [
            f"FieldValueForbidden {PATH}[0].matchExpressions[0].values: Forbidden: "
            "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"]),
        ([{"matchExpressions": [{"key": "a", "operator": "Near"}]}], [
            f'FieldValueInvalid {PATH}[0].matchExpressions[0].operator: Invalid value: "Near": '
            "not a valid selector operator"]),
    ],
)  # fmt: skip
def test_aggregation_rules_are_validated(selectors: list[Object], expected: list[str]) -> None:
    obj = {"aggregationRule": {"clusterRoleSelectors": selectors}}
    assert messages(validate_rbac("ClusterRole", obj)) == expected


def bound(kind: str = "ClusterRole", name: str = "view", **subject: str) -> Object:
    ref = {"apiGroup": RBAC_GROUP, "kind": kind, "name": name}
    return {"roleRef": ref, "subjects": [subject] if subject else []}


@pytest.mark.parametrize(
    ("kind", "obj", "expected"),
    [
        ("RoleBinding", bound(), []),
        ("RoleBinding", bound("Role"), []),
        ("ClusterRoleBinding", bound("Role"), [
            'FieldValueNotSupported roleRef.kind: Unsupported value: "Role": '
            'supported values: "ClusterRole"']),
        ("RoleBinding", bound("Pod"), [
            'FieldValueNotSupported roleRef.kind: Unsupported value: "Pod": '
            'supported values: "Role", "ClusterRole"']),
        ("RoleBinding", bound(name=""), ["FieldValueRequired roleRef.name: Required value"]),
        ("RoleBinding", bound(name=".."), [
            """FieldValueInvalid roleRef.name: Invalid value: "..": may not be '..'"""]),
        ("RoleBinding", bound(name="a/b%"), [
            """FieldValueInvalid roleRef.name: Invalid value: "a/b%": may not contain '/'""",
            """FieldValueInvalid roleRef.name: Invalid value: "a/b%": may not contain '%'"""]),
        ("RoleBinding", {"roleRef": {"apiGroup": "x", "kind": "Role", "name": "y"}}, [
            'FieldValueNotSupported roleRef.apiGroup: Unsupported value: "x": '
            f'supported values: "{RBAC_GROUP}"']),
        ("ClusterRoleBinding", bound(kind="ClusterRole"), []),
    ],
)  # fmt: skip
def test_role_references_are_validated(kind: str, obj: Object, expected: list[str]) -> None:
    assert messages(validate_rbac(kind, obj)) == expected


@pytest.mark.parametrize(
    ("kind", "subject", "expected"),
    [
        ("RoleBinding", {"kind": "User", "name": "a", "apiGroup": RBAC_GROUP}, []),
        ("RoleBinding", {"kind": "Group", "name": "a", "apiGroup": RBAC_GROUP}, []),
        ("RoleBinding", {"kind": "ServiceAccount", "name": "a"}, []),
        ("ClusterRoleBinding", {"kind": "ServiceAccount", "name": "a", "namespace": "b"}, []),
        ("ClusterRoleBinding", {"kind": "ServiceAccount", "name": "a"}, [
            "FieldValueRequired subjects[0].namespace: Required value"]),
        ("RoleBinding", {"kind": "ServiceAccount", "name": "a", "apiGroup": RBAC_GROUP}, [
            f'FieldValueNotSupported subjects[0].apiGroup: Unsupported value: "{RBAC_GROUP}": '
            'supported values: ""']),
        ("RoleBinding", {"kind": "User", "name": "a", "apiGroup": "x"}, [
            'FieldValueNotSupported subjects[0].apiGroup: Unsupported value: "x": '
            f'supported values: "{RBAC_GROUP}"']),
        ("RoleBinding", {"kind": "User", "name": "", "apiGroup": RBAC_GROUP}, [
            "FieldValueRequired subjects[0].name: Required value"]),
        ("RoleBinding", {"kind": "Robot", "name": "a"}, [
            'FieldValueNotSupported subjects[0].kind: Unsupported value: "Robot": '
            'supported values: "ServiceAccount", "User", "Group"']),
    ],
)  # fmt: skip
def test_subjects_are_validated(kind: str, subject: Object, expected: list[str]) -> None:
    assert messages(validate_rbac(kind, bound() | {"subjects": [subject]})) == expected


def test_service_account_subject_must_be_a_dns_subdomain() -> None:
    (cause,) = validate_rbac("RoleBinding", bound(kind="Role") | {
        "subjects": [{"kind": "ServiceAccount", "name": "A_b"}]
    })  # fmt: skip
    assert cause.field == "subjects[0].name"
    assert cause.message.startswith('Invalid value: "A_b": a lowercase RFC 1123 subdomain must')


def test_role_reference_is_immutable() -> None:
    (cause,) = validate_rbac("RoleBinding", bound(name="edit"), bound(name="view"))
    reference = f'{{"APIGroup":"{RBAC_GROUP}","Kind":"ClusterRole","Name":"edit"}}'
    assert messages([cause]) == [
        f"FieldValueInvalid roleRef: Invalid value: {reference}: cannot change roleRef"
    ]
    assert validate_rbac("RoleBinding", bound(), bound()) == []


def test_defaults_fill_api_groups() -> None:
    written = {
        "roleRef": {"kind": "ClusterRole", "name": "view"},
        "subjects": [
            {"kind": "User", "name": "a"},
            {"kind": "Group", "name": "b", "apiGroup": ""},
            {"kind": "ServiceAccount", "name": "c", "namespace": "d"},
        ],
    }
    filled = with_defaults("ClusterRoleBinding", written)
    assert filled["roleRef"]["apiGroup"] == RBAC_GROUP
    assert [one.get("apiGroup") for one in filled["subjects"]] == [RBAC_GROUP, RBAC_GROUP, None]
    assert validate_rbac("ClusterRoleBinding", filled) == []
    assert "apiGroup" not in written["roleRef"]
    assert with_defaults("Role", {"rules": []}) == {"rules": []}
    assert with_defaults("RoleBinding", {}) == {}
