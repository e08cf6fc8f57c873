"""Flow schemas and priority levels: the suggested configuration of kube-apiserver.

An extension names more users with the levels of the control plane and of nodes.
ServiceAccounts of one namespace are one flow, because its owner may create any number of them.
"""

from __future__ import annotations

import msgspec

from kube_api_server.identity.users import ADMINS, AUTHENTICATED, UNAUTHENTICATED, User
from kube_api_server.rbac.rules import Attributes

EXEMPT = "exempt"

SHARES = {
    "system": 30,
    "node-high": 40,
    "leader-election": 10,
    "workload-high": 40,
    "workload-low": 100,
    "global-default": 20,
    "catch-all": 5,
}
"""Shares of the seats by priority level."""

_NODES = "system:nodes"
_ACCOUNTS = "system:serviceaccounts"
_ACCOUNT = "system:serviceaccount:"
_SYSTEM_ACCOUNTS = f"{_ACCOUNTS}:kube-system"
_CONTROL_PLANE = frozenset({"system:kube-controller-manager", "system:kube-scheduler"})
_LEASES = ("coordination.k8s.io", "leases")


class SystemUsers(msgspec.Struct, frozen=True):
    """Users of an installation whose requests are as urgent as those of Kubernetes' components."""

    control_plane: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()


class Flow(msgspec.Struct, frozen=True):
    """Requests that share seats with each other."""

    schema: str
    level: str
    name: str
    """User, or namespace of ServiceAccounts."""


def owner(user: User) -> str:
    """Return the name that limits count a user by: itself, or the namespace of a ServiceAccount."""
    if user.name.startswith(_ACCOUNT) and _ACCOUNTS in user.groups:
        return user.name.rpartition(":")[0]
    return user.name


def is_exempt(user: User) -> bool:
    """Return whether no limit holds for a user."""
    return ADMINS in user.groups


def classify(user: User, requested: Attributes, others: SystemUsers) -> Flow:
    """Return the flow of a request. `others`: users beside the components of Kubernetes."""
    schema, level = _schema(user, requested, others)
    return Flow(schema, level, owner(user))


def _schema(user: User, requested: Attributes, others: SystemUsers) -> tuple[str, str]:
    """Return the first schema that matches, and its level."""
    groups, resource = user.groups, (requested.group, requested.resource)
    if ADMINS in groups:
        return "exempt", EXEMPT
    control = user.name in _CONTROL_PLANE or user.name in others.control_plane
    node = user.name in others.nodes or _NODES in groups
    system_account = _SYSTEM_ACCOUNTS in groups
    if resource == _LEASES and (control or system_account):
        return "system-leader-election", "leader-election"
    if node and (resource == _LEASES or resource == ("", "nodes")):
        return "system-node-high", "node-high"
    if node:
        return "system-nodes", "system"
    if control:
        return "kube-controller-manager", "workload-high"
    if system_account:
        return "kube-system-service-accounts", "workload-high"
    if _ACCOUNTS in groups:
        return "service-accounts", "workload-low"
    if AUTHENTICATED in groups or UNAUTHENTICATED in groups:
        return "global-default", "global-default"
    return "catch-all", "catch-all"
