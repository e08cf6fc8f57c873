"""The conditions of a match beyond its path: variables to look at and patterns to hold."""

from __future__ import annotations

import re

import msgspec

from gatehouse.compiler.backends.nginx import names, quoting, regex
from gatehouse.compiler.backends.nginx.directives import Directive, block, simple
from gatehouse.compiler.backends.nginx.quoting import InvalidValueError
from gatehouse.compiler.ir import http as ir

_HEADER = re.compile(r"[a-z0-9-]+")


class Condition(msgspec.Struct, frozen=True):
    """``variable`` (without ``$``) must match ``pattern``, case-sensitively."""

    variable: str
    pattern: str
    definition: Directive | None = None
    """The map that defines the variable, if it is not NGINX's own."""
    value: str = ""
    """Given: the pattern holds for this value and no other, in any of its spellings."""
    encoded: bool = False
    """Whether there are spellings, in percent-encoding."""


LONGEST_PATTERN = 3000
"""Bytes of one pattern; a longer value is compared in parts."""


def conditions(match: ir.Match) -> tuple[Condition, ...]:
    """Give the conditions of a match, cheapest first; raises UnwritableError."""
    found: list[Condition] = []
    if match.method:
        pattern = f"^{regex.escape(match.method)}$"
        found.append(Condition("request_method", pattern, value=match.method))
    for item in match.headers:
        found += _header(item)
    for item in match.query:
        found += _query(item)
    for condition in found:
        # What cannot be written is said here, of this match alone.
        quoting.literal(f"~{condition.pattern}")
    return tuple(found)


def path_condition(path: ir.PathRegex) -> Condition:
    """Give the condition that stands for a path's regular expression."""
    return Condition("uri", regex.whole(path.value))


def _header(item: ir.ValueMatch) -> list[Condition]:
    # NGINX drops other names before any variable sees them (ignore_invalid_headers).
    if not _HEADER.fullmatch(item.name):
        raise InvalidValueError(f"header {item.name!r} cannot be matched: NGINX ignores such names")
    variable = f"http_{item.name.replace('-', '_')}"
    if item.regex:
        return [Condition(variable, regex.whole(item.value))]
    found = _equals(variable, [regex.escape(character) for character in item.value])
    if len(found) > 1:
        return found
    return [msgspec.structs.replace(found[0], value=item.value)]


def _query(item: ir.ValueMatch) -> list[Condition]:
    variable = names.variable("query", item.name)
    # $arg_name takes only names of letters, digits and _, and any case; the first one counts.
    found = f"~(?:^|&){regex.encoded(item.name)}=(?<gh_value>[^&]*)"
    definition = block(
        "map",
        ("$args", f"${variable}"),
        (
            simple(quoting.literal(found), "$gh_value"),
            simple("default", '""'),
        ),
    )
    if item.regex:
        return [Condition(variable, regex.whole(item.value), definition)]
    first, *others = _equals(variable, regex.encodings(item.value))
    # One text may be a spelling of two values with these.
    plain = "" if others or {"+", "%"} & set(item.value) else item.value
    first = msgspec.structs.replace(first, definition=definition, value=plain, encoded=True)
    return [first, *others]


def _equals(variable: str, letters: list[str]) -> list[Condition]:
    """Give the conditions that a value is made of these letters, each given as a pattern.

    NGINX reads no token longer than its buffer, so that what is left of a long value behind one
    condition is captured, and looked at by the next.
    """
    parts: list[str] = [""]
    for letter in letters:
        if len(parts[-1].encode()) + len(letter.encode()) > LONGEST_PATTERN:
            parts.append("")
        parts[-1] += letter
    found: list[Condition] = []
    for number, part in enumerate(parts):
        rest = names.variable(variable, *parts[: number + 1])
        end = f"(?<{rest}>.*)$" if number < len(parts) - 1 else "$"
        found.append(Condition(variable, f"^{part}{end}"))
        variable = rest
    return found
