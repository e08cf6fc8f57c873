"""Decisions: roles and bindings, indexed by subject.

A decision looks at the user's own bindings and no others, so it costs the same however many other
users there are.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from gatehouse.apiserver.rbac.coverage import quoted
from gatehouse.apiserver.rbac.rules import (
    EVERYTHING,
    GROUP,
    Attributes,
    Object,
    PolicyRule,
    User,
    any_allows,
    values,
)

MASTERS = "system:masters"
"""Members may do anything, whatever roles and bindings say."""

ROLES = frozenset({"Role", "ClusterRole"})
BINDINGS = frozenset({"RoleBinding", "ClusterRoleBinding"})

Key = tuple[str, str]
"""Namespace (empty for the cluster) and name."""
Subject = tuple[str, str, str]
"""The binding's namespace, ``User`` or ``Group``, and the name."""


class Grant(msgspec.Struct, frozen=True):
    """One binding, as it reaches one of its subjects."""

    binding: Key
    kind: str
    """Of the role."""
    role: Key
    source: str
    """For the reason of a decision."""


class Authorizer:
    """Holds the four kinds and decides by them."""

    def __init__(self, remembered: int = 10_000) -> None:
        """Remember up to so many decisions, until something changes."""
        self._roles: dict[Key, list[PolicyRule]] = {}
        self._grants: dict[Subject, dict[str, Grant]] = {}
        """By subject, then by the name of the binding."""
        self._subjects: dict[Key, tuple[Subject, ...]] = {}
        """By binding: where it stands in the index."""
        self._decisions: dict[tuple[str, tuple[str, ...], Attributes], tuple[bool, str]] = {}
        self._remembered = remembered

    def set(self, kind: str, namespace: str, name: str, obj: Object | None) -> None:
        """Take an object as it is now; None: it is gone."""
        if kind not in ROLES | BINDINGS or kind.startswith("Cluster") == bool(namespace):
            raise ValueError(f"no {kind} in namespace {namespace!r}")
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

    def authorize(self, user: User, wanted: Attributes) -> tuple[bool, str]:
        """Decide, with the reason; an empty reason: nothing allows it."""
        if MASTERS in user.groups:
            return True, ""
        key = (user.name, user.groups, wanted)
        decision = self._decisions.get(key)
        if decision is None:
            decision = self._decide(user, wanted)
            if len(self._decisions) >= self._remembered:
                self._decisions.clear()
            self._decisions[key] = decision
        return decision

    def rules_for(self, user: User, namespace: str) -> list[PolicyRule]:
        """Give what a user holds in a namespace; empty: in the cluster. Not to be changed."""
        if MASTERS in user.groups:
            return list(EVERYTHING)
        grants = self._reaching(user, namespace)
        return [rule for grant in grants for rule in self._roles.get(grant.role, ())]

    def rules_of(self, role_ref: Object, namespace: str) -> list[PolicyRule] | None:
        """Give the rules of the role a binding in ``namespace`` refers to; None: there is none."""
        key = _referenced(role_ref, namespace)
        return None if key is None else self._roles.get(key)

    def _decide(self, user: User, wanted: Attributes) -> tuple[bool, str]:
        missing: dict[str, None] = {}
        # A URL belongs to no namespace, so only the cluster's bindings speak of it.
        for grant in self._reaching(user, "" if wanted.path else wanted.namespace):
            rules = self._roles.get(grant.role)
            if rules is None:
                what = f"{grant.kind.lower()}.{GROUP} {quoted(grant.role[1])} not found"
                missing[what] = None
            elif any_allows(rules, wanted):
                return True, f"RBAC: allowed by {grant.source}"
        if not missing:
            return False, ""
        return False, f"RBAC: {next(iter(missing)) if len(missing) == 1 else _joined(missing)}"

    def _reaching(self, user: User, namespace: str) -> Iterator[Grant]:
        seen: set[Key] = set()
        subjects = [("User", user.name), *(("Group", group) for group in user.groups)]
        for scope in ("", namespace) if namespace else ("",):
            for kind, name in subjects:
                for grant in self._grants.get((scope, kind, name), {}).values():
                    if grant.binding not in seen:
                        seen.add(grant.binding)
                        yield grant

    def _bind(self, key: Key, kind: str, obj: Object) -> None:
        role_ref = obj.get("roleRef") or {}
        role = _referenced(role_ref, key[0])
        if role is None:
            return
        named = f"{key[1]}/{key[0]}" if key[0] else key[1]
        source = f"{kind} {quoted(named)} of {role_ref['kind']} {quoted(role[1])} to "
        subjects: dict[Subject, None] = {}
        for raw in values(obj, "subjects"):
            found = _subject(raw, key[0])
            if found is None or found[0] in subjects:
                continue
            subject, shown = found
            subjects[subject] = None
            grant = Grant(key, role_ref["kind"], role, source + shown)
            self._grants.setdefault(subject, {})[key[1]] = grant
        self._subjects[key] = tuple(subjects)

    def _unbind(self, key: Key) -> None:
        for subject in self._subjects.pop(key, ()):
            grants = self._grants[subject]
            del grants[key[1]]
            if not grants:
                del self._grants[subject]


def _referenced(role_ref: Object, namespace: str) -> Key | None:
    kind, name = role_ref.get("kind"), role_ref.get("name", "")
    if kind == "ClusterRole":
        return "", name
    # A ClusterRoleBinding has no namespace in which a Role could be found.
    return (namespace, name) if kind == "Role" and namespace else None


def _subject(subject: Object, namespace: str) -> tuple[Subject, str] | None:
    """Give the key of a subject and how it is shown; None for one that is nobody."""
    kind, name = subject.get("kind", ""), subject.get("name", "")
    if kind in ("User", "Group") and name:
        return (namespace, kind, name), f"{kind} {quoted(name)}"
    home = subject.get("namespace") or namespace
    if kind == "ServiceAccount" and name and home:
        account = f"system:serviceaccount:{home}:{name}"
        return (namespace, "User", account), f"{kind} {quoted(f'{name}/{home}')}"
    return None


def _joined(messages: dict[str, None]) -> str:
    return f"[{', '.join(messages)}]"
