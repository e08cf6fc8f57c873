"""Translation of lists of values, wildcards and inverted values to sets of names.

The documented meaning is implemented. ``*`` alone matches everything. Values without ``-`` hide
those with it. Several inverted values exclude all of them; KubeGateway's code matches what any one
of them does not exclude, which is everything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from gatehouse.compiler.ir.kube_apiserver import ANY, NONE, Names

EVERYTHING = "*"
INVERTED = "-"


class Field(msgspec.Struct, frozen=True):
    """A list field of a rule."""

    name: str
    """Name in the object."""
    empty: Names
    """Meaning of an empty list."""
    impossible: Callable[[str], str]
    """Returns why no request can have a value; empty if one can."""
    prefixes: bool = False
    """A trailing ``*`` is a wildcard."""
    subresources: bool = False
    """``*/<subresource>`` matches the subresource of any resource."""
    invertible: bool = True
    never_excludes: Callable[[str], bool] = lambda _: False
    """Returns whether KubeGateway matches despite an inverted value."""


class ParsedField(msgspec.Struct, frozen=True):
    """Parsed values of a field."""

    names: Names | None
    """The set of names; None if the values are invalid and the rule is rejected."""
    problems: tuple[str, ...] = ()
    """Ignored values, or reasons why the rule is rejected. Each begins with the field name."""
    differences: tuple[str, ...] = ()
    """Differences to KubeGateway's behaviour."""


def read(field: Field, values: Sequence[str]) -> ParsedField:
    """Return the set of names of a field's values."""
    if EVERYTHING in values:
        return ParsedField(ANY)
    if not values:
        return ParsedField(field.empty)
    plain = tuple(dict.fromkeys(each for each in values if not each.startswith(INVERTED)))
    inverted = tuple(dict.fromkeys(each for each in values if each.startswith(INVERTED)))
    if plain:
        return _plain(field, plain, inverted)
    return _inverted(field, inverted)


def _plain(field: Field, plain: Sequence[str], inverted: Sequence[str]) -> ParsedField:
    problems = [
        f"{field.name}: {each!r} is ignored because of values that are not inverted"
        for each in inverted
    ]
    good = []
    for each in plain:
        why = field.impossible(each)
        if why:
            problems.append(f"{field.name}: {each!r} is ignored: {why}")
        else:
            good.append(each)
    return ParsedField(_names(field, good) if good else None, tuple(problems))


def _inverted(field: Field, inverted: Sequence[str]) -> ParsedField:
    if not field.invertible:
        shown = ", ".join(map(repr, inverted))
        return ParsedField(None, (f"{field.name}: {shown}: inverted values are not supported",))
    excluded = [each.removeprefix(INVERTED) for each in inverted]
    problems = []
    for each, value in zip(inverted, excluded, strict=True):
        why = field.impossible(value)
        if value == EVERYTHING or (field.prefixes and value and not value.rstrip(EVERYTHING)):
            why = "it excludes everything"
        if why:
            problems.append(f"{field.name}: {each!r}: {why}")
    if problems:
        return ParsedField(None, tuple(problems))
    found = msgspec.structs.replace(_names(field, excluded), others=True)
    return ParsedField(found, (), tuple(_differences(field, inverted)))


def _differences(field: Field, inverted: Sequence[str]) -> list[str]:
    shown = ", ".join(map(repr, inverted))
    if len(inverted) > 1:
        return [f"{field.name}: {shown}: all are excluded; KubeGateway matches everything"]
    return [
        f"{field.name}: {each!r} is excluded; KubeGateway ignores it"
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
        return "only * alone matches all verbs"
    return "must be lower case" if value != value.lower() else ""


def _group(value: str) -> str:
    if EVERYTHING in value:
        return "only * alone matches all groups"
    return "must not have a version" if "/" in value else ""


def _resource(value: str) -> str:
    resource, slash, subresource = value.partition("/")
    if subresource == EVERYTHING:
        return "must not have a wildcard subresource"
    if EVERYTHING in subresource or (EVERYTHING in resource and (resource, slash) != ("*", "/")):
        return "only * alone and */<subresource> are wildcards"
    if slash and not (resource and subresource and "/" not in subresource):
        return "must have the form <resource>/<subresource>"
    return "" if resource else "must not be empty"


def _path(value: str) -> str:
    return "" if value.startswith("/") else "must begin with /"


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
