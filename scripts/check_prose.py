"""Count words and openings that docs/contributing/style.md excludes, and fail if a count grew.

Each count has the name `<place>: <rule>` and is a total over the project. Places are docstrings,
comments and messages of src/gatehouse, names of tests, and documents. The permitted counts are in
scripts/prose_baseline.json; `--update` lowers them to the present counts and never raises one.
"""

import argparse
import ast
import io
import json
import re
import sys
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
BASELINE = "scripts/prose_baseline.json"
MAX_SENTENCE_WORDS = 30
LISTED_OCCURRENCES = 20

# Rules for the first words of a docstring.
OPENINGS = {
    "opens with Give": re.compile(r"^Gives?\b"),
    "opens with a noun clause": re.compile(
        r"^(What|Who|Whom|Whose|Which|How|Whether|Where|When|That|As)\b"
    ),
}
# Rules for running text everywhere.
WORDS = {
    "ours, theirs": re.compile(r"\b(ours|theirs)\b", re.I),
    "whoever, nobody": re.compile(r"\b(whoever|nobody|somebody|anybody)\b", re.I),
    "told, said": re.compile(r"\b(told|tells of|(is|are|was|were) said)\b", re.I),
    "anew, no more": re.compile(r"\b(anew|no more(?! ([\w-]+ )?than)|any more|for ever)\b", re.I),
    "is to have": re.compile(r"\b(is|are) to (be|have|hold|get|serve|go)\b", re.I),
    "none such": re.compile(r"\bnone (such|of ours)\b", re.I),
    "the field's": re.compile(r"\bthe field's\b", re.I),
}
TEST_NAMES = {
    "opens with a noun clause": re.compile(r"^test_(what|who|whom|whose|how|whether|which)_"),
    "dialect word": re.compile(
        r"_(ours|theirs|whoever|nobody|somebody|anybody|told|tells_of|anew|no_more|any_more"
        r"|for_ever|is_said|are_said|is_to_(be|have|hold|get))(_|$)"
    ),
}
# These documents quote what they advise against.
EXEMPT_DOCUMENTS = ("docs/contributing/glossary.md", "docs/contributing/style.md")
NOT_PROSE = re.compile(r"^(```|~~~)[\s\S]*?^\1.*$|^ {4,}[^-\s].*$|\*+", re.M)
"""Fenced code, indented code, emphasis."""
SENTENCE_END = re.compile(r"(?<=[.!?:])\s+|\n\s*\n|\||\n\s*(?:-|\d+\.)\s|^#+ .*$", re.M)


@dataclass(frozen=True)
class Occurrence:
    """One violation of a rule."""

    category: str
    path: str
    line: int
    text: str


def occurrences(root: Path) -> Iterator[Occurrence]:
    """Yield every violation in the project below `root`."""
    for path in sorted((root / "src").rglob("*.py")):
        if "wire" not in path.relative_to(root).parts:
            yield from source_occurrences(path.read_text(), str(path.relative_to(root)))
    for path in sorted((root / "tests").rglob("*.py")):
        yield from test_name_occurrences(path.read_text(), str(path.relative_to(root)))
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md"):
        for path in sorted(root.glob(pattern)):
            name = str(path.relative_to(root))
            if name not in EXEMPT_DOCUMENTS:
                yield from document_occurrences(path.read_text(), name)


def source_occurrences(source: str, path: str) -> Iterator[Occurrence]:
    """Yield violations in docstrings, messages and comments of Python source."""
    tree = ast.parse(source)
    docstrings = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        text = " ".join(node.value.split())
        if id(node) in docstrings:
            yield from _matches("docstrings", OPENINGS, text, path, node.lineno)
            yield from _matches("docstrings", WORDS, text, path, node.lineno)
        elif " " in text:
            yield from _matches("messages", WORDS, text, path, node.lineno)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield from _matches("comments", WORDS, token.string, path, token.start[0])


