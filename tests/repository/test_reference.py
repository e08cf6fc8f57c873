"""The reference pages are what the code says now."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import reference

from gatehouse.cli.main import command


def test_reference_pages_are_fresh(tmp_path: Path) -> None:
    # In a new process: click keeps the help option of a command that a test ran by itself.
    subprocess.run([sys.executable, reference.__file__, str(tmp_path)], check=True)
    pages = reference.PAGES.glob("*.md")
    written = {page.name for page in pages if reference.NOTE in page.read_text("utf-8")}
    assert written == {page.name for page in tmp_path.iterdir()}
    for name in sorted(written):
        page, fresh = reference.PAGES / name, tmp_path / name
        assert page.read_text("utf-8") == fresh.read_text("utf-8"), "run `make reference`"


def test_helm_values_have_leading_and_trailing_comments() -> None:
    text = "# One.\n# More.\na:\n  b: 1  # two\n\n  c: []\n  d: {}\n"
    assert list(reference.values(text)) == [
        reference.Value("a", "", "One. More."),
        reference.Value("a.b", "1", "two"),
        reference.Value("a.c", "[]", ""),
        reference.Value("a.d", "{}", ""),
    ]


def test_every_command_is_on_the_page_of_commands() -> None:
    page = reference.command_line()
    for context in reference.commands(command, "gatehouse"):
        assert f"\n## {context.command_path}\n" in page
