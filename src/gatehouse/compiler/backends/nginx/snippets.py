"""Snippets: raw configuration of trusted users. They must not close the block around them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gatehouse.compiler.backends.failures import InvalidValueError
from gatehouse.compiler.backends.nginx.directives import Raw
from gatehouse.compiler.backends.nginx.route_context import NginxRouteContext, RoutePiece
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.proxy_settings import NginxSnippet

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+|\#[^\n]*)
      | (?P<end>[;{}])
      | (?P<word>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'
                |(?!["'}])(?:\\.|\$\{+|[^;{\s\\])+)""",
    re.DOTALL | re.VERBOSE,
)
"""A token, as NGINX reads it. Braces after ``$`` and a closing brace within a word belong to the
word."""


def within(snippets: Iterable[NginxSnippet], context: str) -> list[Raw]:
    """Return the text of the snippets of a context. Raises InvalidValueError."""
    return [
        Raw(_checked(snippet)) for snippet in dict.fromkeys(snippets) if snippet.context == context
    ]


def snippets_piece(_context: NginxRouteContext, route: ir.Route) -> RoutePiece | None:
    """Return the snippets of a route. Raises InvalidValueError."""
    if not route.snippets:
        return None
    # A route is never served without one of its snippets.
    within(route.snippets, "http.server")
    return RoutePiece(snippets=tuple(within(route.snippets, "http.server.location")))


def _checked(snippet: NginxSnippet) -> str:
    problem = syntax_error(snippet.text)
    if problem:
        raise InvalidValueError(f"{snippet.origin}: {snippet.context}: {problem}")
    return snippet.text


def outermost(text: str) -> set[str]:
    """Return the names of the top-level directives of a valid text."""
    depth, in_directive = 0, False
    names: set[str] = set()
    for token in _TOKEN.finditer(text):
        if token["end"] is not None:
            depth += {"{": 1, "}": -1}.get(token["end"], 0)
            in_directive = False
        elif token["word"] is not None:
            if depth == 0 and not in_directive:
                names.add(token["word"])
            in_directive = True
    return names


def syntax_error(text: str) -> str:
    """Return why a text is not a sequence of complete directives; empty if it is."""
    depth, in_directive, position = 0, False, 0
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            return f"{_line(text, position)}: unterminated quoted string"
        start, position = position, token.end()
        if token["space"] is not None:
            continue
        if token["word"] is not None:
            in_directive = True
            continue
        depth += {"{": 1, "}": -1}.get(token["end"], 0)
        if depth < 0:
            return f"{_line(text, start)}: unexpected end of a block"
        if (token["end"] == "}") == in_directive:
            return f"{_line(text, start)}: unexpected {token['end']}"
        in_directive = False
    if depth:
        return "unterminated block"
    return "last directive must end with ;" if in_directive else ""


def _line(text: str, position: int) -> str:
    return f"line {text.count(chr(10), 0, position) + 1}"
