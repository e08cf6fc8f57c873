"""A disk of some megabytes that can be filled, and made read-only."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


class SmallDisk:
    """A tmpfs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / "filler"

    def fill(self) -> None:
        """Leave no byte."""
        with self._filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"\0" * 4096)

    def free(self) -> None:
        """Undo :meth:`fill`."""
        self._filler.unlink()

    def remount(self, options: str) -> None:
        """Such as ``ro`` or ``size=8m``."""
        _mount("-o", f"remount,{options}", str(self.path))


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True)


@contextlib.contextmanager
def small_disk(path: Path, size: str) -> Iterator[SmallDisk]:
    """Mount one at ``path``; skips the test where that is not allowed."""
    path.mkdir(parents=True, exist_ok=True)
    try:
        _mount("-t", "tmpfs", "-o", f"size={size},mode=0755", "tmpfs", str(path))
    except (subprocess.CalledProcessError, OSError) as error:
        pytest.skip(f"mounting is not possible here: {error}")
    try:
        yield SmallDisk(path)
    finally:
        done = subprocess.run(["umount", str(path)], check=False, capture_output=True)
        if done.returncode != 0:
            subprocess.run(["umount", "-l", str(path)], check=True, capture_output=True)
