"""The reference pages are what the code says now."""

from __future__ import annotations

import pytest
import reference

from gatehouse.cli.main import command


@pytest.mark.parametrize("name", ["cli.md", "helm-values.md", "conditions.md", "annotations.md"])
def test_reference_page_is_fresh(name: str) -> None:
    written = (reference.PAGES / name).read_text(encoding="utf-8")
    assert written == reference.pages()[name], "run `make reference`"


def test_values_have_the_comments_before_and_behind_them() -> None:
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
