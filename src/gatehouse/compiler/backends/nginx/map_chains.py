"""Decision chains: maps that are evaluated lazily, and lead to the candidate that holds.

NGINX gives up at 100 nested variable evaluations (measured: 99 work), so a long chain is cut into
chunks that are tried one after another. A map costs 0.5 ms whenever NGINX reads its configuration
(it prepares for 10,007 keys each time), so that few maps make reloads fast too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from gatehouse.compiler.backends.nginx import names, quoting
from gatehouse.compiler.backends.nginx.decision_plan import (
    Candidate,
    Plan,
    Step,
    Switch,
    Test,
    plan,
)
from gatehouse.compiler.backends.nginx.directives import Directive, block, simple, write
from gatehouse.compiler.backends.nginx.match_conditions import LONGEST_PATTERN, Condition
from gatehouse.compiler.backends.nginx.quoting import InvalidValueError

MAX_DEPTH = 85
"""Nested evaluations that a chain may take: some more lie around it."""

HASHED = 8
"""Values from which on a hash finds one faster than patterns asked in turn."""

LONGEST_KEY = 256
"""Bytes; NGINX's hash takes no key much longer (``map_hash_bucket_size``)."""


class Chain(msgspec.Struct, frozen=True):
    """Where requests go: a destination, and the maps that it needs."""

    destination: str
    maps: tuple[Directive, ...] = ()


def chain(scope: str, candidates: Iterable[Candidate], otherwise: str) -> Chain:
    """Give the chain that leads to the first candidate that holds; ``scope``: names are its own.

    Raises UnwritableError when there are more conditions than NGINX can nest.
    """
    found = plan(candidates)
    if found.depth > MAX_DEPTH:
        raise InvalidValueError("more conditions lead to one path than NGINX can nest")
    maps = _Maps(scope)
    destination = _planned(found, otherwise, maps)
    return Chain(destination, tuple(maps.made.values()))


class _Maps:
    """Maps, named after what is in them: chains that go on alike share what they go on with."""

    def __init__(self, scope: str) -> None:
        self._scope = scope
        self.made: dict[str, Directive] = {}

    def add(self, source: str, rows: Sequence[Directive], otherwise: str) -> str:
        """Add a map unless it is there; give the variable that it defines."""
        rows = (*rows, simple("default", _value(otherwise)))
        variable = f"${names.variable(self._scope, source, write(rows))}"
        self.made[variable] = block("map", (source, variable), rows)
        return variable


def _planned(found: Plan, otherwise: str, maps: _Maps) -> str:
    """Add the maps of a plan, last first; give the destination that begins it."""
    start = otherwise if found.end is None else found.end
    for number in range(len(found.chunks) - 1, -1, -1):
        if number == len(found.chunks) - 1:
            start = _chunk(found.chunks[number], start, maps)
            continue
        begins = _chunk(found.chunks[number], "", maps)
        start = maps.add(begins, [simple('""', _value(start))], begins)
    return start


def _chunk(steps: Sequence[Step], otherwise: str, maps: _Maps) -> str:
    for step in reversed(steps):
        match step:
            case Test(candidate):
                otherwise = _test(candidate, otherwise, maps)
            case Switch():
                otherwise = _switch(step, otherwise, maps)
    return otherwise


def _test(candidate: Candidate, otherwise: str, maps: _Maps) -> str:
    held = candidate.destination
    for condition in reversed(candidate.conditions):
        held = maps.add(f"${condition.variable}", [_row(condition, held)], otherwise)
    return held


def _switch(switch: Switch, otherwise: str, maps: _Maps) -> str:
    cases = [(asked, _planned(under, otherwise, maps)) for asked, under in switch.cases]
    source = f"${switch.variable}"
    if len(cases) < HASHED:
        return maps.add(source, [_row(*case) for case in cases], otherwise)
    chosen = maps.add(source, _hashed(cases), otherwise)
    # The hash takes letters of both cases for the same: only values as they are come to it.
    known = [simple(quoting.literal(f"~{pattern}"), chosen) for pattern in _any_of(cases)]
    return maps.add(source, known, otherwise)


def _hashed(cases: Sequence[tuple[Condition, str]]) -> list[Directive]:
    """Give rows for values that are known to be one of these, in whatever spelling."""
    folded = [_folded(condition) for condition, _ in cases]
    many = Counter(folded)
    keys: list[Directive] = []
    patterns: list[Directive] = []
    for case, key in zip(cases, folded, strict=True):
        hashed = len(key) <= LONGEST_KEY and many[key] == 1
        if hashed:
            keys.append(simple(quoting.map_key(case[0].value), _value(case[1])))
        if case[0].encoded or not hashed:
            patterns.append(_row(*case))
    return [*keys, *patterns]


def _folded(condition: Condition) -> bytes:
    """Give the value as NGINX's hash sees it: only ASCII letters have two cases."""
    return condition.value.encode().lower()


def _any_of(cases: Iterable[tuple[Condition, str]]) -> list[str]:
    """Give patterns, none of them too long, that together hold for all values."""
    found: list[str] = []
    for condition, _ in cases:
        if found and len(found[-1].encode()) + len(condition.pattern.encode()) < LONGEST_PATTERN:
            found[-1] += f"|{condition.pattern}"
        else:
            found.append(condition.pattern)
    return found


def _row(condition: Condition, destination: str) -> Directive:
    return simple(quoting.literal(f"~{condition.pattern}"), _value(destination))


def _value(destination: str) -> str:
    return quoting.word(destination) if destination else '""'
