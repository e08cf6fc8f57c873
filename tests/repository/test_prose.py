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
    for folder in ("src", "tests", "docs", "scripts"):
        (tmp_path / folder).mkdir()
    (tmp_path / "src" / "durations.py").write_text(GOOD)
    assert check_prose.main(["--root", str(tmp_path)]) == 0
    return tmp_path


def baseline(project: Path) -> dict[str, int]:
    content: dict[str, int] = json.loads((project / check_prose.BASELINE).read_text())
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


def test_update_lowers_a_decreased_count(project: Path) -> None:
    category = "docstrings: opens with a noun clause"
    file = project / check_prose.BASELINE
    file.write_text(json.dumps({**baseline(project), category: 2}))
    (project / "src" / "durations.py").write_text(BAD)
    assert check_prose.main(["--root", str(project)]) == 0
    assert baseline(project)[category] == 2
    assert check_prose.main(["--root", str(project), "--update"]) == 0
    assert baseline(project)[category] == 1


def test_update_never_raises_a_count(project: Path) -> None:
    (project / "src" / "durations.py").write_text(BAD)
    assert check_prose.main(["--root", str(project), "--update"]) == 1
    assert baseline(project)["docstrings: opens with a noun clause"] == 0


def test_code_in_documents_does_not_count(project: Path) -> None:
    (project / "docs" / "durations.md").write_text("```\nnobody anew\n```\n\n    nobody\n")
    assert check_prose.main(["--root", str(project)]) == 0
