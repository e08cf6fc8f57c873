"""Selection of requests by policies and bindings. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from kube_api_server.builtin.validation import selects_labels
from kube_base.types.objects import Object

ADMISSION_GROUP = "admissionregistration.k8s.io"


class AdmissionAttributes(msgspec.Struct, frozen=True):
    """Attributes of a request for policies."""

    operation: str
    """CREATE, UPDATE or DELETE."""
    group: str
    version: str
    resource: str
    subresource: str
    namespace: str
    name: str
    namespaced: bool
    object: Object | None
    before: Object | None
    owner: Object | None
    """The namespace object."""


Serves = Callable[[str, str, str], bool]
"""Returns whether a group serves a resource in a version."""


def matches_resources(
    constraints: Mapping[str, Any], attributes: AdmissionAttributes, serves: Serves
) -> bool:
    """Return whether `matchConstraints` or `matchResources` match a request."""
    rules = constraints.get("resourceRules")
    equivalent = constraints.get("matchPolicy") != "Exact"
    if rules and not any(_rule(rule, attributes, serves, equivalent) for rule in rules):
        return False
    excluded = constraints.get("excludeResourceRules") or ()
    if any(_rule(rule, attributes, serves, equivalent) for rule in excluded):
        return False
    return _namespace(constraints.get("namespaceSelector"), attributes) and _object(
        constraints.get("objectSelector"), attributes
    )


def _rule(
    rule: Mapping[str, Any], attributes: AdmissionAttributes, serves: Serves, equivalent: bool
) -> bool:
    whole = (
        f"{attributes.resource}/{attributes.subresource}"
        if attributes.subresource
        else attributes.resource
    )
    names = rule.get("resourceNames")
    scope = rule.get("scope") or "*"
    return (
        _one_of(rule.get("operations"), attributes.operation)
        and _one_of(rule.get("apiGroups"), attributes.group)
        and _version(rule.get("apiVersions") or (), attributes, serves, equivalent)
        and any(_resource(pattern, whole) for pattern in rule.get("resources") or ())
        and (not names or attributes.name in names)
        and scope in ("*", "Namespaced" if attributes.namespaced else "Cluster")
    )


def _one_of(values: Any, value: str) -> bool:
    return "*" in (values or ()) or value in (values or ())


def _version(
    versions: Any, attributes: AdmissionAttributes, serves: Serves, equivalent: bool
) -> bool:
    if _one_of(versions, attributes.version):
        return True
    # With match policy Equivalent, a request matches in every served version of its resource.
    return equivalent and any(
        serves(attributes.group, version, attributes.resource) for version in versions
    )


def _resource(pattern: str, whole: str) -> bool:
    """Return whether a pattern matches a resource.

    `*` is every resource without its subresources, `*/*` everything, `*/scale` every scale.
    """
    resource, _, subresource = whole.partition("/")
    left, _, right = pattern.partition("/")
    return left in ("*", resource) and right in ("*", subresource)


def _namespace(selector: Any, attributes: AdmissionAttributes) -> bool:
    if not selector:
        return True
    if attributes.resource == "namespaces" and not attributes.group:
        return _object(selector, attributes)
    if not attributes.namespaced:
        return True
    return selects_labels(selector, _labels(attributes.owner))


def _object(selector: Any, attributes: AdmissionAttributes) -> bool:
    if not selector:
        return True
    objects = [obj for obj in (attributes.object, attributes.before) if obj is not None]
    return any(selects_labels(selector, _labels(obj)) for obj in objects)


def _labels(obj: Object | None) -> Object:
    return ((obj or {}).get("metadata") or {}).get("labels") or {}
