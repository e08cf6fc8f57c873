"""Locations of a virtual host: paths to candidate routes.

NGINX selects the location: ``=`` for exact paths, the longest ``^~`` for prefixes. Regular
expressions are conditions on ``$uri``, so that the generator controls their order.
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
    """A route with its path, its conditions and its destination."""

    path: ir.PathMatch
    conditions: tuple[Condition, ...]
    served: Served


def locations(scope: str, targets: Sequence[Target]) -> tuple[list[Directive], list[Directive]]:
    """Return the locations of a virtual host and the maps that they need.

    ``targets`` are in evaluation order.
    """
    exact = {_decoded(t.path.value) for t in targets if isinstance(t.path, ir.PathExact)}
    prefixes = {_decoded(t.path.value) for t in targets if isinstance(t.path, ir.PathPrefix)}
    # NGINX would redirect from a path without its trailing slash to the one with it.
    exact |= {value.rstrip("/") for value in exact if value.endswith("/")} - {""}
    blocks: list[Directive] = []
    maps: list[Directive] = []
    for value in sorted(exact | (prefixes - {"/"})):
        candidates = [t for t in targets if _may_match(t.path, value, exactly=True)]
        blocks.append(_location(scope, ("=", quoting.literal(value)), candidates, maps))
    for value in sorted(prefixes - {"/"}):
        candidates = [t for t in targets if _may_match(t.path, value + "/", exactly=False)]
        blocks.append(_location(scope, ("^~", quoting.literal(value + "/")), candidates, maps))
    rest = [t for t in targets if _may_match(t.path, "/", exactly=False)]
    blocks.append(_location(scope, ("/",), rest, maps))
    return blocks, maps


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
    # If no choice is left, the location contains the action itself.
    for target in targets:
        if target.served.destination == destination and target.served.direct is not None:
            return target.served.direct
    return (simple("error_page", "418", "=", destination), simple("return", "418"))


def _all_conditions(target: Target) -> tuple[Condition, ...]:
    if isinstance(target.path, ir.PathRegex):
        return (path_condition(target.path), *target.conditions)
    return target.conditions


def _may_match(path: ir.PathMatch, value: str, *, exactly: bool) -> bool:
    """Return whether a request in the location of ``value`` may match ``path``."""
    match path:
        case ir.PathExact(expected):
            return exactly and _decoded(expected) == value
        case ir.PathPrefix(expected):
            prefix = _decoded(expected).rstrip("/")
            return value == prefix or value.startswith(f"{prefix}/")
        case ir.PathRegex():
            return True


def _decoded(value: str) -> str:
    """Return a path as NGINX compares it: decoded, with single slashes."""
    text = unquote(value)
    while "//" in text:
        text = text.replace("//", "/")
    return text
