"""Conditions of a match other than its path: variables and the patterns they must match."""

from __future__ import annotations

import re

import msgspec

from gatehouse.compiler.backends.failures import InvalidValueError
from gatehouse.compiler.backends.nginx import names, quoting, regex
from gatehouse.compiler.backends.nginx.directives import Directive, block, simple
from gatehouse.compiler.ir import http as ir

_HEADER = re.compile(r"[a-z0-9-]+")


class Condition(msgspec.Struct, frozen=True):
    """``variable`` (without ``$``) must match ``pattern``, case-sensitively."""

    variable: str
    pattern: str
    definition: Directive | None = None
    """The map that defines the variable; None if it is NGINX's own."""
    value: str = ""
    """If set, the pattern matches exactly this value, in any of its spellings."""
    encoded: bool = False
    """True if the value has several spellings, in percent-encoding."""


MAX_PATTERN_BYTES = 3000
"""Maximum bytes of one pattern; a longer value is compared in parts."""


def conditions(match: ir.Match) -> tuple[Condition, ...]:
    """Return the conditions of a match, cheapest first. Raises InvalidValueError."""
    result: list[Condition] = []
    if match.method:
        pattern = f"^{regex.escape(match.method)}$"
        result.append(Condition("request_method", pattern, value=match.method))
    for item in match.headers:
        result += _header(item)
    for item in match.query:
        result += _query(item)
    for condition in result:
        # Raises here, so that only this match is reported.
        quoting.literal(f"~{condition.pattern}")
    return tuple(result)


def path_condition(path: ir.PathRegex) -> Condition:
    """Return the condition for a path's regular expression."""
    return Condition("uri", regex.whole(path.value))


def _header(item: ir.ValueMatch) -> list[Condition]:
    # NGINX drops other names before any variable sees them (ignore_invalid_headers).
    if not _HEADER.fullmatch(item.name):
        raise InvalidValueError(f"header {item.name!r} cannot be matched: NGINX ignores such names")
    variable = f"http_{item.name.replace('-', '_')}"
    if item.regex:
        return [Condition(variable, regex.whole(item.value))]
    parts = _equals(variable, [regex.escape(character) for character in item.value])
    if len(parts) > 1:
        return parts
    return [msgspec.structs.replace(parts[0], value=item.value)]


def _query(item: ir.ValueMatch) -> list[Condition]:
    variable = names.variable("query", item.name)
    # $arg_name takes only names of letters, digits and _, and any case; the first one counts.
    pattern = f"~(?:^|&){regex.encoded(item.name)}=(?<gh_value>[^&]*)"
    definition = block(
        "map",
        ("$args", f"${variable}"),
        (
            simple(quoting.literal(pattern), "$gh_value"),
            simple("default", '""'),
        ),
    )
    if item.regex:
        return [Condition(variable, regex.whole(item.value), definition)]
    first, *others = _equals(variable, regex.encodings(item.value))
    # With these characters, one text may be a spelling of two values.
    plain = "" if others or {"+", "%"} & set(item.value) else item.value
    first = msgspec.structs.replace(first, definition=definition, value=plain, encoded=True)
    return [first, *others]


def _equals(variable: str, letters: list[str]) -> list[Condition]:
    """Return the conditions that a value consists of these letters, each given as a pattern.

    NGINX reads no token longer than its buffer. The rest of a long value behind one condition is
    captured and compared by the next.
    """
    parts: list[str] = [""]
    for letter in letters:
        if len(parts[-1].encode()) + len(letter.encode()) > MAX_PATTERN_BYTES:
            parts.append("")
        parts[-1] += letter
    result: list[Condition] = []
    for number, part in enumerate(parts):
        rest = names.variable(variable, *parts[: number + 1])
        end = f"(?<{rest}>.*)$" if number < len(parts) - 1 else "$"
        result.append(Condition(variable, f"^{part}{end}"))
        variable = rest
    return result