def test_name_occurrences(source: str, path: str) -> Iterator[Occurrence]:
    """Yield violations in names of test functions."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if node.name.startswith("test_"):
            yield from _matches("test names", TEST_NAMES, node.name, path, node.lineno)


def document_occurrences(text: str, path: str) -> Iterator[Occurrence]:
    """Yield violations in a Markdown document; fenced code does not count."""
    prose = NOT_PROSE.sub(lambda match: "\n" * match.group().count("\n"), text)
    start = 0
    for end in [*SENTENCE_END.finditer(prose), None]:
        sentence = prose[start : end.start() if end else len(prose)]
        line = prose.count("\n", 0, start) + 1
        words = " ".join(sentence.split())
        yield from _matches("documents", WORDS, words, path, line)
        if len(words.split()) > MAX_SENTENCE_WORDS:
            category = f"documents: sentence over {MAX_SENTENCE_WORDS} words"
            yield Occurrence(category, path, line, words)
        start = end.end() if end else start


def _matches(
    place: str, rules: Mapping[str, re.Pattern[str]], text: str, path: str, line: int
) -> Iterator[Occurrence]:
    for name, pattern in rules.items():
        for _ in pattern.finditer(text):
            yield Occurrence(f"{place}: {name}", path, line, text)


def totals(found: list[Occurrence]) -> dict[str, int]:
    """Return the number of occurrences by category; categories without one are included."""
    counts = {
        f"{place}: {rule}": 0
        for place, rules in (
            ("docstrings", {**OPENINGS, **WORDS}),
            ("messages", WORDS),
            ("comments", WORDS),
            ("test names", TEST_NAMES),
            ("documents", {**WORDS, f"sentence over {MAX_SENTENCE_WORDS} words": None}),
        )
        for rule in rules
    }
    for occurrence in found:
        counts[occurrence.category] += 1
    return counts


def growth(counts: Mapping[str, int], baseline: Mapping[str, int]) -> dict[str, int]:
    """Return by how much each category exceeds the baseline; only those that exceed it."""
    excess = {category: count - baseline.get(category, 0) for category, count in counts.items()}
    return {category: number for category, number in excess.items() if number > 0}


def lowered(counts: Mapping[str, int], baseline: Mapping[str, int]) -> dict[str, int]:
    """Return the new baseline: the smaller of permitted and present count of each category."""
    return {category: min(count, baseline.get(category, 0)) for category, count in counts.items()}


def main(arguments: list[str] | None = None) -> int:
    """Check the project, list a category, or update the baseline. Return the exit status."""
    parser = argparse.ArgumentParser(description="Check the prose of code and documents.")
    parser.add_argument("--root", type=Path, default=ROOT, help="Directory of the project.")
    parser.add_argument("--update", action="store_true", help="Lower the baseline.")
    parser.add_argument(
        "--list", metavar="TEXT", help="List occurrences whose category or path contains TEXT."
    )
    options = parser.parse_args(arguments)
    result = list(occurrences(options.root))
    if options.list is not None:
        _show([o for o in result if options.list in o.category or options.list in o.path])
        return 0
    counts = totals(result)
    file = options.root / BASELINE
    baseline: dict[str, int] = json.loads(file.read_text()) if file.exists() else counts
    grown = growth(counts, baseline)
    if options.update or not file.exists():
        file.write_text(json.dumps(lowered(counts, baseline), indent=2, sort_keys=True) + "\n")
    for category, excess in grown.items():
        sys.stderr.write(f"{category}: {counts[category]}, {excess} more than permitted\n")
        _show([o for o in result if o.category == category][:LISTED_OCCURRENCES])
    if grown:
        sys.stderr.write("see docs/contributing/style.md; all of a category: --list CATEGORY\n")
    return 1 if grown else 0


def _show(found: list[Occurrence]) -> None:
    for occurrence in found:
        text = occurrence.text[:100]
        sys.stdout.write(f"{occurrence.path}:{occurrence.line}: {occurrence.category}: {text}\n")


if __name__ == "__main__":
    sys.exit(main())
