"""From paths to routes: which locations a virtual host has, and which routes each may lead to.

NGINX chooses the location: ``=`` for exact paths, the longest ``^~`` for prefixes; regular
expressions are conditions on ``$uri``, so that their place in the order is ours to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import unquote

import msgspec

from gatehouse.compiler.backends.nginx import names, quoting
from gatehouse.compiler.backends.nginx.decision_plan import Candidate
from gatehouse.compiler.backends.nginx.directives import Directive, Node, block, simple
from gatehouse.compiler.backends.nginx.map_chains import chain
from gatehouse.compiler.backends.nginx.match_conditions import Condition, path_condition
from gatehouse.compiler.backends.nginx.route_context import Served
from gatehouse.compiler.ir import http as ir


class Target(msgspec.Struct, frozen=True):
    """A route as it can be led to."""

    path: ir.PathMatch
    conditions: tuple[Condition, ...]
    served: Served


def locations(scope: str, targets: Sequence[Target]) -> tuple[list[Directive], list[Directive]]:
    """Give the locations of a virtual host and the maps that they need.

    ``targets`` are in the order in which they are tried.
    """
    exact = {_decoded(t.path.value) for t in targets if isinstance(t.path, ir.PathExact)}
    prefixes = {_decoded(t.path.value) for t in targets if isinstance(t.path, ir.PathPrefix)}
    # NGINX would redirect from a path without its last slash to the one that has it.
    exact |= {value.rstrip("/") for value in exact if value.endswith("/")} - {""}
    found: list[Directive] = []
    maps: list[Directive] = []
    for value in sorted(exact | (prefixes - {"/"})):
        candidates = [t for t in targets if _leads(t.path, value, exactly=True)]
        found.append(_location(scope, ("=", quoting.literal(value)), candidates, maps))
    for value in sorted(prefixes - {"/"}):
        candidates = [t for t in targets if _leads(t.path, value + "/", exactly=False)]
        found.append(_location(scope, ("^~", quoting.literal(value + "/")), candidates, maps))
    rest = [t for t in targets if _leads(t.path, "/", exactly=False)]
    found.append(_location(scope, ("/",), rest, maps))
    return found, maps


def _location(
    scope: str, where: tuple[str, ...], targets: Sequence[Target], maps: list[Directive]
) -> Directive:
    candidates = [
        Candidate(target.served.destination, _all_conditions(target)) for target in targets
    ]
    chosen = chain(scope, candidates, names.NOT_FOUND)
    maps += chosen.maps
    return block("location", where, _inside(chosen.destination, targets))


def _inside(destination: str, targets: Sequence[Target]) -> tuple[Node, ...]:
    if destination == names.NOT_FOUND:
        return (simple("return", "404"),)
    # Where no choice is left the location does the work itself.
    for target in targets:
        if target.served.destination == destination and target.served.direct is not None:
            return target.served.direct
    return (simple("error_page", "418", "=", destination), simple("return", "418"))


def _all_conditions(target: Target) -> tuple[Condition, ...]:
    if isinstance(target.path, ir.PathRegex):
        return (path_condition(target.path), *target.conditions)
    return target.conditions


def _leads(path: ir.PathMatch, value: str, *, exactly: bool) -> bool:
    """Whether a request in the location of ``value`` may match ``path``."""
    match path:
        case ir.PathExact(wanted):
            return exactly and _decoded(wanted) == value
        case ir.PathPrefix(wanted):
            prefix = _decoded(wanted).rstrip("/")
            return value == prefix or value.startswith(f"{prefix}/")
        case ir.PathRegex():
            return True


def _decoded(value: str) -> str:
    """Give a path as NGINX compares it: decoded, with single slashes."""
    text = unquote(value)
    while "//" in text:
        text = text.replace("//", "/")
    return text
