"""Subjects of commits: `area: imperative`, at most 72 characters."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

SINCE = "2026-11-23T01:00:00+00:00"
"""Start of the rule."""

SUBJECT = re.compile(r"[a-z0-9_./-]+(, ?[a-z0-9_./-]+)*: [a-z]\S*( \S+)+(?<!\.)")


def subjects() -> list[str]:
    """Return the subjects of the commits of this checkout, except merges."""
    command = ["git", "log", "--no-merges", f"--since={SINCE}", "--format=%s"]
    try:
        done = subprocess.run(
            command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this is no checkout of a Git repository")
    return done.stdout.splitlines()


def test_commit_subjects_name_an_area_and_are_short() -> None:
    wrong = [each for each in subjects() if len(each) > 72 or not SUBJECT.fullmatch(each)]
    assert wrong == []


@pytest.mark.parametrize(
    "subject",
    ["Fix a bug", "agent: Report failures", "agent: report failures.", "agent:report failures"],
)
def test_invalid_commit_subject_is_found(subject: str) -> None:
    assert not SUBJECT.fullmatch(subject)
