"""Directories and files that nobody else is to read, and that lead nowhere else."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath


class UnsafePathError(ValueError):
    """A file that is not to be written; the message names it."""


def make_private_dir(path: Path) -> None:
    """Make a directory, and those above it that are missing, for the owner only; raises OSError."""
    for each in (*reversed(path.parents), path):
        if not each.is_dir():
            each.mkdir(mode=0o700, exist_ok=True)


def write_private_file(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Write a new file; raises FileExistsError rather than follow a link."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def reject_symlinks(base: Path, path: str) -> None:
    """See to it that no part of directory ``path`` under ``base`` is a link; raises Refused."""
    below = PurePosixPath(path)
    for part in (*list(below.parents)[:-1], below):
        if (base / part).is_symlink():
            raise UnsafePathError(
                f"{base / part} is a symbolic link: nothing is written through it"
            )
