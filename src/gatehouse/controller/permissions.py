"""What a controller asks of an API server: every verb on every resource, and nothing more.

Derived from the tables by which the controller works, so that a kind more or less is one here, too.
The roles of the embedded API server and of the chart are held to this by tests.
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
    """With its subresource, if one is meant."""
    verb: str


def watch_permissions() -> set[Permission]:
    """What is watched, and read again when a write met a newer object."""
    watched = {*WATCHED_RESOURCES, *external_load_balancer.KINDS, resources.DEFINITIONS}
    found = _all(watched, "list watch")
    return found | _all(combined.REPORTED, "get")


def status_permissions() -> set[Permission]:
    """What statuses and Events are written with."""
    return (
        _all(combined.REPORTED, "update", "status")
        | _all([resources.EXTERNAL_LOAD_BALANCERS], "patch", "status")
        | _all([resources.RATE_LIMIT_CONDITIONS], "update", "status")
        | _all([resources.EVENTS], "create patch")
        | {Permission("events.k8s.io", "events", verb) for verb in ("create", "patch")}
    )


def provisioner_permissions() -> set[Permission]:
    """What is made for Gateways, but for Secrets, and for objects of our own kinds."""
    made = [each for each in PROVISIONED if each is not resources.SECRETS]
    made += DEPENDENTS
    return _all(made, "get list create update delete") | _all([resources.GATEWAY_CLASSES], "create")


def secret_copy_permissions() -> set[Permission]:
    """What Secrets are copied with."""
    return _all([resources.SECRETS], "get list create update delete")


def token_review_permissions() -> set[Permission]:
    """What agents' tokens are checked with."""
    return _all([resources.TOKEN_REVIEWS], "create")


def leader_election_permissions() -> set[Permission]:
    """What decides which of several controllers acts; in its own namespace."""
    return _all([resources.LEASES], "get create update")


def labelling() -> set[Permission]:
    """Return what Pods of the controllers are labelled with; in its own namespace."""
    return _all([resources.PODS], "list watch patch")


def all_permissions() -> set[Permission]:
    """All of it."""
    return (
        watch_permissions()
        | status_permissions()
        | provisioner_permissions()
        | secret_copy_permissions()
        | token_review_permissions()
        | leader_election_permissions()
        | labelling()
    )


def rules(permissions: Iterable[Permission]) -> list[dict[str, Any]]:
    """Write permissions as rules of RBAC: a rule for each group and set of verbs."""
    verbs: dict[tuple[str, str], set[str]] = defaultdict(set)
    for each in permissions:
        verbs[(each.group, each.resource)].add(each.verb)
    together: dict[tuple[str, tuple[str, ...]], list[str]] = defaultdict(list)
    for (group, resource), found in sorted(verbs.items()):
        together[(group, tuple(sorted(found)))].append(resource)
    return [
        {"apiGroups": [group], "resources": named, "verbs": list(found)}
        for (group, found), named in sorted(together.items())
    ]


def _all(kinds: Iterable[Resource], verbs: str, subresource: str = "") -> set[Permission]:
    tail = f"/{subresource}" if subresource else ""
    return {
        Permission(kind.group, kind.plural + tail, verb) for kind in kinds for verb in verbs.split()
    }
