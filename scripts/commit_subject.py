"""Check the subject of a commit message: `area: imperative`, at most 72 characters.

Usage: commit_subject.py FILE, as git calls a commit-msg hook. Subjects that git writes for merges
are valid as well. The exit status is 1 for an invalid subject.
"""

import re
import sys
from pathlib import Path

MAX_SUBJECT_CHARACTERS = 72
_SUBJECT = re.compile(r"[a-z0-9_./-]+(, ?[a-z0-9_./-]+)*: [a-z]\S*( \S+)+(?<!\.)")
_MERGE = re.compile(r"Merge (remote-tracking )?branch '\S+'( of \S+)?( into \S+)?")


def subject_of(message: str) -> str:
    """Return the first line of a message that is neither empty nor a comment."""
    lines = (line.strip() for line in message.splitlines() if not line.startswith("#"))
    return next((line for line in lines if line), "")


def is_valid(subject: str) -> bool:
    """Return whether a commit may have this subject."""
    if _MERGE.fullmatch(subject):
        return True
    return len(subject) <= MAX_SUBJECT_CHARACTERS and _SUBJECT.fullmatch(subject) is not None


def main(arguments: list[str]) -> int:
    """Check the message in a file. Return the exit status."""
    subject = subject_of(Path(arguments[0]).read_text(encoding="utf-8"))
    if is_valid(subject):
        return 0
    sys.stderr.write(
        f"invalid commit subject: {subject}\n"
        f"Write `area: imperative`, at most {MAX_SUBJECT_CHARACTERS} characters, without a period "
        "at the end: `agent/nginx: report failed reloads`.\n"
    )
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
