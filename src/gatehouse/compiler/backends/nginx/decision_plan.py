"""Plans of decisions: the order of conditions of a location, so that few are evaluated. No I/O.

Consecutive candidates that each compare the same variable with a value are distinguished by one
lookup of it. Their other conditions are evaluated under that value only. The selected candidate
stays the same, because a variable has one value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from gatehouse.compiler.backends.nginx.match_conditions import MatchCondition

CHUNK_STEPS = 40
"""Maximum number of nested steps between conditions in one chunk."""


class Candidate(msgspec.Struct, frozen=True):
    """A destination (named location or ``$variable``) and its conditions."""

    destination: str
    conditions: tuple[MatchCondition, ...]


class ConditionTest(msgspec.Struct, frozen=True):
    """Evaluate the conditions of one candidate."""

    candidate: Candidate

    @property
    def depth(self) -> int:
        """Number of nested variables of this step."""
        return len(self.candidate.conditions)


class Switch(msgspec.Struct, frozen=True):
    """Look up a variable once and continue with the plan of its value."""

    variable: str
    cases: tuple[tuple[MatchCondition, DecisionPlan], ...]

    @property
    def depth(self) -> int:
        """Number of nested variables of this step."""
        return 2 + max(plan.depth for _, plan in self.cases)


DecisionStep = ConditionTest | Switch


class DecisionPlan(msgspec.Struct, frozen=True):
    """Steps in order until one selects a destination, in chunks that are tried in turn."""

    chunks: tuple[tuple[DecisionStep, ...], ...]
    end: str | None = None
    """Destination when no step selects one; None: none."""

    @property
    def depth(self) -> int:
        """Number of nested variables of this plan."""
        depths = [sum(step.depth for step in chunk) for chunk in self.chunks]
        return max((number + 1 + depth for number, depth in enumerate(depths)), default=0)


def plan_decisions(candidates: Iterable[Candidate]) -> DecisionPlan:
    """Return the plan that selects the first candidate whose conditions hold."""
    reachable: list[Candidate] = []
    end = None
    for candidate in candidates:
        if not candidate.conditions:
            end = candidate.destination
            break
        reachable.append(candidate)
    return DecisionPlan(_chunks(_steps(reachable)), end)


def _chunks(steps: Iterable[DecisionStep]) -> tuple[tuple[DecisionStep, ...], ...]:
    chunks: list[list[DecisionStep]] = []
    size = CHUNK_STEPS
    for step in steps:
        depth = step.depth
        if size + depth > CHUNK_STEPS:
            chunks.append([])
            size = 0
        chunks[-1].append(step)
        size += depth
    return tuple(map(tuple, chunks))


def _steps(candidates: Sequence[Candidate]) -> Iterator[DecisionStep]:
    runs = _runs(candidates)
    number = 0
    while number < len(candidates):
        run = runs[number]
        if run is None or run.end == number + 1:
            yield ConditionTest(candidates[number])
            number += 1
            continue
        yield _switch(run.variable, candidates[number : run.end])
        number = run.end


def _switch(variable: str, candidates: Sequence[Candidate]) -> Switch:
    cases: dict[str, tuple[MatchCondition, list[Candidate]]] = {}
    for candidate in candidates:
        condition = _values(candidate)[variable]
        others = tuple(other for other in candidate.conditions if other is not condition)
        rest = Candidate(candidate.destination, others)
        cases.setdefault(condition.value, (condition, []))[1].append(rest)
    return Switch(
        variable, tuple((condition, plan_decisions(rest)) for condition, rest in cases.values())
    )


class _Run(msgspec.Struct, frozen=True):
    """Candidates up to (excluding) ``end`` that all compare ``variable`` with a value."""

    variable: str
    end: int
    values: set[str]


def _runs(candidates: Sequence[Candidate]) -> list[_Run | None]:
    """Return, for each candidate, the longest run that starts with it, or None.

    Among runs of equal length it is the one with the fewest distinct values: a shared value is
    looked up once for all of them.
    """
    runs: list[_Run | None] = []
    running: dict[str, _Run] = {}
    for number in range(len(candidates) - 1, -1, -1):
        before, running = running, {}
        for variable, condition in _values(candidates[number]).items():
            run = before.get(variable) or _Run(variable, number + 1, set())
            run.values.add(condition.value)
            running[variable] = run
        best = min(running.values(), key=lambda run: (-run.end, len(run.values)), default=None)
        runs.append(best)
    return runs[::-1]


def _values(candidate: Candidate) -> dict[str, MatchCondition]:
    """Return the conditions that compare with a single value, by variable."""
    return {condition.variable: condition for condition in candidate.conditions if condition.value}
