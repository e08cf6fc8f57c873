"""Count words and openings that docs/contributing/style.md excludes, and compare with the baseline.

A category is `<place>: <rule>`. Places are docstrings, comments and local variables of all Python
code, messages of src, bench and scripts, public names of src, names of tests, comments and local
variables of Lua, comments of other files, and documents.

scripts/prose_baseline.json has the permitted number of each category in each file. It must be equal
to the present numbers. The total of a category may only shrink: `--update` writes the present
numbers unless a total grew.
"""

import argparse
import ast
import io
import json
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
BASELINE = "scripts/prose_baseline.json"
MAX_SENTENCE_WORDS = 30
MAX_LISTED = 20

# Rules for the first words of a docstring.
OPENINGS = {
    "opens with Give": re.compile(r"^Gives?\b"),
    "opens with a noun clause": re.compile(
        r"^(What|Who|Whom|Whose|Which|How|Whether|Where|When|That|As)\b(?!:)"
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
PUBLIC_NAMES = {
    "dialect word": re.compile(
        r"(^|_)(asked|believed|(?<!for_)each|(?<!not_)found|heard|kept|made|meant|noted|ours|passed"
        r"|said|shown|sought|standing|told|understood|wanted|wished|anew|company|companion"
        r"|farewell|lull|patience|teller|telling|trespass|whoever|most(?!_specific)|longest)(_|$)",
        re.I,
    ),
}
"""Rules for names of functions, classes, constants and aliases that other modules may use.

A CamelCase name is compared word by word.
"""
LOCALS = {
    "participle or each": re.compile(
        r"^(asked|each|found|given|kept|made|meant|said|seen|shown|told|wanted)$"
    ),
}
"""Rules for names of parameters and local variables: a noun says what the value is."""
# These documents quote what they advise against.
EXEMPT = ("docs/contributing/glossary.md", "docs/contributing/style.md")
DOCUMENTS = ("*.md", "docs/**/*.md", "examples/**/*.md", "bench/*.md")
COMMENTED = (
    *(
        "Makefile",
        ".ci/run",
        "images/*",
        "scripts/*.sh",
        "pyproject.toml",
        ".pre-commit-config.yaml",
    ),
    *("examples/**/*.yaml", "charts/gatehouse/values.yaml", "charts/gatehouse/templates/*"),
)
"""Files whose comments start with `#`."""
CODE = {
    "src": "src",
    "packages/*/src": "src",
    "tests": "tests",
    "packages/*/tests": "tests",
    "bench": "bench",
    "scripts": "scripts",
}
"""Directories with code to the rules that hold there."""
# The rules themselves, and quotations of what they exclude.
WITHOUT_MESSAGES = ("scripts/check_prose.py",)
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
    for directories, folder in CODE.items():
        for path in sorted(root.glob(f"{directories}/**/*.py")):
            name = path.relative_to(root)
            if "wire" not in name.parts:
                yield from code_occurrences(path.read_text(), str(name), folder)
    for path in sorted((root / "src").rglob("*.lua")):
        yield from lua_occurrences(path.read_text(), str(path.relative_to(root)))
    for path in listed_files(root, COMMENTED):
        yield from comment_occurrences(path.read_text(), str(path.relative_to(root)))
    for path in listed_files(root, DOCUMENTS):
        yield from document_occurrences(path.read_text(), str(path.relative_to(root)))


def listed_files(root: Path, patterns: tuple[str, ...]) -> list[Path]:
    """Return the files below `root` that match a pattern and are not exempt."""
    paths = {path for pattern in patterns for path in root.glob(pattern) if path.is_file()}
    return sorted(path for path in paths if str(path.relative_to(root)) not in EXEMPT)


def code_occurrences(source: str, path: str, folder: str) -> Iterator[Occurrence]:
    """Yield violations in a Python module below the folder `src`, `tests`, `bench` or `scripts`."""
    for occurrence in source_occurrences(source, path):
        # Messages of tests quote input and output.
        quoting = folder == "tests" or path in WITHOUT_MESSAGES
        if not (quoting and occurrence.category.startswith("messages")):
            yield occurrence
    if folder == "tests":
        yield from test_name_occurrences(source, path)
        yield from local_occurrences("locals of tests", source, path)
    else:
        yield from local_occurrences("locals", source, path)
    if folder == "src":
        yield from public_name_occurrences(source, path)


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


def local_occurrences(place: str, source: str, path: str) -> Iterator[Occurrence]:
    """Yield violations where a variable gets its value or a parameter is declared."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name: str | None = node.id
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.MatchAs | ast.MatchStar):
            name = node.name
        else:
            continue
        yield from _matches(place, LOCALS, name or "", path, node.lineno)


def public_name_occurrences(source: str, path: str) -> Iterator[Occurrence]:
    """Yield violations in public names at the top level of a module."""
    for statement in ast.parse(source).body:
        match statement:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                names = [statement.name]
            case ast.Assign(targets=targets):
                names = [target.id for target in targets if isinstance(target, ast.Name)]
            case ast.AnnAssign(target=ast.Name(id=name)):
                names = [name]
            case _:
                continue
        for name in names:
            if not name.startswith("_"):
                words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)
                yield from _matches("public names", PUBLIC_NAMES, words, path, statement.lineno)


LUA_TOKEN = re.compile(
    r"(?P<comment>--(?!\[\[).*)|\[\[.*?\]\]|'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\""
    r"|\b(?:local|for)\s+(?!function\b)(?P<names>[\w, ]+?)\s*(?:=|\bin\b|$)"
    r"|\bfunction\b[ \w.:]*\((?P<parameters>[^)]*)\)",
    re.M | re.S,
)


def lua_occurrences(source: str, path: str) -> Iterator[Occurrence]:
    """Yield violations in comments and names of variables of a Lua script."""
    for token in LUA_TOKEN.finditer(source):
        line = source.count("\n", 0, token.start()) + 1
        yield from _matches("comments of Lua", WORDS, token["comment"] or "", path, line)
        for name in re.findall(r"\w+", f"{token['names'] or ''} {token['parameters'] or ''}"):
            yield from _matches("locals of Lua", LOCALS, name, path, line)


def comment_occurrences(text: str, path: str) -> Iterator[Occurrence]:
    """Yield violations in comments that start with `#`."""
    for line, content in enumerate(text.splitlines(), 1):
        _, mark, comment = content.partition("#")
        yield from _matches("other comments", WORDS, comment if mark else "", path, line)


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


CATEGORIES = tuple(
    f"{place}: {rule}"
    for place, rules in (
        ("docstrings", {**OPENINGS, **WORDS}),
        ("messages", WORDS),
        ("comments", WORDS),
        ("public names", PUBLIC_NAMES),
        ("test names", TEST_NAMES),
        ("locals", LOCALS),
        ("locals of tests", LOCALS),
        ("comments of Lua", WORDS),
        ("locals of Lua", LOCALS),
        ("other comments", WORDS),
        ("documents", {**WORDS, f"sentence over {MAX_SENTENCE_WORDS} words": None}),
    )
    for rule in rules
)

Counts = Mapping[str, Mapping[str, int]]
"""Number of occurrences by category and file, without zeros."""


def counted(violations: list[Occurrence]) -> dict[str, dict[str, int]]:
    """Return the number of occurrences by category and file."""
    counts: dict[str, Counter[str]] = {}
    for occurrence in violations:
        assert occurrence.category in CATEGORIES, occurrence.category
        counts.setdefault(occurrence.category, Counter())[occurrence.path] += 1
    return {category: dict(files) for category, files in counts.items()}


def growth(counts: Counts, baseline: Counts) -> dict[str, int]:
    """Return by how much the total of each category exceeds the baseline, if it does."""
    excess = {
        category: sum(files.values()) - sum(baseline.get(category, {}).values())
        for category, files in counts.items()
    }
    return {category: number for category, number in excess.items() if number > 0}


def read_baseline(file: Path) -> dict[str, dict[str, int]]:
    """Read the permitted numbers.

    Raises SystemExit with an error text if the file is missing or invalid.
    """
    try:
        content: dict[str, dict[str, int]] = json.loads(file.read_text())
    except FileNotFoundError:
        sys.exit(f"{file} is missing: restore it from Git")
    except json.JSONDecodeError as error:
        sys.exit(
            f"{file} is not JSON ({error}): after a merge conflict, take either side and run "
            "scripts/check_prose.py --update"
        )
    unknown = content.keys() - set(CATEGORIES)
    if unknown:
        sys.exit(f"{file} has unknown categories: {', '.join(sorted(unknown))}")
    return content


def main(arguments: list[str] | None = None) -> int:
    """Check the project, list a category, or update the baseline. Return the exit status."""
    parser = argparse.ArgumentParser(description="Check the prose of code and documents.")
    parser.add_argument("--root", type=Path, default=ROOT, help="Directory of the project.")
    parser.add_argument(
        "--update", action="store_true", help="Write the present numbers if no total grew."
    )
    parser.add_argument(
        "--list", metavar="TEXT", help="List occurrences whose category or path contains TEXT."
    )
    options = parser.parse_args(arguments)
    result = list(occurrences(options.root))
    if options.list is not None:
        _show([o for o in result if options.list in o.category or options.list in o.path])
        return 0
    counts = counted(result)
    file = options.root / BASELINE
    baseline = read_baseline(file)
    grown = growth(counts, baseline)
    for category, excess in grown.items():
        total = sum(counts[category].values())
        sys.stderr.write(f"{category}: {total}, {excess} more than permitted\n")
        permitted = baseline.get(category, {})
        files = {path for path, n in counts[category].items() if n > permitted.get(path, 0)}
        _show([o for o in result if o.category == category and o.path in files][:MAX_LISTED])
    if grown:
        sys.stderr.write("see docs/contributing/style.md; all of a category: --list CATEGORY\n")
        return 1
    if options.update:
        file.write_text(json.dumps(counts, indent=1, sort_keys=True) + "\n")
    elif counts != baseline:
        sys.stderr.write(f"{BASELINE} differs from the code: run scripts/check_prose.py --update\n")
        return 1
    return 0


def _show(violations: list[Occurrence]) -> None:
    for occurrence in violations:
        text = occurrence.text[:100]
        sys.stdout.write(f"{occurrence.path}:{occurrence.line}: {occurrence.category}: {text}\n")


if __name__ == "__main__":
    sys.exit(main())
