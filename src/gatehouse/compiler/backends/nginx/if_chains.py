"""Decision chains: ``if`` blocks of a location that select the first matching candidate.

A map costs up to 1 ms whenever NGINX reads its configuration, whatever its size: NGINX prepares for
10,007 keys in 1.6 MB of memory, and musl requests this memory from the kernel for each map. An
``if`` costs 0.02 ms and, because it is a location for NGINX, 10 KB.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gatehouse.compiler.backends.nginx import names, quoting
from gatehouse.compiler.backends.nginx.decision_plan import Candidate
from gatehouse.compiler.backends.nginx.directives import Directive, block, simple_directive
from gatehouse.compiler.backends.nginx.match_conditions import MatchCondition

_COMPARED = "$gh_compared"
"""Values of the variables that one ``if`` compares, separated by line feeds."""

_LINE = len(r"${}\n")
"""Bytes that a line of a compared text has beside its value or the name of its variable."""

_HELD = "$gh_held"
"""One digit for each condition of a candidate that holds."""


def first_match_ifs(candidates: Sequence[Candidate], otherwise: str) -> tuple[Directive, ...]:
    """Return the directives of a location that select the first matching candidate."""
    directives: list[Directive] = []
    defined: set[str] = set()
    compared: tuple[str, ...] = ()
    for candidate in candidates:
        if not candidate.conditions:
            otherwise = candidate.destination
            break
        for condition in candidate.conditions:
            if condition.definition is not None and condition.variable not in defined:
                defined.add(condition.variable)
                directives += _defined(condition.definition)
        literals, patterns = _split(candidate.conditions)
        if len(literals) > 1:
            variables = tuple(f"${{{literal.variable}}}" for literal in literals)
            if variables != compared:
                compared = variables
                directives.append(simple_directive("set", _COMPARED, f'"{_joined(variables)}"'))
        directives += _tests([*_comparison(literals), *map(_pattern, patterns)], candidate)
    return (*directives, *go_to(otherwise))


def go_to(destination: str) -> tuple[Directive, ...]:
    """Return the directives that continue at a named location."""
    if destination == names.NOT_FOUND:
        return (simple_directive("return", "404"),)
    return (
        simple_directive("error_page", "418", "=", destination),
        simple_directive("return", "418"),
    )


def _defined(definition: Directive) -> Iterator[Directive]:
    """Define a variable as its map of one pattern does."""
    source, variable = definition.arguments
    row, default = (node for node in definition.block or () if isinstance(node, Directive))
    yield simple_directive("set", variable, *default.arguments)
    pattern = f'"{row.name[2:]}'
    assigned = simple_directive("set", variable, *row.arguments)
    yield block("if", (f"({source}", "~", f"{pattern})"), (assigned,))


def _split(
    conditions: Sequence[MatchCondition],
) -> tuple[list[MatchCondition], list[MatchCondition]]:
    """Return the conditions that one comparison of text decides, and all others."""
    literals, patterns, size = list[MatchCondition](), list[MatchCondition](), 0
    for condition in conditions:
        # Each value and each variable is a part of one token.
        added = _LINE + max(
            quoting.text_literal_bytes(condition.value), len(condition.variable.encode())
        )
        if condition.value and not condition.encoded and size + added < quoting.MAX_TOKEN_BYTES:
            literals.append(condition)
            size += added
        else:
            patterns.append(condition)
    return literals, patterns


def _comparison(literals: Sequence[MatchCondition]) -> Iterator[tuple[str, str, str]]:
    """Compare all literals at once: no value of a request contains a line feed."""
    if literals:
        values = [quoting.quote_text_literal(literal.value)[1:-1] for literal in literals]
        variable = f"${literals[0].variable}" if len(literals) == 1 else _COMPARED
        yield f"({variable}", "=", f'"{_joined(values)}")'


def _joined(values: Sequence[str]) -> str:
    """Join the contents of tokens. NGINX reads the two characters as a line feed."""
    return "\\n".join(values)


def _pattern(condition: MatchCondition) -> tuple[str, str, str]:
    return f"(${condition.variable}", "~", f"{quoting.quote_literal(condition.pattern)})"


def _tests(tests: Sequence[tuple[str, str, str]], candidate: Candidate) -> Iterator[Directive]:
    """Lead to the destination of a candidate if all tests hold."""
    if len(tests) > 1:
        yield simple_directive("set", _HELD, '""')
        for test in tests:
            yield block("if", test, (simple_directive("set", _HELD, '"${gh_held}1"'),))
        tests = [(f"({_HELD}", "=", f'"{"1" * len(tests)}")')]
    (test,) = tests
    yield block("if", test, go_to(candidate.destination))
