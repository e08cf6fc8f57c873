"""What one PolicyRule allows.

The meaning of verbs, groups, resources, names and URLs is that of Kubernetes' RBAC authorizer
(``rbac.authorization.k8s.io/v1``, PolicyRule).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Protocol

import msgspec

Object = dict[str, Any]
PolicyRule = dict[str, Any]
"""``verbs`` with ``apiGroups``, ``resources``, ``resourceNames``; or with ``nonResourceURLs``."""

GROUP = "rbac.authorization.k8s.io"
ALL = "*"

EVERYTHING: tuple[PolicyRule, ...] = (
    {"verbs": [ALL], "apiGroups": [ALL], "resources": [ALL]},
    {"verbs": [ALL], "nonResourceURLs": [ALL]},
)
"""The rules of somebody who may do anything."""


class User(Protocol):
    """Who asks, as far as RBAC cares."""

    @property
    def name(self) -> str:
        """Such as ``system:serviceaccount:default:builder``."""

    @property
    def groups(self) -> tuple[str, ...]:
        """Such as ``system:authenticated``."""


class Attributes(msgspec.Struct, frozen=True):
    """What is asked for."""

    verb: str
    group: str = ""
    resource: str = ""
    """Plural, without the subresource."""
    subresource: str = ""
    namespace: str = ""
    """Empty for a resource of the cluster, or of all namespaces."""
    name: str = ""
    path: str = ""
    """Set for a URL that is no resource: then only it and the verb (``get``) count."""


def values(obj: Object, field: str) -> list[Any]:
    """Give one list of a rule, or of a role; absent and null are empty."""
    return obj.get(field) or []


def allows(rule: PolicyRule, wanted: Attributes) -> bool:
    """Whether a rule allows a request."""
    if not grants(values(rule, "verbs"), wanted.verb):
        return False
    if wanted.path:
        return grants_url(values(rule, "nonResourceURLs"), wanted.path)
    resource = wanted.resource
    if wanted.subresource:
        resource = f"{resource}/{wanted.subresource}"
    return (
        grants(values(rule, "apiGroups"), wanted.group)
        and grants_resource(values(rule, "resources"), resource)
        and _grants_name(values(rule, "resourceNames"), wanted.name)
    )


def any_allows(rules: Iterable[PolicyRule], wanted: Attributes) -> bool:
    """Whether one of the rules allows a request."""
    return any(allows(rule, wanted) for rule in rules)


def grants(granted: Collection[str], value: str) -> bool:
    """Whether a verb or an API group is among those granted."""
    return ALL in granted or value in granted


def grants_resource(granted: Collection[str], resource: str) -> bool:
    """Whether a resource is among those granted: ``pods``, ``pods/log``, ``*/log``, ``*``.

    ``pods`` does not grant ``pods/log``, and ``*`` grants every subresource.
    """
    if grants(granted, resource):
        return True
    _, slash, subresource = resource.partition("/")
    return bool(slash) and f"{ALL}/{subresource}" in granted


def grants_url(granted: Iterable[str], url: str) -> bool:
    """Whether a URL is among those granted, each exact or with a ``*`` at its end."""
    return any(
        one == url or (one.endswith(ALL) and url.startswith(one.rstrip(ALL))) for one in granted
    )


def _grants_name(granted: Collection[str], name: str) -> bool:
    # A list, a create and a deletecollection have no name: no list of names ever allows them.
    return not granted or (name != "" and name in granted)
