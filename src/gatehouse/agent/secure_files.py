"""Files and directories readable by their owner only, written without following links."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath


class UnsafePathError(ValueError):
    """A file must not be written. The message names it."""


def make_private_dir(path: Path) -> None:
    """Create a directory and its missing parents with mode 0700. Raises OSError."""
    for directory in (*reversed(path.parents), path):
        if not directory.is_dir():
            directory.mkdir(mode=0o700, exist_ok=True)


def write_private_file(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Write a new file. Raises FileExistsError instead of following a link."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def reject_symlinks(base: Path, path: str) -> None:
    """Raise UnsafePathError if a component of directory `path` under `base` is a symbolic link."""
    below = PurePosixPath(path)
    for part in (*list(below.parents)[:-1], below):
        if (base / part).is_symlink():
            raise UnsafePathError(f"{base / part} is a symbolic link: not supported")
