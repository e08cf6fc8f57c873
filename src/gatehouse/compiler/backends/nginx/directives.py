"""The directive tree and its writer. Only this module writes ``;``, ``{`` and ``}``."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


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
