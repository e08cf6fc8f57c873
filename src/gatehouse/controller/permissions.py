"""RBAC permissions of the controller: the verbs it uses on each resource, and no others.

Derived from the records of the front ends' kinds. `make chart` writes the rules of the chart and of
the embedded API server from them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

from gatehouse.apis import resources
from gatehouse.compiler.frontends import combined, external_load_balancer
from gatehouse.compiler.frontends.kinds import Kind, Kinds
from gatehouse.controller.informers import watched_resources
from gatehouse.controller.provisioner.reconcile import OWNED_KINDS as PROVISIONED
from kube_base.types.resource import Resource


class Permission(NamedTuple):
    """One verb on one resource of a group."""

    group: str
    resource: str
    """Plural name, with ``/subresource`` if it applies to one."""
    verb: str


PERMITTED_KINDS: tuple[Kind, ...] = (
    *combined.KINDS,
    *external_load_balancer.LOAD_BALANCER_FRONT_END.kinds,
)
"""Kinds of all front ends."""


def watch_permissions(kinds: Iterable[Kind] = PERMITTED_KINDS) -> set[Permission]:
    """Return permissions to watch objects, and to read them again after a write conflict."""
    kinds = tuple(kinds)
    watched = {*watched_resources(Kinds(*kinds)), resources.DEFINITIONS}
    updated = [kind.resource for kind in kinds if kind.status_verb == "update"]
    return _all(watched, "list watch") | _all(updated, "get")


def status_permissions(kinds: Iterable[Kind] = PERMITTED_KINDS) -> set[Permission]:
    """Return permissions to write statuses and Events."""
    rules = _all([resources.EVENTS], "create patch")
    for kind in kinds:
        rules |= _all([kind.resource], kind.status_verb, "status")
        rules |= _all(
            [owned_kind.resource for owned_kind in kind.owned if owned_kind.has_status],
            "update",
            "status",
        )
    return rules


def write_permissions(kinds: Iterable[Kind] = PERMITTED_KINDS) -> set[Permission]:
    """Return permissions for provisioned objects, except Secrets, and for owned objects."""
    kinds = tuple(kinds)
    written = [resource for resource in PROVISIONED if resource is not resources.SECRETS]
    written += [owned.resource for kind in kinds for owned in kind.owned]
    rules = _all(written, "get list create update delete")
    for kind in kinds:
        rules |= _all([kind.resource], " ".join(kind.verbs))
    return rules


def secret_copy_permissions() -> set[Permission]:
    """Return permissions to copy Secrets."""
    return _all([resources.SECRETS], "get list create update delete")


def token_review_permissions() -> set[Permission]:
    """Return permissions to review tokens of agents."""
    return _all([resources.TOKEN_REVIEWS], "create")


def data_plane_pod_permissions() -> set[Permission]:
    """Return permissions to read the Pods of instances that disconnected."""
    return _all([resources.PODS], "get")


def leader_election_permissions() -> set[Permission]:
    """Return permissions for leader election in the controller's namespace."""
    return _all([resources.LEASES], "get create update")


def leader_label_permissions() -> set[Permission]:
    """Return permissions to label controller Pods in the controller's namespace."""
    return _all([resources.PODS], "list watch patch")


def all_permissions(kinds: Iterable[Kind] = PERMITTED_KINDS) -> set[Permission]:
    """Return all permissions of a controller with front ends for these kinds."""
    kinds = tuple(kinds)
    return (
        watch_permissions(kinds)
        | status_permissions(kinds)
        | write_permissions(kinds)
        | secret_copy_permissions()
        | token_review_permissions()
        | data_plane_pod_permissions()
        | leader_election_permissions()
        | leader_label_permissions()
    )


def rbac_rules(permissions: Iterable[Permission]) -> list[dict[str, Any]]:
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
