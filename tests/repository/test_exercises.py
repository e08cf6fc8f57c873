"""Symbols in the worked exercises of CONTRIBUTING.md exist in the file that is named with them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BASES = (ROOT, ROOT / "src" / "gatehouse", *ROOT.glob("packages/*/src"))
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
EXERCISES = TEXT.partition("### Worked exercises")[2].partition("\n## ")[0]

SPAN = re.compile(r"`([^`]+)`(, )?")
FILE = re.compile(r"[\w/.-]+\.py")
SYMBOL = re.compile(r"_?[A-Za-z]\w*(\.[A-Za-z_]\w*)*")

ADDED = {"denials", "CACHING_AFFECTED"}
"""Symbols that the exercises add."""
ADDED_FILES = {"apis/<module>.py", "tests/golden/<case>/input.yaml"}
"""Files that the exercises add."""
MAX_FILES_OF_A_FILTER = 7
NO_SYMBOLS = {"Accepted", "NoMatchingParent", "NotAllowedByListeners"}
"""Types and reasons of conditions."""


def file_at(name: str) -> Path:
    """Return the path of a file, relative to the project or to the package."""
    paths = [base / name for base in BASES if (base / name).is_file()]
    assert paths, name
    return paths[0]


def steps(text: str) -> Iterator[str]:
    """Yield the numbered steps."""
    yield from re.findall(r"^\d+\. (.*?)(?=^\d+\. |\n\n|\Z)", text, re.MULTILINE | re.DOTALL)


def named_symbols(step: str) -> Iterator[tuple[str, list[Path]]]:
    """Yield each symbol of a step with the files that are named last before it.

    Files of a list belong together.
    """
    files: list[Path] = []
    listed = False
    for span, comma in SPAN.findall(step):
        if span in ADDED_FILES:
            files = []
        elif FILE.fullmatch(span) and not span.startswith("."):
            files = [*(files if listed else ()), file_at(span)]
            listed = bool(comma)
        elif SYMBOL.fullmatch(span) and files and span not in ADDED | NO_SYMBOLS:
            yield span, files


def defines(symbol: str, file: Path) -> bool:
    """Return whether a file contains a symbol. A symbol `a.b` is `b` in the module `a` beside it,
    or both words in the file."""
    first, _, rest = symbol.rpartition(".")
    beside = file.with_name(f"{first}.py")
    texts = [file.read_text(encoding="utf-8")]
    if first and beside.is_file():
        return re.search(rf"^(def|class) {rest}\b", beside.read_text("utf-8"), re.M) is not None
    words = symbol.split(".")
    return all(re.search(rf"\b{word}\b", text) for word in words for text in texts)


def edited_files(exercise: str) -> list[str]:
    """Return the files that the steps of an exercise edit: those at the start of each step."""
    (text,) = re.findall(rf"^\*\*{exercise}\.\*\* (.*?)(?=^\*\*)", EXERCISES, re.M | re.S)
    starts = [re.match(r"(`[^`]+`(, )?)+(?=:)", step) for step in steps(text)]
    assert None not in starts, "each step starts with the files that it edits"
    return [name for start in starts if start for name, _ in SPAN.findall(start[0])]


def test_new_filter_takes_few_files() -> None:
    files = edited_files("A new filter")
    assert len(set(files)) == len(files) <= MAX_FILES_OF_A_FILTER
    assert {"CHANGELOG.md", *ADDED_FILES} < set(files)
    for name in set(files) - ADDED_FILES:
        assert any((base / name).is_file() for base in BASES), name


def test_symbols_of_exercises_exist_in_their_files() -> None:
    symbols = [item for step in steps(EXERCISES) for item in named_symbols(step)]
    assert len(symbols) > 15, "the walk finds symbols"
    missing = [s for s, files in symbols if not any(defines(s, file) for file in files)]
    assert missing == []


@pytest.mark.parametrize(
    "step",
    [
        "`compiler/ir/settings.py`: a field in `Setings`.",
        "`compiler/backends/nginx/actions.py`: `quoting.quote_text` is right.",
        "`apis/meta.py`, `apis/resources.py`: `EXTENSION_FILTERS`.",
    ],
)
def test_missing_symbol_is_found(step: str) -> None:
    ((symbol, files),) = named_symbols(step)
    assert not any(defines(symbol, file) for file in files)


def test_file_that_does_not_exist_is_found() -> None:
    with pytest.raises(AssertionError, match=r"apis/missing\.py"):
        list(named_symbols("`apis/missing.py`: the struct."))
