"""Dispatch of a request: the policy that matches it, and why earlier rules do not.

Reference implementation. It does not run in traffic: `gatehouse explain` uses it, and proxies are
tested against it.
"""

from __future__ import annotations

import msgspec

from gatehouse.compiler.ir.kube_apiserver import ApiCluster, DispatchPolicy, DispatchRule, Names
from kube_base.types.request_info import RequestInfo

ANONYMOUS_USER_NAME = "system:anonymous"


class DispatchUser(msgspec.Struct, frozen=True):
    """User of a request."""

    name: str
    groups: tuple[str, ...] = ()


class Mismatch(msgspec.Struct, frozen=True):
    """Why a rule does not match a request."""

    policy: int
    """Index in the cluster's policies."""
    rule: int
    field: str
    """Field of :class:`gatehouse.compiler.ir.kube_apiserver.DispatchRule`."""
    value: str
    """Value of the request."""


class DispatchDecision(msgspec.Struct, frozen=True):
    """Result of dispatching a request."""

    policy: int | None
    """Index in the cluster's policies. None: no policy matches, and the answer is 403."""
    rule: int | None = None
    schema: str = ""
    """Name of the flow control schema; empty for none."""
    servers: tuple[str, ...] = ()
    """Names of the servers that can answer. Empty: the answer is 503."""
    logged: bool = False
    mismatches: tuple[Mismatch, ...] = ()
    """First field that does not match of each rejected rule, in the order of the rules."""


def _holds(names: Names, value: str) -> bool:
    """Return whether a set of names contains a name."""
    listed = (
        value in names.exact
        or any(value.startswith(prefix) for prefix in names.prefixes)
        or any(value.endswith(f"/{subresource}") for subresource in names.subresources)
    )
    return listed != names.others


def holds_user_groups(names: Names, groups: tuple[str, ...]) -> bool:
    """Return whether a user's groups match: one is listed or, inverted, none is."""
    plain = msgspec.structs.replace(names, others=False)
    return any(_holds(plain, group) for group in groups) != names.others


def names_of(rule: DispatchRule, field: str) -> Names:
    """Return a field of a rule by its name."""
    names = getattr(rule, field)
    assert isinstance(names, Names)
    return names


def mismatch(
    rule: DispatchRule, request: RequestInfo, user: DispatchUser
) -> tuple[str, str] | None:
    """Return the first field of a rule that does not match, with the request's value; else None."""
    checked = [("verbs", request.verb), ("users", user.name)]
    about = [("paths", request.path)]
    if request.is_resource:
        about = [
            ("groups", request.group),
            ("resources", request.combined),
            ("names", request.name),
        ]
    for field, value in checked:
        if not _holds(names_of(rule, field), value):
            return field, value
    if not holds_user_groups(rule.user_groups, user.groups):
        return "user_groups", ", ".join(user.groups)
    for field, value in about:
        if not _holds(names_of(rule, field), value):
            return field, value
    return None


def dispatch_request(
    cluster: ApiCluster, request: RequestInfo, user: DispatchUser
) -> DispatchDecision:
    """Return the policy of a request: the first one with a matching rule."""
    missed: list[Mismatch] = []
    for index, policy in enumerate(cluster.policies):
        for at, rule in enumerate(policy.rules):
            why = mismatch(rule, request, user)
            if why is None:
                servers = servers_of(cluster, policy)
                return DispatchDecision(
                    index, at, policy.schema, servers, policy.logged, tuple(missed)
                )
            missed.append(Mismatch(index, at, *why))
    return DispatchDecision(None, mismatches=tuple(missed))


def servers_of(cluster: ApiCluster, policy: DispatchPolicy) -> tuple[str, ...]:
    """Return the names of the servers that can answer requests of a policy."""
    known = (server.name for server in cluster.servers)
    return tuple(name for name in known if not policy.servers or name in policy.servers)
