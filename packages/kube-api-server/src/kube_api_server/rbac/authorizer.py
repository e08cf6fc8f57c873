"""Authorizer: roles, and bindings indexed by subject.

A decision reads only the bindings of the user, so its cost does not depend on other users.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from kube_api_server.formatting import quote_go
from kube_api_server.rbac.rules import (
    EVERYTHING,
    RBAC_GROUP,
    Attributes,
    PolicyRule,
    RbacUser,
    any_allows,
    values,
)
from kube_base.types.objects import Object

MASTERS = "system:masters"
"""Group whose members may do anything, whatever roles and bindings say."""

ROLES = frozenset({"Role", "ClusterRole"})
BINDINGS = frozenset({"RoleBinding", "ClusterRoleBinding"})

_Key = tuple[str, str]
"""Namespace (empty for the cluster) and name."""
Subject = tuple[str, str, str]
"""Namespace of the binding, `User` or `Group`, and name."""


class Grant(msgspec.Struct, frozen=True):
    """One binding for one of its subjects."""

    binding: _Key
    kind: str
    """Kind of the role."""
    role: _Key
    source: str
    """Description of the binding for the reason of a decision."""


class Authorizer:
    """Index of the four kinds, and decisions based on it."""

    def __init__(self, cache_size: int = 10_000) -> None:
        """Cache up to `cache_size` decisions. Any change of an object clears the cache."""
        self._roles: dict[_Key, list[PolicyRule]] = {}
        self._grants: dict[Subject, dict[str, Grant]] = {}
        """By subject, then by the name of the binding."""
        self._subjects: dict[_Key, tuple[Subject, ...]] = {}
        """Subjects under which each binding is indexed."""
        self._decisions: dict[tuple[str, tuple[str, ...], Attributes], tuple[bool, str]] = {}
        self._cache_size = cache_size

    def set(self, kind: str, namespace: str, name: str, obj: Object | None) -> None:
        """Add or replace an object; None removes it."""
        if kind not in ROLES | BINDINGS or kind.startswith("Cluster") == bool(namespace):
            raise ValueError(f"{kind} must not be in namespace {namespace!r}")
        self._decisions.clear()
        key = (namespace, name)
        if kind in BINDINGS:
            self._unbind(key)
            if obj is not None:
                self._bind(key, kind, obj)
        elif obj is None:
            self._roles.pop(key, None)
        else:
            self._roles[key] = values(obj, "rules")

    def authorize(self, user: RbacUser, attributes: Attributes) -> tuple[bool, str]:
        """Return whether a request is allowed, and the reason. The reason is empty if no rule
        matches.
        """
        if MASTERS in user.groups:
            return True, ""
        key = (user.name, user.groups, attributes)
        decision = self._decisions.get(key)
        if decision is None:
            decision = self._decide(user, attributes)
            if len(self._decisions) >= self._cache_size:
                self._decisions.clear()
            self._decisions[key] = decision
        return decision

    def rules_for(self, user: RbacUser, namespace: str) -> list[PolicyRule]:
        """Return the rules of a user in a namespace, or cluster-wide if it is empty. Do not modify
        them.
        """
        if MASTERS in user.groups:
            return list(EVERYTHING)
        grants = self._grants_for(user, namespace)
        return [rule for grant in grants for rule in self._roles.get(grant.role, ())]

    def rules_of(self, role_ref: Object, namespace: str) -> list[PolicyRule] | None:
        """Return the rules of a role that a binding in `namespace` refers to; None if not found."""
        key = _referenced(role_ref, namespace)
        return None if key is None else self._roles.get(key)

    def _decide(self, user: RbacUser, attributes: Attributes) -> tuple[bool, str]:
        missing: dict[str, None] = {}
        # A URL has no namespace, so only ClusterRoleBindings apply.
        for grant in self._grants_for(user, "" if attributes.path else attributes.namespace):
            rules = self._roles.get(grant.role)
            if rules is None:
                what = f"{grant.kind.lower()}.{RBAC_GROUP} {quote_go(grant.role[1])} not found"
                missing[what] = None
            elif any_allows(rules, attributes):
                return True, f"RBAC: allowed by {grant.source}"
        if not missing:
            return False, ""
        return False, f"RBAC: {next(iter(missing)) if len(missing) == 1 else _joined(missing)}"

    def _grants_for(self, user: RbacUser, namespace: str) -> Iterator[Grant]:
        bindings: set[_Key] = set()
        subjects = [("User", user.name), *(("Group", group) for group in user.groups)]
        for scope in ("", namespace) if namespace else ("",):
            for kind, name in subjects:
                for grant in self._grants.get((scope, kind, name), {}).values():
                    if grant.binding not in bindings:
                        bindings.add(grant.binding)
                        yield grant

    def _bind(self, key: _Key, kind: str, obj: Object) -> None:
        role_ref = obj.get("roleRef") or {}
        role = _referenced(role_ref, key[0])
        if role is None:
            return
        named = f"{key[1]}/{key[0]}" if key[0] else key[1]
        source = f"{kind} {quote_go(named)} of {role_ref['kind']} {quote_go(role[1])} to "
        subjects: dict[Subject, None] = {}
        for raw in values(obj, "subjects"):
            binding_subject = _subject(raw, key[0])
            if binding_subject is None or binding_subject[0] in subjects:
                continue
            subject, description = binding_subject
            subjects[subject] = None
            grant = Grant(key, role_ref["kind"], role, source + description)
            self._grants.setdefault(subject, {})[key[1]] = grant
        self._subjects[key] = tuple(subjects)

    def _unbind(self, key: _Key) -> None:
        for subject in self._subjects.pop(key, ()):
            grants = self._grants[subject]
            del grants[key[1]]
            if not grants:
                del self._grants[subject]


def _referenced(role_ref: Object, namespace: str) -> _Key | None:
    kind, name = role_ref.get("kind"), role_ref.get("name", "")
    if kind == "ClusterRole":
        return "", name
    # A ClusterRoleBinding has no namespace in which to look up a Role.
    return (namespace, name) if kind == "Role" and namespace else None


def _subject(subject: Object, namespace: str) -> tuple[Subject, str] | None:
    """Return the key of a subject and its description; None for an invalid subject."""
    kind, name = subject.get("kind", ""), subject.get("name", "")
    if kind in ("User", "Group") and name:
        return (namespace, kind, name), f"{kind} {quote_go(name)}"
    home = subject.get("namespace") or namespace
    if kind == "ServiceAccount" and name and home:
        account = f"system:serviceaccount:{home}:{name}"
        return (namespace, "User", account), f"{kind} {quote_go(f'{name}/{home}')}"
    return None


def _joined(messages: dict[str, None]) -> str:
    return f"[{', '.join(messages)}]"
