"""RBAC permissions of the controller: the verbs it uses on each resource, and no others.

Derived from the tables of kinds that the controller uses. Tests compare the roles of the embedded
API server and of the chart with it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

from gatehouse.apis import resources
from gatehouse.apis.resources import Resource
from gatehouse.compiler.frontends import combined, external_load_balancer
from gatehouse.controller.informers import DEPENDENTS, WATCHED_RESOURCES
from gatehouse.controller.provisioner.reconcile import KINDS as PROVISIONED


class Permission(NamedTuple):
    """One verb on one resource of a group."""

    group: str
    resource: str
    """Plural name, with ``/subresource`` if it applies to one."""
    verb: str


def watch_permissions() -> set[Permission]:
    """Return permissions to watch objects, and to read them again after a write conflict."""
    watched = {*WATCHED_RESOURCES, *external_load_balancer.KINDS, resources.DEFINITIONS}
    permissions = _all(watched, "list watch")
    return permissions | _all(combined.REPORTED, "get")


def status_permissions() -> set[Permission]:
    """Return permissions to write statuses and Events."""
    return (
        _all(combined.REPORTED, "update", "status")
        | _all([resources.EXTERNAL_LOAD_BALANCERS], "patch", "status")
        | _all([resources.RATE_LIMIT_CONDITIONS], "update", "status")
        | _all([resources.EVENTS], "create patch")
        | {Permission("events.k8s.io", "events", verb) for verb in ("create", "patch")}
    )


def provisioner_permissions() -> set[Permission]:
    """Return permissions for provisioned objects, except Secrets, and for dependents."""
    kinds = [kind for kind in PROVISIONED if kind is not resources.SECRETS]
    kinds += DEPENDENTS
    return _all(kinds, "get list create update delete") | _all(
        [resources.GATEWAY_CLASSES], "create"
    )


def secret_copy_permissions() -> set[Permission]:
    """Return permissions to copy Secrets."""
    return _all([resources.SECRETS], "get list create update delete")


def token_review_permissions() -> set[Permission]:
    """Return permissions to review tokens of agents."""
    return _all([resources.TOKEN_REVIEWS], "create")


def leader_election_permissions() -> set[Permission]:
    """Return permissions for leader election in the controller's namespace."""
    return _all([resources.LEASES], "get create update")


def leader_label_permissions() -> set[Permission]:
    """Return permissions to label controller Pods in the controller's namespace."""
    return _all([resources.PODS], "list watch patch")


def all_permissions() -> set[Permission]:
    """Return all permissions of the controller."""
    return (
        watch_permissions()
        | status_permissions()
        | provisioner_permissions()
        | secret_copy_permissions()
        | token_review_permissions()
        | leader_election_permissions()
        | leader_label_permissions()
    )


def rules(permissions: Iterable[Permission]) -> list[dict[str, Any]]:
    """Return permissions as RBAC rules, one for each group and set of verbs."""
    verbs: dict[tuple[str, str], set[str]] = defaultdict(set)
    for permission in permissions:
        verbs[(permission.group, permission.resource)].add(permission.verb)
    by_verbs: dict[tuple[str, tuple[str, ...]], list[str]] = defaultdict(list)
    for (group, resource), verb_set in sorted(verbs.items()):
        by_verbs[(group, tuple(sorted(verb_set)))].append(resource)
    return [
        {"apiGroups": [group], "resources": names, "verbs": list(verb_set)}
        for (group, verb_set), names in sorted(by_verbs.items())
    ]


def _all(kinds: Iterable[Resource], verbs: str, subresource: str = "") -> set[Permission]:
    tail = f"/{subresource}" if subresource else ""
    return {
        Permission(kind.group, kind.plural + tail, verb) for kind in kinds for verb in verbs.split()
    }
