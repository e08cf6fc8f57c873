"""Snippets: raw configuration of trusted users, which must not end what it stands in."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gatehouse.compiler.backends.nginx.directives import Raw
from gatehouse.compiler.backends.nginx.quoting import InvalidValueError
from gatehouse.compiler.ir.settings import Snippet

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+|\#[^\n]*)
      | (?P<end>[;{}])
      | (?P<word>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'
                |(?!["'])(?:\\.|\$\{[^}\n]*\}|[^;{}\s\\])+)""",
    re.DOTALL | re.VERBOSE,
)


def within(snippets: Iterable[Snippet], context: str) -> list[Raw]:
    """Give the text of the snippets of a context. Raises UnwritableError."""
    return [Raw(_checked(each)) for each in dict.fromkeys(snippets) if each.context == context]


def _checked(snippet: Snippet) -> str:
    problem = trouble(snippet.text)
    if problem:
        raise InvalidValueError(f"{snippet.name}: {snippet.context}: {problem}")
    return snippet.text


def outermost(text: str) -> set[str]:
    """Give the names of the directives that a text of whole directives has outside of blocks."""
    depth, begun = 0, False
    found: set[str] = set()
    for token in _TOKEN.finditer(text):
        if token["end"] is not None:
            depth += {"{": 1, "}": -1}.get(token["end"], 0)
            begun = False
        elif token["word"] is not None:
            if depth == 0 and not begun:
                found.add(token["word"])
            begun = True
    return found


def trouble(text: str) -> str:
    """Say why a text is no sequence of whole directives; empty if it is."""
    depth, begun, place = 0, False, 0
    while place < len(text):
        found = _TOKEN.match(text, place)
        line = text.count("\n", 0, place) + 1
        if found is None:
            return f"line {line}: a quoted text does not end"
        place = found.end()
        if found["space"] is not None:
            continue
        if found["word"] is not None:
            begun = True
            continue
        depth += {"{": 1, "}": -1}.get(found["end"], 0)
        if depth < 0:
            return f"line {line}: a block ends that has not begun"
        if (found["end"] == "}") == begun:
            return f"line {line}: unexpected {found['end']}"
        begun = False
    if depth:
        return "a block does not end"
    return "the last directive does not end with ;" if begun else ""
