"""The directive tree and its writer. Only this module writes ``;``, ``{`` and ``}``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import msgspec

Value = TypeVar("Value")


class Directive(msgspec.Struct, frozen=True):
    """A directive. Arguments are complete tokens from :mod:`quoting`."""

    name: str
    arguments: tuple[str, ...] = ()
    block: tuple[Directive | Raw, ...] | None = None


class Raw(msgspec.Struct, frozen=True):
    """Text of a trusted user, written unchanged."""

    text: str


DirectiveNode = Directive | Raw


def simple_directive(name: str, *arguments: str) -> Directive:
    """Return a directive without a block."""
    return Directive(name, arguments)


def block(name: str, arguments: Iterable[str], inner: Iterable[DirectiveNode]) -> Directive:
    """Return a directive with a block."""
    return Directive(name, tuple(arguments), tuple(inner))


def map_block(
    source: str, variable: str, rows: Mapping[str, str], default: str | None = '""'
) -> Directive:
    """Return the map that defines a variable. Keys and values of the rows are complete tokens.

    ``default``: the value for all others; None: NGINX's own, an empty one.
    """
    written = [Directive(key, (rows[key],)) for key in rows]
    if default is not None:
        written.append(Directive("default", (default,)))
    return Directive("map", (source, variable), tuple(written))


def optional_directives(
    values: Mapping[str, Value | None], form: Callable[[Value], str] = str
) -> list[Directive]:
    """Return a directive for each name with a value, which ``form`` writes."""
    result = []
    for name in values:
        value = values[name]
        if value is not None:
            result.append(Directive(name, (form(value),)))
    return result


def switch(value: bool) -> str:
    """Return a boolean as NGINX reads it."""
    return "on" if value else "off"


def format_directives(nodes: Iterable[DirectiveNode]) -> str:
    """Write directives as text."""
    lines: list[str] = []
    _write(nodes, "", lines)
    return "\n".join(lines) + "\n"


def _write(nodes: Iterable[DirectiveNode], indent: str, lines: list[str]) -> None:
    for node in nodes:
        if isinstance(node, Raw):
            lines += [f"{indent}{line}" for line in node.text.splitlines()]
            continue
        head = indent + " ".join((node.name, *node.arguments))
        if node.block is None:
            lines.append(f"{head};")
            continue
        lines.append(f"{head} {{")
        _write(node.block, indent + "    ", lines)
        lines.append(f"{indent}}}")
