"""Evaluation of one PolicyRule.

Verbs, groups, resources, names and URLs have the meaning of Kubernetes' RBAC authorizer
(`rbac.authorization.k8s.io/v1`, PolicyRule).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Protocol

import msgspec

from kube_base.types.objects import Object

PolicyRule = dict[str, Any]
"""`verbs` with `apiGroups`, `resources` and `resourceNames`, or with `nonResourceURLs`."""

RBAC_GROUP = "rbac.authorization.k8s.io"
ALL = "*"

EVERYTHING: tuple[PolicyRule, ...] = (
    {"verbs": [ALL], "apiGroups": [ALL], "resources": [ALL]},
    {"verbs": [ALL], "nonResourceURLs": [ALL]},
)
"""Rules that allow everything."""


class RbacUser(Protocol):
    """User attributes that RBAC needs."""

    @property
    def name(self) -> str:
        """Such as `system:serviceaccount:default:builder`."""

    @property
    def groups(self) -> tuple[str, ...]:
        """Such as `system:authenticated`."""


class Attributes(msgspec.Struct, frozen=True):
    """Attributes of a request to authorize."""

    verb: str
    group: str = ""
    resource: str = ""
    """Plural, without the subresource."""
    subresource: str = ""
    namespace: str = ""
    """Empty for a cluster-scoped resource, or for all namespaces."""
    name: str = ""
    path: str = ""
    """Set for a non-resource URL. Then only the path and the verb (`get`) count."""


def values(obj: Object, field: str) -> list[Any]:
    """Return a list field of a rule or role. Absent and null are empty."""
    return obj.get(field) or []


def allows(rule: PolicyRule, attributes: Attributes) -> bool:
    """Return whether a rule allows a request."""
    if not grants(values(rule, "verbs"), attributes.verb):
        return False
    if attributes.path:
        return grants_url(values(rule, "nonResourceURLs"), attributes.path)
    resource = attributes.resource
    if attributes.subresource:
        resource = f"{resource}/{attributes.subresource}"
    return (
        grants(values(rule, "apiGroups"), attributes.group)
        and grants_resource(values(rule, "resources"), resource)
        and _grants_name(values(rule, "resourceNames"), attributes.name)
    )


def any_allows(rules: Iterable[PolicyRule], attributes: Attributes) -> bool:
    """Return whether one of the rules allows a request."""
    return any(allows(rule, attributes) for rule in rules)


def grants(granted: Collection[str], value: str) -> bool:
    """Return whether a verb or an API group is among those granted."""
    return ALL in granted or value in granted


def grants_resource(granted: Collection[str], resource: str) -> bool:
    """Return whether a resource is among those granted: `pods`, `pods/log`, `*/log`, `*`.

    `pods` does not grant `pods/log`. `*` grants every subresource.
    """
    if grants(granted, resource):
        return True
    _, slash, subresource = resource.partition("/")
    return bool(slash) and f"{ALL}/{subresource}" in granted


def grants_url(granted: Iterable[str], url: str) -> bool:
    """Return whether a URL is among those granted, each exact or with a trailing `*`."""
    return any(
        one == url or (one.endswith(ALL) and url.startswith(one.rstrip(ALL))) for one in granted
    )


def _grants_name(granted: Collection[str], name: str) -> bool:
    # List, create and deletecollection have no name, so no list of names ever allows them.
    return not granted or (name != "" and name in granted)
