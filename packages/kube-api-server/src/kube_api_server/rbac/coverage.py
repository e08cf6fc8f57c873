"""Containment of rules, for the prevention of privilege escalation.

The requested rules are split into atoms of one verb, group, resource and name (or one verb and
URL). An atom is covered if a single rule of the owner contains it. This is exact, because an atom
cannot be split between two rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from math import prod

from kube_api_server.formatting import quote_go
from kube_api_server.rbac.rules import (
    ALL,
    PolicyRule,
    RbacUser,
    grants_resource,
    grants_url,
    values,
)

MAX_ATOMS = 5_000
"""Maximum number of atoms per check.

A small request can ask for billions of atoms. A rule beyond the limit counts as not covered, unless
one rule of the owner contains it completely. Real roles have some hundreds.
"""

_FIELD_LABELS = (
    ("APIGroups", "apiGroups"),
    ("Resources", "resources"),
    ("NonResourceURLs", "nonResourceURLs"),
    ("ResourceNames", "resourceNames"),
    ("Verbs", "verbs"),
)


def rules_cover(owner: Iterable[PolicyRule], requested: Iterable[PolicyRule]) -> bool:
    """Return whether the rules `owner` contain all rules `requested`."""
    return not uncovered_atoms(owner, requested)


def uncovered_atoms(
    owner: Iterable[PolicyRule], requested: Iterable[PolicyRule]
) -> list[PolicyRule]:
    """Return the atoms of `requested` that `owner` does not contain, in their order."""
    owned, uncovered_rules, remaining = list(owner), list[PolicyRule](), MAX_ATOMS
    for rule in requested:
        if any(contains(one, rule) for one in owned):
            continue
        count = _count(rule)
        if count > remaining:
            uncovered_rules.append(rule)
            continue
        remaining -= count
        uncovered_rules += (
            atom for atom in atoms(rule) if not any(contains(one, atom) for one in owned)
        )
    return uncovered_rules


def contains(rule: PolicyRule, requested: PolicyRule) -> bool:
    """Return whether one rule contains another rule completely."""
    urls, resources = values(rule, "nonResourceURLs"), values(rule, "resources")
    names, wanted_names = values(rule, "resourceNames"), values(requested, "resourceNames")
    return (
        _includes(values(rule, "verbs"), values(requested, "verbs"))
        and _includes(values(rule, "apiGroups"), values(requested, "apiGroups"))
        and all(grants_resource(resources, one) for one in values(requested, "resources"))
        and all(grants_url(urls, one) for one in values(requested, "nonResourceURLs"))
        # No names means all names, which a list of names never contains.
        and (not names or (bool(wanted_names) and set(wanted_names) <= set(names)))
    )


def atoms(rule: PolicyRule) -> Iterator[PolicyRule]:
    """Split a rule into equivalent rules of one verb and one resource or URL each."""
    names = [[name] for name in values(rule, "resourceNames")]
    for group, resource, verb, name in product(
        values(rule, "apiGroups"), values(rule, "resources"), values(rule, "verbs"), names or [[]]
    ):
        atom: PolicyRule = {"apiGroups": [group], "resources": [resource], "verbs": [verb]}
        yield {**atom, "resourceNames": name} if name else atom
    for url, verb in product(values(rule, "nonResourceURLs"), values(rule, "verbs")):
        yield {"nonResourceURLs": [url], "verbs": [verb]}


def compact(rules: Iterable[PolicyRule]) -> list[PolicyRule]:
    """Merge rules for the same resource (and name) that differ only by verbs."""
    joined: list[PolicyRule] = []
    by_thing: dict[tuple[str, ...], PolicyRule] = {}
    for rule in rules:
        thing = _single_resource(rule)
        if thing is not None and thing in by_thing:
            by_thing[thing]["verbs"] += values(rule, "verbs")
            continue
        copied = {field: list(items) for field, items in rule.items() if items}
        joined.append(copied)
        if thing is not None:
            by_thing[thing] = copied
    return joined


def escalation_message(user: RbacUser, uncovered_rules: Iterable[PolicyRule]) -> str:
    """Return Kubernetes' message about rules that `user` grants without holding them."""
    lines = sorted({_format(rule) for rule in compact(uncovered_rules)})
    return (
        f"user {quote_go(user.name)} (groups={_list(user.groups)}) is attempting to grant RBAC "
        "permissions not currently held:\n" + "\n".join(lines)
    )


def _includes(owned: Sequence[str], requested: Sequence[str]) -> bool:
    return ALL in owned or set(requested) <= set(owned)


def _count(rule: PolicyRule) -> int:
    fields = ("apiGroups", "resources", "verbs")
    names = len(values(rule, "resourceNames")) or 1
    urls = len(values(rule, "nonResourceURLs")) * len(values(rule, "verbs"))
    return prod(len(values(rule, field)) for field in fields) * names + urls


def _single_resource(rule: PolicyRule) -> tuple[str, ...] | None:
    groups, resources = values(rule, "apiGroups"), values(rule, "resources")
    names = values(rule, "resourceNames")
    if values(rule, "nonResourceURLs") or len(names) > 1:
        return None
    if len(groups) != 1 or len(resources) != 1:
        return None
    return (groups[0], resources[0], *names)


def _format(rule: PolicyRule) -> str:
    parts = [
        f"{label}:{_list(values(rule, field))}" for label, field in _FIELD_LABELS if rule.get(field)
    ]
    return f"{{{', '.join(parts)}}}"


def _list(texts: Iterable[str]) -> str:
    return f"[{' '.join(quote_go(text) for text in texts)}]"
