"""Variables that act as functions: a location sets the argument and reads the result.

Each location could have a map of its own instead, but a map costs NGINX up to 1 ms whenever it
reads its configuration (:mod:`gatehouse.compiler.backends.nginx.if_chains`). A volatile map is
evaluated at each use. It is written once, if a route needs it.
"""

from __future__ import annotations

from gatehouse.compiler.backends.nginx import quoting
from gatehouse.compiler.backends.nginx.directives import Directive, block, simple_directive


def argument(variable: str) -> Directive:
    """Define a variable that locations set; empty if none did."""
    return block("split_clients", ('""', f"${variable}"), (simple_directive("*", '""'),))


def function(source: str, variable: str, *rows: tuple[str, str]) -> Directive:
    """Define a variable by the rows of a map; a key is ``default``, a literal or a pattern."""
    written = (
        simple_directive(key if key == "default" else quoting.quote_literal(key), value)
        for key, value in rows
    )
    return block("map", (source, f"${variable}"), (simple_directive("volatile"), *written))


def unless_empty(source: str, variable: str, value: str) -> Directive:
    """Define a variable that is ``value`` unless ``source`` is empty."""
    return function(f"${source}", variable, ("", '""'), ("default", value))


def set_argument(variable: str, value: str) -> Directive:
    """Set an argument. ``value``: a token that NGINX expands."""
    return simple_directive("set", f"${variable}", value)
