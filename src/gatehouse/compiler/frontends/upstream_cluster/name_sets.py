"""Translation of lists of values, wildcards and inverted values to sets of names.

The documented meaning is implemented. ``*`` alone matches everything. Values without ``-`` hide
those with it. Several inverted values exclude all of them; KubeGateway's code matches what any one
of them does not exclude, which is everything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from gatehouse.compiler.ir.kube_apiserver import ANY, NONE, Names

_EVERYTHING = "*"
INVERTED = "-"


class RuleField(msgspec.Struct, frozen=True):
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


def parse_names(field: RuleField, values: Sequence[str]) -> ParsedField:
    """Return the set of names of a field's values."""
    if _EVERYTHING in values:
        return ParsedField(ANY)
    if not values:
        return ParsedField(field.empty)
    plain = tuple(dict.fromkeys(value for value in values if not value.startswith(INVERTED)))
    inverted = tuple(dict.fromkeys(value for value in values if value.startswith(INVERTED)))
    if plain:
        return _plain(field, plain, inverted)
    return _inverted(field, inverted)


def _plain(field: RuleField, plain: Sequence[str], inverted: Sequence[str]) -> ParsedField:
    problems = [
        f"{field.name}: {value!r} is ignored because of values that are not inverted"
        for value in inverted
    ]
    good = []
    for value in plain:
        why = field.impossible(value)
        if why:
            problems.append(f"{field.name}: {value!r} is ignored: {why}")
        else:
            good.append(value)
    return ParsedField(_names(field, good) if good else None, tuple(problems))


def _inverted(field: RuleField, inverted: Sequence[str]) -> ParsedField:
    if not field.invertible:
        listing = ", ".join(map(repr, inverted))
        return ParsedField(None, (f"{field.name}: {listing}: inverted values are not supported",))
    excluded = [text.removeprefix(INVERTED) for text in inverted]
    problems = []
    for text, value in zip(inverted, excluded, strict=True):
        why = field.impossible(value)
        if value == _EVERYTHING or (field.prefixes and value and not value.rstrip(_EVERYTHING)):
            why = "it excludes everything"
        if why:
            problems.append(f"{field.name}: {text!r}: {why}")
    if problems:
        return ParsedField(None, tuple(problems))
    names = msgspec.structs.replace(_names(field, excluded), others=True)
    return ParsedField(names, (), tuple(_differences(field, inverted)))


def _differences(field: RuleField, inverted: Sequence[str]) -> list[str]:
    listing = ", ".join(map(repr, inverted))
    if len(inverted) > 1:
        return [f"{field.name}: {listing}: all are excluded; KubeGateway matches everything"]
    return [
        f"{field.name}: {value!r} is excluded; KubeGateway ignores it"
        for value in inverted
        if field.never_excludes(value.removeprefix(INVERTED))
    ]


def _names(field: RuleField, values: Sequence[str]) -> Names:
    exact, prefixes, subresources = set(), set(), set()
    for value in values:
        if field.subresources and value.startswith("*/"):
            subresources.add(value.removeprefix("*/"))
        elif field.prefixes and value.endswith(_EVERYTHING):
            prefixes.add(value.rstrip(_EVERYTHING))
        else:
            exact.add(value)
    return Names(tuple(sorted(exact)), tuple(sorted(prefixes)), tuple(sorted(subresources)))


def _possible(_: str) -> str:
    return ""


def _verb(value: str) -> str:
    if _EVERYTHING in value:
        return "only * alone matches all verbs"
    return "must be lower case" if value != value.lower() else ""


def _group(value: str) -> str:
    if _EVERYTHING in value:
        return "only * alone matches all groups"
    return "must not have a version" if "/" in value else ""


def _resource(value: str) -> str:
    resource, slash, subresource = value.partition("/")
    if subresource == _EVERYTHING:
        return "must not have a wildcard subresource"
    if _EVERYTHING in subresource or (_EVERYTHING in resource and (resource, slash) != ("*", "/")):
        return "only * alone and */<subresource> are wildcards"
    if slash and not (resource and subresource and "/" not in subresource):
        return "must have the form <resource>/<subresource>"
    return "" if resource else "must not be empty"


def _path(value: str) -> str:
    return "" if value.startswith("/") else "must begin with /"


VERBS = RuleField("verbs", NONE, _verb)
GROUPS = RuleField("apiGroups", NONE, _group)
RESOURCES = RuleField(
    "resources",
    NONE,
    _resource,
    subresources=True,
    never_excludes=lambda value: value.startswith("*/"),
)
NAMES = RuleField("resourceNames", ANY, _possible)
USERS = RuleField(
    "users",
    ANY,
    _possible,
    prefixes=True,
    never_excludes=lambda value: value.endswith(_EVERYTHING),
)
USER_GROUPS = RuleField("userGroups", ANY, _possible, never_excludes=lambda _: True)
PATHS = RuleField("nonResourceURLs", NONE, _path, prefixes=True, invertible=False)
