"""From lists of values, wildcards and inverted values to sets of names: the documented meaning.

``*`` alone is everything. Values without ``-`` hide those with it. Several inverted values exclude
all of them; KubeGateway's code takes what any one of them does not exclude, which is everything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from gatehouse.compiler.ir.kube_apiserver import ANY, NONE, Names

EVERYTHING = "*"
INVERTED = "-"


class Field(msgspec.Struct, frozen=True):
    """A field of a rule that is a list of values."""

    name: str
    """As in the object."""
    empty: Names
    """What no value at all means."""
    impossible: Callable[[str], str]
    """Says why a value can never be that of a request; empty if it can."""
    prefixes: bool = False
    """Whether a trailing ``*`` stands for any rest."""
    subresources: bool = False
    """Whether ``*/<subresource>`` is that of any resource."""
    invertible: bool = True
    never_excludes: Callable[[str], bool] = lambda _: False
    """Whether KubeGateway lets an inverted value match all the same."""


class Reading(msgspec.Struct, frozen=True):
    """What the values of a field mean."""

    names: Names | None
    """None: they cannot mean anything, and the rule is refused."""
    problems: tuple[str, ...] = ()
    """What is ignored, or why the rule is refused; each begins with the field's name."""
    differences: tuple[str, ...] = ()
    """What KubeGateway makes of them instead."""


def read(field: Field, values: Sequence[str]) -> Reading:
    """Give the set of names that the values of a field stand for."""
    if EVERYTHING in values:
        return Reading(ANY)
    if not values:
        return Reading(field.empty)
    plain = tuple(dict.fromkeys(each for each in values if not each.startswith(INVERTED)))
    inverted = tuple(dict.fromkeys(each for each in values if each.startswith(INVERTED)))
    if plain:
        return _plain(field, plain, inverted)
    return _inverted(field, inverted)


def _plain(field: Field, plain: Sequence[str], inverted: Sequence[str]) -> Reading:
    problems = [
        f"{field.name}: {each!r} is ignored beside values that are not inverted"
        for each in inverted
    ]
    good = []
    for each in plain:
        why = field.impossible(each)
        if why:
            problems.append(f"{field.name}: {each!r} is ignored: {why}")
        else:
            good.append(each)
    return Reading(_names(field, good) if good else None, tuple(problems))


def _inverted(field: Field, inverted: Sequence[str]) -> Reading:
    if not field.invertible:
        shown = ", ".join(map(repr, inverted))
        return Reading(None, (f"{field.name}: {shown}: no value here can be inverted",))
    excluded = [each.removeprefix(INVERTED) for each in inverted]
    problems = []
    for each, value in zip(inverted, excluded, strict=True):
        why = field.impossible(value)
        if value == EVERYTHING or (field.prefixes and value and not value.rstrip(EVERYTHING)):
            why = "it excludes everything"
        if why:
            problems.append(f"{field.name}: {each!r}: {why}")
    if problems:
        return Reading(None, tuple(problems))
    found = msgspec.structs.replace(_names(field, excluded), others=True)
    return Reading(found, (), tuple(_differences(field, inverted)))


def _differences(field: Field, inverted: Sequence[str]) -> list[str]:
    shown = ", ".join(map(repr, inverted))
    if len(inverted) > 1:
        return [f"{field.name}: {shown}: all are excluded; KubeGateway then matches everything"]
    return [
        f"{field.name}: {each!r} excludes; KubeGateway matches all the same"
        for each in inverted
        if field.never_excludes(each.removeprefix(INVERTED))
    ]


def _names(field: Field, values: Sequence[str]) -> Names:
    exact, prefixes, subresources = set(), set(), set()
    for value in values:
        if field.subresources and value.startswith("*/"):
            subresources.add(value.removeprefix("*/"))
        elif field.prefixes and value.endswith(EVERYTHING):
            prefixes.add(value.rstrip(EVERYTHING))
        else:
            exact.add(value)
    return Names(tuple(sorted(exact)), tuple(sorted(prefixes)), tuple(sorted(subresources)))


def _possible(_: str) -> str:
    return ""


def _verb(value: str) -> str:
    if EVERYTHING in value:
        return "only * alone stands for all verbs"
    return "verbs are lower case" if value != value.lower() else ""


def _group(value: str) -> str:
    if EVERYTHING in value:
        return "only * alone stands for all groups"
    return "a group is named without its version" if "/" in value else ""


def _resource(value: str) -> str:
    resource, slash, subresource = value.partition("/")
    if subresource == EVERYTHING:
        return "all subresources of a resource cannot be meant, each is to be named"
    if EVERYTHING in subresource or (EVERYTHING in resource and (resource, slash) != ("*", "/")):
        return "only * alone or */<subresource> is a wildcard"
    if slash and not (resource and subresource and "/" not in subresource):
        return "it is not of the form <resource>/<subresource>"
    return "" if resource else "it is empty"


def _path(value: str) -> str:
    return "" if value.startswith("/") else "a path begins with /"


VERBS = Field("verbs", NONE, _verb)
GROUPS = Field("apiGroups", NONE, _group)
RESOURCES = Field(
    "resources",
    NONE,
    _resource,
    subresources=True,
    never_excludes=lambda value: value.startswith("*/"),
)
NAMES = Field("resourceNames", ANY, _possible)
USERS = Field(
    "users",
    ANY,
    _possible,
    prefixes=True,
    never_excludes=lambda value: value.endswith(EVERYTHING),
)
USER_GROUPS = Field("userGroups", ANY, _possible, never_excludes=lambda _: True)
PATHS = Field("nonResourceURLs", NONE, _path, prefixes=True, invertible=False)
