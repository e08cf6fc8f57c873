"""The conditions of a match beyond its path: variables to look at and patterns to hold."""

from __future__ import annotations

import re

import msgspec

from gatehouse.backends.nginx import names, quoting, regex
from gatehouse.backends.nginx.quoting import UnwritableError
from gatehouse.backends.nginx.tree import Directive, block, simple
from gatehouse.ir import http as ir

_HEADER = re.compile(r"[a-z0-9-]+")


class Condition(msgspec.Struct, frozen=True):
    """``variable`` (without ``$``) must match ``pattern``, case-sensitively."""

    variable: str
    pattern: str
    definition: Directive | None = None
    """The map that defines the variable, if it is not NGINX's own."""


def conditions(match: ir.Match) -> tuple[Condition, ...]:
    """Give the conditions of a match, cheapest first; raises UnwritableError."""
    found: list[Condition] = []
    if match.method:
        found.append(Condition("request_method", f"^{regex.escape(match.method)}$"))
    found += [_header(item) for item in match.headers]
    found += [_query(item) for item in match.query]
    return tuple(found)


def path_condition(path: ir.PathRegex) -> Condition:
    """Give the condition that stands for a path's regular expression."""
    return Condition("uri", regex.whole(path.value))


def _header(item: ir.ValueMatch) -> Condition:
    # NGINX drops other names before any variable sees them (ignore_invalid_headers).
    if not _HEADER.fullmatch(item.name):
        raise UnwritableError(f"header {item.name!r} cannot be matched: NGINX ignores such names")
    pattern = regex.whole(item.value) if item.regex else f"^{regex.escape(item.value)}$"
    return Condition(f"http_{item.name.replace('-', '_')}", pattern)


def _query(item: ir.ValueMatch) -> Condition:
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
    pattern = regex.whole(item.value) if item.regex else f"^{regex.encoded(item.value)}$"
    return Condition(variable, pattern, definition)
