"""Conditions of a match other than its path: variables and the patterns they must match."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gatehouse.compiler.backends.failures import InvalidValueError
from gatehouse.compiler.backends.nginx import names, quoting, regex
from gatehouse.compiler.backends.nginx.directives import Directive, map_block
from gatehouse.compiler.backends.nginx.header_variables import request_header
from gatehouse.compiler.ir import http as ir

_NONE: Mapping[str, str] = {}


class MatchCondition(msgspec.Struct, frozen=True):
    """``variable`` (without ``$``) must match ``pattern``, case-sensitively."""

    variable: str
    pattern: str
    definition: Directive | None = None
    """The map that defines the variable; None if it is NGINX's own."""
    value: str = ""
    """If set, the pattern matches exactly this value, in any of its spellings."""
    encoded: bool = False
    """True if the value has several spellings, in percent-encoding."""


_REJECTED_METHODS = ("CONNECT", "TRACE")

MAX_PATTERN_BYTES = 3000
"""Maximum bytes of one pattern with its escapes; a longer value is compared in parts."""


def match_conditions(
    match: ir.Match, authorized: Mapping[str, str] = _NONE
) -> tuple[MatchCondition, ...]:
    """Return the conditions of a match, cheapest first. Raises InvalidValueError.

    ``authorized``: variables of headers that are not those of the client.
    """
    result: list[MatchCondition] = []
    if match.method in _REJECTED_METHODS:
        raise InvalidValueError(f"method {match.method}: NGINX answers it with status 405")
    if match.method:
        pattern = f"^{regex.escape_regex(match.method)}$"
        result.append(
            _checked(MatchCondition("request_method", pattern, value=match.method), "method")
        )
    # Raises here, so that only this match is reported.
    for item in match.headers:
        result += (
            _checked(condition, f"header {item.name}") for condition in _header(item, authorized)
        )
    for item in match.query:
        what = f"query parameter {item.name}"
        result += (_checked(condition, what) for condition in _query(item, what))
    return tuple(result)


def path_condition(path: ir.PathRegex) -> MatchCondition:
    """Return the condition for a path's regular expression."""
    return _checked(MatchCondition("uri", regex.whole(path.value, "path")), "path")


def _checked(condition: MatchCondition, what: str) -> MatchCondition:
    """Return a condition that NGINX can read. Raises InvalidValueError."""
    quoting.quote_literal(f"~{condition.pattern}", f"{what}: value")
    return condition


def _header(item: ir.ValueMatch, authorized: Mapping[str, str]) -> list[MatchCondition]:
    variable = request_header(item.name, use="matched")
    variable = authorized.get(item.name, variable)
    if item.regex:
        return [MatchCondition(variable, regex.whole(item.value, f"header {item.name}"))]
    parts = _equals(variable, [regex.escape_regex(character) for character in item.value])
    if len(parts) > 1:
        return parts
    return [msgspec.structs.replace(parts[0], value=item.value)]


def _query(item: ir.ValueMatch, what: str) -> list[MatchCondition]:
    variable = names.variable("query", item.name)
    # $arg_name takes only names of letters, digits and _, and any case; the first one counts.
    pattern = f"~(?:^|&){regex.percent_encoded(item.name)}=(?<gh_value>[^&]*)"
    rows = {quoting.quote_literal(pattern, f"name of {what}"): "$gh_value"}
    definition = map_block("$args", f"${variable}", rows)
    if item.regex:
        return [MatchCondition(variable, regex.whole(item.value, what), definition)]
    first, *others = _equals(variable, regex.encodings(item.value))
    # With these characters, one text may be a spelling of two values.
    plain = "" if others or {"+", "%"} & set(item.value) else item.value
    first = msgspec.structs.replace(first, definition=definition, value=plain, encoded=True)
    return [first, *others]


def _equals(variable: str, letters: list[str]) -> list[MatchCondition]:
    """Return the conditions that a value consists of these letters, each given as a pattern.

    NGINX reads no token longer than its buffer. The rest of a long value behind one condition is
    captured and compared by the next.
    """
    parts: list[str] = [""]
    size = 0
    for letter in letters:
        size += quoting.literal_bytes(letter)
        if size > MAX_PATTERN_BYTES:
            parts.append("")
            size = quoting.literal_bytes(letter)
        parts[-1] += letter
    result: list[MatchCondition] = []
    for number, part in enumerate(parts):
        rest = names.variable(variable, *parts[: number + 1])
        end = f"(?<{rest}>.*)$" if number < len(parts) - 1 else "$"
        result.append(MatchCondition(variable, f"^{part}{end}"))
        variable = rest
    return result
