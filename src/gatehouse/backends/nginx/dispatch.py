"""Decision chains: maps that are evaluated lazily, each asking one condition of one candidate.

NGINX gives up at 100 nested variable evaluations (measured: 99 work), so a long chain is cut into
chunks that are tried one after another.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gatehouse.backends.nginx import names, quoting
from gatehouse.backends.nginx.conditions import Condition
from gatehouse.backends.nginx.quoting import UnwritableError
from gatehouse.backends.nginx.tree import Directive, block, simple

CHUNK = 40
"""Conditions in one chunk; with as many chunks the nesting stays under 90."""


class Candidate(msgspec.Struct, frozen=True):
    """A destination (named location or ``$variable``) and what must hold for it."""

    destination: str
    conditions: tuple[Condition, ...]


class Chain(msgspec.Struct, frozen=True):
    """Where requests go: a destination, and the maps that it needs."""

    destination: str
    maps: tuple[Directive, ...] = ()


def chain(scope: str, candidates: Sequence[Candidate], otherwise: str) -> Chain:
    """Give the chain that leads to the first candidate that holds; ``scope`` makes names distinct.

    Raises UnwritableError when there are more conditions than NGINX can nest.
    """
    reachable: list[Candidate] = []
    for candidate in candidates:
        if not candidate.conditions:
            otherwise = candidate.destination
            break
        reachable.append(candidate)
    if not reachable:
        return Chain(otherwise)
    chunks = _chunks(reachable)
    if len(chunks) > CHUNK:
        raise UnwritableError(f"more than {CHUNK * CHUNK} conditions lead to one path")
    maps: list[Directive] = []
    for number in range(len(chunks) - 1, -1, -1):
        last = number == len(chunks) - 1
        fallback = otherwise if last else ""
        start = _chunk(f"{scope}/{number}", chunks[number], fallback, maps)
        if last:
            otherwise = start
            continue
        variable = names.variable(scope, "chunk", str(number))
        rows = (simple('""', _value(otherwise)), simple("default", _value(start)))
        maps.append(block("map", (_value(start), f"${variable}"), rows))
        otherwise = f"${variable}"
    return Chain(otherwise, tuple(maps))


def _chunks(candidates: list[Candidate]) -> list[list[Candidate]]:
    chunks: list[list[Candidate]] = [[]]
    size = 0
    for candidate in candidates:
        if chunks[-1] and size + len(candidate.conditions) > CHUNK:
            chunks.append([])
            size = 0
        chunks[-1].append(candidate)
        size += len(candidate.conditions)
    return chunks


def _chunk(scope: str, candidates: list[Candidate], otherwise: str, maps: list[Directive]) -> str:
    """Add the maps of a chunk, last first; give the variable that begins it."""
    for number in range(len(candidates) - 1, -1, -1):
        candidate, held = candidates[number], candidates[number].destination
        for position in range(len(candidate.conditions) - 1, -1, -1):
            condition = candidate.conditions[position]
            variable = names.variable(scope, str(number), str(position))
            rows = (
                simple(quoting.literal(f"~{condition.pattern}"), _value(held)),
                simple("default", _value(otherwise)),
            )
            maps.append(block("map", (f"${condition.variable}", f"${variable}"), rows))
            held = f"${variable}"
        otherwise = held
    return otherwise


def _value(destination: str) -> str:
    return quoting.word(destination) if destination else '""'
