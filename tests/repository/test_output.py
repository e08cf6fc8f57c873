"""Text of other users reaches the terminal through one function, which escapes what controls it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from gatehouse.cli import output
from gatehouse.cli.terminal import ObjectTable, coloured, show_coloured
from kube_base.runtime.printable import printable

SOURCES = Path(output.__file__).parents[1]
COMMANDS = [*(SOURCES / "cli").glob("*.py"), *(SOURCES / "inspection").glob("*.py")]
WRITERS = {"click.echo", "click.secho", "click.style", "sys.stdout.write", "sys.stderr.write"}
RICH = {"rich", "rich.console", "rich.table", "rich.markup", "rich.panel", "rich.tree"}
HOSTILE = {
    "markup that is not closed": "/[/x]",
    "link": "[link=https://evil.example]click[/link]",
    "colour": "[green]True[/green]",
    "escape sequence": "\x1b[2J\x1b]8;;https://evil.example\x07",
    "direction": "\u202egnp.exe\u2066",
    "line": "a\r\x0b\x0c\x85\u2028b",
    "long line": "x" * 100_000,
}


def names(tree: ast.AST) -> Iterator[str]:
    """Yield the modules that a module imports and the functions that it calls."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                yield from (alias.name for alias in aliases)
            case ast.ImportFrom(module=str(module)):
                yield module
            case ast.Call(func=function):
                yield ast.unparse(function)


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_commands_write_only_through_the_escaping_functions(path: Path) -> None:
    used = set(names(ast.parse(path.read_text())))
    if path.name != "output.py":
        assert not used & (WRITERS | {"print"})
    if path.name != "terminal.py":
        assert not used & RICH


def shown(text: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the outputs of all functions, without the characters that tables add."""
    output.show(text)
    plain = capsys.readouterr().out
    table = ObjectTable(text, "Column")
    table.add_values(text, coloured(text))
    show_coloured(table, Console(width=200_000))
    return [plain, capsys.readouterr().out]


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_text_is_shown_as_text(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    for written in shown(text, capsys):
        assert printable(text) in written
        assert not set(written) & set("\x1b\x07\r\x0b\x0c\x85\u2028\u202e\u2066")


def test_lines_and_tabs_of_a_text_stay(capsys: pytest.CaptureFixture[str]) -> None:
    output.show("a\tb\nc\x1b\u202e\n", nl=False)
    assert capsys.readouterr().out == "a\tb\nc\\x1b\\u202e\n"
