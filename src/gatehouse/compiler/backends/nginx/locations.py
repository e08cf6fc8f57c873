"""Locations of a virtual host: paths to candidate routes.

NGINX selects the location: ``=`` for exact paths, the longest ``^~`` for prefixes. Regular
expressions are conditions on ``$uri``, so that the generator controls their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import unquote

import msgspec

from gatehouse.compiler.backends.nginx import names, quoting, traces
from gatehouse.compiler.backends.nginx.decision_plan import Candidate
from gatehouse.compiler.backends.nginx.directives import Directive, DirectiveNode, block
from gatehouse.compiler.backends.nginx.if_chains import first_match_ifs, go_to
from gatehouse.compiler.backends.nginx.map_chains import MapChain, first_match_chain
from gatehouse.compiler.backends.nginx.match_conditions import MatchCondition, path_condition
from gatehouse.compiler.backends.nginx.route_context import NOT_TRACED, ServedRoute
from gatehouse.compiler.ir import http as ir

IFS_PER_MAP = 4
"""Number of ``if`` blocks that are preferable to one map: 0.1 ms and 40 KB instead of 1 ms."""


class LocationTarget(msgspec.Struct, frozen=True):
    """A route with its path, its conditions and its destination."""

    path: ir.PathMatch
    conditions: tuple[MatchCondition, ...]
    served: ServedRoute


def locations(
    scope: str, targets: Sequence[LocationTarget], otherwise: str = names.NOT_FOUND
) -> tuple[list[Directive], list[Directive]]:
    """Return the locations of a virtual host and the maps that they need.

    ``targets`` are in evaluation order. ``otherwise``: the named location of requests that match
    none. Raises InvalidValueError.
    """
    exact = {decoded(t.path.value) for t in targets if isinstance(t.path, ir.PathExact)}
    prefixes = {decoded(t.path.value) for t in targets if isinstance(t.path, ir.PathPrefix)}
    # NGINX would redirect from a path without its trailing slash to the one with it.
    exact |= {value.rstrip("/") for value in exact if value.endswith("/")} - {""}
    places: list[tuple[tuple[str, ...], list[LocationTarget]]] = []
    for value in sorted(exact | (prefixes - {"/"})):
        candidates = [t for t in targets if _may_match(t.path, value, exactly=True)]
        places.append((("=", quoting.quote_literal(value)), candidates))
    for value in sorted(prefixes - {"/"}):
        candidates = [t for t in targets if _may_match(t.path, value + "/", exactly=False)]
        places.append((("^~", quoting.quote_literal(value + "/")), candidates))
    places.append((("/",), [t for t in targets if _may_match(t.path, "/", exactly=False)]))
    bodies, maps = _bodies(scope, [candidates for _, candidates in places], otherwise)
    blocks = [
        block("location", where, body) for (where, _), body in zip(places, bodies, strict=True)
    ]
    return blocks, maps


def _bodies(
    scope: str, places: Sequence[Sequence[LocationTarget]], otherwise: str
) -> tuple[list[tuple[DirectiveNode, ...]], list[Directive]]:
    """Return the contents of locations with these targets, and the maps that they need.

    Maps are cheaper where one map replaces many ``if`` blocks, since locations share maps.
    """
    candidates = [
        [Candidate(target.served.destination, _all_conditions(target)) for target in targets]
        for targets in places
    ]
    chains = [first_match_chain(scope, choice, otherwise) for choice in candidates]
    definitions = (
        condition.definition
        for choice in candidates
        for candidate in choice
        for condition in candidate.conditions
        if condition.definition is not None
    )
    maps = [*definitions, *(item for chain in chains for item in chain.maps)]
    maps = list({item.arguments: item for item in maps}.values())
    selections = [first_match_ifs(choice, otherwise) for choice in candidates]
    ifs = sum(directive.name == "if" for selection in selections for directive in selection)
    traced = _traces(scope, chains, places)
    trace_maps = [item for _, definitions in traced for item in definitions]
    if ifs <= IFS_PER_MAP * len(maps) and not trace_maps:
        maps = []
    else:
        selections = [go_to(chain.destination) for chain in chains]
    direct = [
        _direct(chain.destination, targets) for chain, targets in zip(chains, places, strict=True)
    ]
    bodies = [
        (*first, *(own or selected))
        for (first, _), own, selected in zip(traced, direct, selections, strict=True)
    ]
    return bodies, [*maps, *trace_maps]


def _traces(
    scope: str, chains: Sequence[MapChain], places: Sequence[Sequence[LocationTarget]]
) -> list[tuple[tuple[Directive, ...], tuple[Directive, ...]]]:
    """Return the directives of each location that trace requests, and the map that they need."""
    decisions = {target.served.trace for targets in places for target in targets}
    if not decisions - {NOT_TRACED}:
        return [((), ())] * len(chains)
    result = []
    for selection, targets in zip(chains, places, strict=True):
        by_location = {
            location.arguments[-1]: target.served.trace
            for target in targets
            for location in target.served.piece.locations
        }
        result.append(traces.first_location(scope, selection.destination, by_location))
    return result


def _direct(
    destination: str, targets: Sequence[LocationTarget]
) -> tuple[DirectiveNode, ...] | None:
    """Return the action itself if no choice is left and it fits the location."""
    for target in targets:
        if target.served.destination == destination and target.served.is_direct:
            return target.served.piece.content
    return None


def _all_conditions(target: LocationTarget) -> tuple[MatchCondition, ...]:
    if isinstance(target.path, ir.PathRegex):
        return (path_condition(target.path), *target.conditions)
    return target.conditions


def _may_match(path: ir.PathMatch, value: str, *, exactly: bool) -> bool:
    """Return whether a request in the location of ``value`` may match ``path``."""
    match path:
        case ir.PathExact(expected):
            return exactly and decoded(expected) == value
        case ir.PathPrefix(expected):
            prefix = decoded(expected).rstrip("/")
            return value == prefix or value.startswith(f"{prefix}/")
        case ir.PathRegex():
            return True


def decoded(value: str) -> str:
    """Return a path as NGINX compares it: decoded, with single slashes."""
    text = unquote(value)
    while "//" in text:
        text = text.replace("//", "/")
    return text
