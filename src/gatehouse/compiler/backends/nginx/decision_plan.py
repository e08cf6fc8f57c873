"""Plans of decisions: in which order a location asks conditions, so that few are asked. Pure.

Candidates one behind the other that ask one variable for a value, each for its own, are told apart
by one look at it: what else they ask is asked under their value alone. The candidate that is found
stays the same, because a variable has one value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from gatehouse.compiler.backends.nginx.match_conditions import Condition

CHUNK = 40
"""Steps from one condition to the next in one chunk."""


class Candidate(msgspec.Struct, frozen=True):
    """A destination (named location or ``$variable``) and what must hold for it."""

    destination: str
    conditions: tuple[Condition, ...]


class Test(msgspec.Struct, frozen=True):
    """Ask the conditions of one candidate."""

    candidate: Candidate

    @property
    def depth(self) -> int:
        """How many variables lead through it."""
        return len(self.candidate.conditions)


class Switch(msgspec.Struct, frozen=True):
    """Look at a variable once, and go on with the plan of its value."""

    variable: str
    cases: tuple[tuple[Condition, Plan], ...]

    @property
    def depth(self) -> int:
        """How many variables lead through it."""
        return 2 + max(plan.depth for _, plan in self.cases)


Step = Test | Switch


class Plan(msgspec.Struct, frozen=True):
    """Steps, one after another until one leads somewhere, in chunks that are tried in turn."""

    chunks: tuple[tuple[Step, ...], ...]
    end: str | None = None
    """Where it leads when no step does; None: nowhere."""

    @property
    def depth(self) -> int:
        """How many variables lead through it."""
        depths = [sum(step.depth for step in chunk) for chunk in self.chunks]
        return max((number + 1 + depth for number, depth in enumerate(depths)), default=0)


def plan(candidates: Iterable[Candidate]) -> Plan:
    """Give the plan that leads to the first candidate that holds."""
    reachable: list[Candidate] = []
    end = None
    for candidate in candidates:
        if not candidate.conditions:
            end = candidate.destination
            break
        reachable.append(candidate)
    return Plan(_chunks(_steps(reachable)), end)


def _chunks(steps: Iterable[Step]) -> tuple[tuple[Step, ...], ...]:
    chunks: list[list[Step]] = []
    size = CHUNK
    for step in steps:
        depth = step.depth
        if size + depth > CHUNK:
            chunks.append([])
            size = 0
        chunks[-1].append(step)
        size += depth
    return tuple(map(tuple, chunks))


def _steps(candidates: Sequence[Candidate]) -> Iterator[Step]:
    runs = _runs(candidates)
    number = 0
    while number < len(candidates):
        run = runs[number]
        if run is None or run.end == number + 1:
            yield Test(candidates[number])
            number += 1
            continue
        yield _switch(run.variable, candidates[number : run.end])
        number = run.end


def _switch(variable: str, candidates: Sequence[Candidate]) -> Switch:
    found: dict[str, tuple[Condition, list[Candidate]]] = {}
    for candidate in candidates:
        asked = _values(candidate)[variable]
        others = tuple(each for each in candidate.conditions if each is not asked)
        rest = Candidate(candidate.destination, others)
        found.setdefault(asked.value, (asked, []))[1].append(rest)
    return Switch(variable, tuple((asked, plan(rest)) for asked, rest in found.values()))


class _Run(msgspec.Struct, frozen=True):
    """Candidates, up to but without ``end``, that all ask ``variable`` for a value."""

    variable: str
    end: int
    values: set[str]


def _runs(candidates: Sequence[Candidate]) -> list[_Run | None]:
    """Give, for each candidate, the longest run that begins with it, if it begins any.

    Of several, the one with fewest values: what many share is asked once for all of them.
    """
    found: list[_Run | None] = []
    running: dict[str, _Run] = {}
    for number in range(len(candidates) - 1, -1, -1):
        before, running = running, {}
        for variable, asked in _values(candidates[number]).items():
            run = before.get(variable) or _Run(variable, number + 1, set())
            run.values.add(asked.value)
            running[variable] = run
        best = min(running.values(), key=lambda run: (-run.end, len(run.values)), default=None)
        found.append(best)
    return found[::-1]


def _values(candidate: Candidate) -> dict[str, Condition]:
    """Give the conditions that ask for a value, by variable."""
    return {each.variable: each for each in candidate.conditions if each.value}
