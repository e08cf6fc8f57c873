"""Decision chains: lazily evaluated maps that select the first candidate whose conditions hold.

NGINX fails at 100 nested variable evaluations (measured: 99 work), so that a long chain is cut into
chunks that are tried one after another. Few maps also make reloads fast: see
:mod:`gatehouse.compiler.backends.nginx.if_chains`, which replaces them where they are costly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from gatehouse.compiler.backends.failures import InvalidValueError
from gatehouse.compiler.backends.nginx import names, quoting
from gatehouse.compiler.backends.nginx.decision_plan import (
    Candidate,
    ConditionTest,
    DecisionPlan,
    DecisionStep,
    Switch,
    plan_decisions,
)
from gatehouse.compiler.backends.nginx.directives import (
    Directive,
    block,
    format_directives,
    simple_directive,
)
from gatehouse.compiler.backends.nginx.match_conditions import MAX_PATTERN_BYTES, MatchCondition

MAX_CHAIN_DEPTH = 85
"""Maximum nested evaluations of a chain; some more surround it."""

HASHED = 8
"""Number of values from which on a hash is faster than patterns evaluated in turn."""

MAX_KEY_BYTES = 256
"""Bytes; NGINX's hash rejects keys much longer (``map_hash_bucket_size``)."""


class MapChain(msgspec.Struct, frozen=True):
    """The destination of requests, and the maps that it needs."""

    destination: str
    maps: tuple[Directive, ...] = ()


def first_match_chain(scope: str, candidates: Iterable[Candidate], otherwise: str) -> MapChain:
    """Return the chain that selects the first matching candidate; ``scope`` makes names unique.

    Raises InvalidValueError if there are more conditions than NGINX can nest.
    """
    chosen = plan_decisions(candidates)
    if chosen.depth > MAX_CHAIN_DEPTH:
        raise InvalidValueError("too many conditions for one path: NGINX cannot nest them")
    maps = _Maps(scope)
    destination = _planned(chosen, otherwise, maps)
    return MapChain(destination, tuple(maps.by_variable.values()))


class _Maps:
    """Maps named by their content: chains with equal ends share the maps of these ends."""

    def __init__(self, scope: str) -> None:
        self._scope = scope
        self.by_variable: dict[str, Directive] = {}

    def add(self, source: str, rows: Sequence[Directive], otherwise: str) -> str:
        """Add a map unless it exists. Return the variable that it defines."""
        rows = (*rows, simple_directive("default", _value(otherwise)))
        variable = f"${names.variable(self._scope, source, format_directives(rows))}"
        self.by_variable[variable] = block("map", (source, variable), rows)
        return variable


def _planned(decision: DecisionPlan, otherwise: str, maps: _Maps) -> str:
    """Add the maps of a plan, last first. Return the destination where it starts."""
    start = otherwise if decision.end is None else decision.end
    for number in range(len(decision.chunks) - 1, -1, -1):
        if number == len(decision.chunks) - 1:
            start = _chunk(decision.chunks[number], start, maps)
            continue
        begins = _chunk(decision.chunks[number], "", maps)
        start = maps.add(begins, [simple_directive('""', _value(start))], begins)
    return start


def _chunk(steps: Sequence[DecisionStep], otherwise: str, maps: _Maps) -> str:
    for step in reversed(steps):
        match step:
            case ConditionTest(candidate):
                otherwise = _test(candidate, otherwise, maps)
            case Switch():
                otherwise = _switch(step, otherwise, maps)
    return otherwise


def _test(candidate: Candidate, otherwise: str, maps: _Maps) -> str:
    destination = candidate.destination
    for condition in reversed(candidate.conditions):
        destination = maps.add(f"${condition.variable}", [_row(condition, destination)], otherwise)
    return destination


def _switch(switch: Switch, otherwise: str, maps: _Maps) -> str:
    cases = [(condition, _planned(under, otherwise, maps)) for condition, under in switch.cases]
    source = f"${switch.variable}"
    if len(cases) < HASHED:
        return maps.add(source, [_row(*case) for case in cases], otherwise)
    chosen = maps.add(source, _hashed(cases), otherwise)
    # The hash ignores case: only values in their exact case reach it.
    patterns = [
        simple_directive(quoting.quote_literal(f"~{pattern}"), chosen) for pattern in _any_of(cases)
    ]
    return maps.add(source, patterns, otherwise)


def _hashed(cases: Sequence[tuple[MatchCondition, str]]) -> list[Directive]:
    """Return rows for values known to be one of these, in any spelling."""
    folded = [_folded(condition) for condition, _ in cases]
    counts = Counter(folded)
    keys: list[Directive] = []
    patterns: list[Directive] = []
    for case, key in zip(cases, folded, strict=True):
        hashed = len(key) <= MAX_KEY_BYTES and counts[key] == 1
        if hashed:
            keys.append(simple_directive(quoting.map_key(case[0].value), _value(case[1])))
        if case[0].encoded or not hashed:
            patterns.append(_row(*case))
    return [*keys, *patterns]


def _folded(condition: MatchCondition) -> bytes:
    """Return the value as NGINX's hash compares it: only ASCII letters are lowered."""
    return condition.value.encode().lower()


def _any_of(cases: Iterable[tuple[MatchCondition, str]]) -> list[str]:
    """Return patterns of limited length that together match all values."""
    patterns: list[str] = []
    for condition, _ in cases:
        if (
            patterns
            and quoting.literal_bytes(patterns[-1]) + quoting.literal_bytes(condition.pattern)
            < MAX_PATTERN_BYTES
        ):
            patterns[-1] += f"|{condition.pattern}"
        else:
            patterns.append(condition.pattern)
    return patterns


def _row(condition: MatchCondition, destination: str) -> Directive:
    return simple_directive(quoting.quote_literal(f"~{condition.pattern}"), _value(destination))


def _value(destination: str) -> str:
    return quoting.word(destination) if destination else '""'
