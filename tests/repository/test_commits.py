"""Subjects of commits: `area: imperative`, at most 72 characters."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import commit_subject
import pytest
import yaml

ROOT = Path(__file__).parents[2]
SINCE = "2026-11-23T01:00:00+00:00"
"""Start of the rule."""


def git(directory: Path, *arguments: str) -> str:
    # A checkout of another user, as in a container, is read too.
    command = ["git", "-c", f"safe.directory={directory}", "-C", str(directory), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def subjects(directory: Path) -> list[str]:
    """Return the subjects of the commits of a checkout since the start of the rule.

    Raises AssertionError if there are none, except in a shallow clone, whose only commit may be
    older.
    """
    listed = git(directory, "log", f"--since={SINCE}", "--format=%s").splitlines()
    shallow = git(directory, "rev-parse", "--is-shallow-repository") == "true"
    assert listed or shallow, "the log lists commits"
    return listed


@pytest.mark.skipif(
    not (ROOT / ".git").exists() or not shutil.which("git"), reason="this is no Git checkout"
)
def test_commit_subjects_name_an_area_and_are_short() -> None:
    assert [line for line in subjects(ROOT) if not commit_subject.is_valid(line)] == []


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository whose only commit is older than the rule."""
    origin = tmp_path / "origin"
    git(tmp_path, "init", "-q", str(origin))
    author = ("-c", "user.name=A", "-c", "user.email=a@example.com")
    environment = {"GIT_COMMITTER_DATE": "2020-01-01T00:00:00+00:00"}
    command = ["git", *author, "-C", str(origin), "commit", "-q", "--allow-empty", "-m", "Old"]
    subprocess.run(command, check=True, env=environment)
    return origin


@pytest.mark.skipif(not shutil.which("git"), reason="git is missing")
def test_log_without_subjects_is_rejected_unless_the_clone_is_shallow(
    repository: Path, tmp_path: Path
) -> None:
    with pytest.raises(AssertionError, match="the log lists commits"):
        subjects(repository)
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{repository}", str(clone))
    assert subjects(clone) == []


@pytest.mark.parametrize(
    "subject",
    [
        "Fix a bug",
        "agent: Report failures",
        "agent: report failures.",
        "agent:report failures",
        "agent: report " + "x" * 59,
        "Merge everything",
        "",
    ],
)
def test_invalid_commit_subject_is_rejected(subject: str, tmp_path: Path) -> None:
    message = tmp_path / "COMMIT_EDITMSG"
    message.write_text(f"{subject}\n\nThe body.\n")
    assert not commit_subject.is_valid(subject)
    assert subject == "" or commit_subject.main([str(message)]) == 1


@pytest.mark.parametrize(
    "message",
    [
        "agent/nginx: report failed reloads\n\nThe body says why.\n",
        "\n# Please enter the commit message.\nsrc, tests: rename limits\n",
        "Merge branch 'main' into words\n",
        "Merge remote-tracking branch 'origin/main'\n",
        "Merge branch 'main' of example.com:gatehouse into words\n",
    ],
)
def test_hook_accepts_message(message: str, tmp_path: Path) -> None:
    file = tmp_path / "COMMIT_EDITMSG"
    file.write_text(message)
    assert commit_subject.main([str(file)]) == 0


def test_hook_of_pre_commit_runs_the_check() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    (hook,) = [
        hook
        for repository in config["repos"]
        for hook in repository["hooks"]
        if hook["stages"] == ["commit-msg"]
    ]
    assert hook["entry"] == "python3 scripts/commit_subject.py"
    assert "commit-msg" in config["default_install_hook_types"]
