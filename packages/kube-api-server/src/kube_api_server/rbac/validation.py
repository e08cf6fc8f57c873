"""Validation of Roles, ClusterRoles and their bindings, with the messages of Kubernetes.

Schemas check the types of fields. This module checks everything else.
"""

from __future__ import annotations

from collections.abc import Iterator

from kube_api_server.causes import (
    forbidden_cause,
    invalid_cause,
    required_cause,
    unsupported_cause,
)
from kube_api_server.errors import Cause
from kube_api_server.objects.metadata import SUBDOMAIN, SUBDOMAIN_RULE
from kube_api_server.rbac.rules import RBAC_GROUP, PolicyRule, values
from kube_base.types.objects import Object


def with_defaults(kind: str, obj: Object) -> Object:
    """Set the default API group of the role and the subjects of a binding."""
    if not kind.endswith("Binding"):
        return obj
    filled = {**obj}
    if "roleRef" in obj:
        filled["roleRef"] = {
            **obj["roleRef"],
            "apiGroup": obj["roleRef"].get("apiGroup") or RBAC_GROUP,
        }
    if obj.get("subjects"):
        filled["subjects"] = [_subject_with_defaults(subject) for subject in obj["subjects"]]
    return filled


def validate_rbac(kind: str, obj: Object, old: Object | None = None) -> list[Cause]:
    """Return the violations of an object of one of the four kinds. It must have its defaults."""
    namespaced = not kind.startswith("Cluster")
    if not kind.endswith("Binding"):
        rules = values(obj, "rules")
        causes = [cause for i, rule in enumerate(rules) for cause in _rule(rule, namespaced, i)]
        return causes if namespaced else [*causes, *_aggregation(obj.get("aggregationRule"))]
    causes = list(_role_ref(obj.get("roleRef") or {}, namespaced))
    for index, subject in enumerate(values(obj, "subjects")):
        causes += _subject(subject, namespaced, f"subjects[{index}]")
    if old is not None and _ref(old) != _ref(obj):
        reference = dict(zip(("APIGroup", "Kind", "Name"), _ref(obj), strict=True))
        causes.append(invalid_cause("roleRef", reference, "cannot change roleRef"))
    return causes


def _rule(rule: PolicyRule, namespaced: bool, index: int) -> Iterator[Cause]:
    path = f"rules[{index}]"
    if not values(rule, "verbs"):
        yield required_cause(f"{path}.verbs", "verbs must contain at least one value")
    urls = values(rule, "nonResourceURLs")
    if urls:
        field = f"{path}.nonResourceURLs"
        if namespaced:
            yield invalid_cause(field, urls, "namespaced rules cannot apply to non-resource URLs")
        if any(values(rule, other) for other in ("apiGroups", "resources", "resourceNames")):
            message = "rules cannot apply to both regular resources and non-resource URLs"
            yield invalid_cause(field, urls, message)
        return
    if not values(rule, "apiGroups"):
        yield required_cause(
            f"{path}.apiGroups", "resource rules must supply at least one api group"
        )
    if not values(rule, "resources"):
        yield required_cause(
            f"{path}.resources", "resource rules must supply at least one resource"
        )


def _aggregation(rule: Object | None) -> Iterator[Cause]:
    if rule is None:
        return
    path, selectors = "aggregationRule.clusterRoleSelectors", values(rule, "clusterRoleSelectors")
    if not selectors:
        message = "at least one clusterRoleSelector required if aggregationRule is non-nil"
        yield required_cause(path, message)
    for index, selector in enumerate(selectors):
        for inner, expression in enumerate(selector.get("matchExpressions") or ()):
            yield from _expression(expression, f"{path}[{index}].matchExpressions[{inner}]")


def _expression(expression: Object, path: str) -> Iterator[Cause]:
    operator, options = expression.get("operator", ""), expression.get("values")
    if operator in ("In", "NotIn"):
        if not options:
            message = "must be specified when `operator` is 'In' or 'NotIn'"
            yield required_cause(f"{path}.values", message)
    elif operator in ("Exists", "DoesNotExist"):
        if options:
            why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            yield forbidden_cause(f"{path}.values", why)
    else:
        yield invalid_cause(f"{path}.operator", operator, "not a valid selector operator")


def _role_ref(ref: Object, namespaced: bool) -> Iterator[Cause]:
    group, kind, name = (ref.get(field) or "" for field in ("apiGroup", "kind", "name"))
    kinds = ("Role", "ClusterRole") if namespaced else ("ClusterRole",)
    if group != RBAC_GROUP:
        yield unsupported_cause("roleRef.apiGroup", group, (RBAC_GROUP,))
    if kind not in kinds:
        yield unsupported_cause("roleRef.kind", kind, kinds)
    if not name:
        yield required_cause("roleRef.name")
    elif name in (".", ".."):
        yield invalid_cause("roleRef.name", name, f"may not be '{name}'")
    else:
        for character in "/%":
            if character in name:
                yield invalid_cause("roleRef.name", name, f"may not contain '{character}'")


def _subject(subject: Object, namespaced: bool, path: str) -> Iterator[Cause]:
    group, kind, name = (subject.get(field) or "" for field in ("apiGroup", "kind", "name"))
    if not name:
        yield required_cause(f"{path}.name")
    match kind:
        case "ServiceAccount":
            if name and (len(name) > 253 or not SUBDOMAIN.fullmatch(name)):
                yield invalid_cause(f"{path}.name", name, SUBDOMAIN_RULE)
            if group:
                yield unsupported_cause(f"{path}.apiGroup", group, ("",))
            if not namespaced and not subject.get("namespace"):
                yield required_cause(f"{path}.namespace")
        case "User" | "Group":
            if group != RBAC_GROUP:
                yield unsupported_cause(f"{path}.apiGroup", group, (RBAC_GROUP,))
        case _:
            yield unsupported_cause(f"{path}.kind", kind, ("ServiceAccount", "User", "Group"))


def _subject_with_defaults(subject: Object) -> Object:
    if subject.get("kind") in ("User", "Group") and not subject.get("apiGroup"):
        return {**subject, "apiGroup": RBAC_GROUP}
    return subject


def _ref(binding: Object) -> tuple[str, ...]:
    ref = binding.get("roleRef") or {}
    return tuple(ref.get(field) or "" for field in ("apiGroup", "kind", "name"))
