"""The check of prose: counts may shrink and never grow."""

import json
from pathlib import Path

import check_prose
import pytest

GOOD = '"""Parser of durations."""\n'
BAD = '"""What durations mean."""\n'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project of one module with a good docstring, and its baseline."""
    for folder in ("src", "tests", "docs", "scripts", "bench"):
        (tmp_path / folder).mkdir()
    (tmp_path / "src" / "durations.py").write_text(GOOD)
    (tmp_path / check_prose.BASELINE).write_text("{}\n")
    assert check_prose.main(["--root", str(tmp_path)]) == 0
    return tmp_path


def baseline(project: Path) -> dict[str, dict[str, int]]:
    content: dict[str, dict[str, int]] = json.loads((project / check_prose.BASELINE).read_text())
    return content


@pytest.mark.parametrize(
    ("file", "content", "category"),
    [
        ("src/durations.py", BAD, "docstrings: opens with a noun clause"),
        ("src/durations.py", 'def f(): "Give a duration."', "docstrings: opens with Give"),
        ("src/durations.py", "# Nobody reads it.\n", "comments: whoever, nobody"),
        ("src/durations.py", 'raise ValueError("a class of ours")\n', "messages: ours, theirs"),
        (
            "tests/test_durations.py",
            "def test_what_is_read(): ...\n",
            "test names: opens with a noun clause",
        ),
        ("src/durations.py", "found = 1\n", "locals: participle or each"),
        ("src/durations.py", "def f(told): ...\n", "locals: participle or each"),
        ("src/durations.py", "[each for each in ()]\n", "locals: participle or each"),
        ("src/durations.py", "with open(f) as kept: ...\n", "locals: participle or each"),
        ("bench/durations.py", "def f(*, seen): ...\n", "locals: participle or each"),
        ("scripts/durations.py", "for given in (): ...\n", "locals: participle or each"),
        ("tests/durations.py", "made = 1\n", "locals of tests: participle or each"),
        ("tests/durations.py", "(asked := 1)\n", "locals of tests: participle or each"),
        ("tests/durations.py", BAD, "docstrings: opens with a noun clause"),
        ("bench/durations.py", "x = 1  # as told\n", "comments: told, said"),
        ("scripts/durations.py", "x = 1  # as told\n", "comments: told, said"),
        ("src/durations.py", "def kept(): ...\n", "public names: dialect word"),
        ("src/durations.py", "PATIENCE = 3.0\n", "public names: dialect word"),
        ("src/durations.py", "class AskedTime: ...\n", "public names: dialect word"),
        ("src/durations.lua", "-- Nobody reads it.\n", "comments of Lua: whoever, nobody"),
        ("src/durations.lua", "local one, told = 1, 2\n", "locals of Lua: participle or each"),
        (
            "src/durations.lua",
            "for _, each in ipairs(x) do end\n",
            "locals of Lua: participle or each",
        ),
        (
            "src/durations.lua",
            "local function f(a, meant) end\n",
            "locals of Lua: participle or each",
        ),
        ("Makefile", "lock:  ## Lock anew\n", "other comments: anew, no more"),
        ("bench/RESULTS.md", "word " * 31 + "\n", "documents: sentence over 30 words"),
        ("docs/durations.md", "It is made anew.\n", "documents: anew, no more"),
        ("docs/durations.md", "word " * 31 + "\n", "documents: sentence over 30 words"),
    ],
)
def test_prose_check_fails_when_a_count_grows(
    project: Path, capsys: pytest.CaptureFixture[str], file: str, content: str, category: str
) -> None:
    (project / file).write_text(content)
    assert check_prose.main(["--root", str(project)]) == 1
    output = capsys.readouterr()
    assert f"{category}: 1, 1 more than permitted" in output.err
    assert f"{file}:1: {category}" in output.out


LOCALS = "locals: participle or each"
VIOLATION = f"{GOOD}def _one():\n    found = 1\n"
FIRST, SECOND = "src/durations.py", "src/quantities.py"


def test_check_without_a_baseline_fails(project: Path) -> None:
    (project / check_prose.BASELINE).unlink()
    for arguments in ([], ["--update"]):
        with pytest.raises(SystemExit, match="is missing"):
            check_prose.main(["--root", str(project), *arguments])
    assert not (project / check_prose.BASELINE).exists()


@pytest.mark.parametrize("content", ["<<<<<<< HEAD\n{}\n", '{"locals: unknown rule": {"a.py": 1}}'])
def test_check_with_an_invalid_baseline_fails(project: Path, content: str) -> None:
    (project / check_prose.BASELINE).write_text(content)
    with pytest.raises(SystemExit, match=r"not JSON|unknown categories"):
        check_prose.main(["--root", str(project)])


def test_decreased_count_needs_an_update(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = project / check_prose.BASELINE
    file.write_text(json.dumps({LOCALS: {FIRST: 2}}))
    (project / FIRST).write_text(VIOLATION)
    assert check_prose.main(["--root", str(project)]) == 1
    assert "run scripts/check_prose.py --update" in capsys.readouterr().err
    assert baseline(project) == {LOCALS: {FIRST: 2}}
    assert check_prose.main(["--root", str(project), "--update"]) == 0
    assert baseline(project) == {LOCALS: {FIRST: 1}}
    assert check_prose.main(["--root", str(project)]) == 0


def test_update_accepts_moved_violations_if_the_total_stays(project: Path) -> None:
    (project / check_prose.BASELINE).write_text(json.dumps({LOCALS: {FIRST: 1}}))
    (project / SECOND).write_text(VIOLATION)
    assert check_prose.main(["--root", str(project)]) == 1
    assert check_prose.main(["--root", str(project), "--update"]) == 0
    assert baseline(project) == {LOCALS: {SECOND: 1}}


def test_update_never_raises_a_total(project: Path) -> None:
    (project / FIRST).write_text(BAD)
    assert check_prose.main(["--root", str(project), "--update"]) == 1
    assert baseline(project) == {}


def test_baseline_has_one_line_for_each_file(project: Path) -> None:
    (project / check_prose.BASELINE).write_text(json.dumps({LOCALS: {FIRST: 9}}))
    for name in (FIRST, SECOND):
        (project / name).write_text(VIOLATION)
    assert check_prose.main(["--root", str(project), "--update"]) == 0
    lines = (project / check_prose.BASELINE).read_text().splitlines()
    assert lines[2:4] == [f'  "{FIRST}": 1,', f'  "{SECOND}": 1']


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("src/durations.py", f"{GOOD}NOT_FOUND = 404\ndef for_each(): ...\n"),
        ("src/durations.py", f"{GOOD}def _kept(): ...\n"),
        ("src/durations.lua", "local value = told.believed  -- a key of metadata\n"),
        ("tests/durations.py", 'x = "nobody"\n'),
        ("tests/test_durations.py", '"""Who: a tenant. Must hold: requests fail."""\n'),
    ],
)
def test_permitted_text_does_not_count(project: Path, file: str, content: str) -> None:
    (project / file).write_text(content)
    assert check_prose.main(["--root", str(project)]) == 0


def test_code_in_documents_does_not_count(project: Path) -> None:
    (project / "docs" / "durations.md").write_text("```\nnobody anew\n```\n\n    nobody\n")
    assert check_prose.main(["--root", str(project)]) == 0
