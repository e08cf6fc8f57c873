"""Sources of the previous commit, from which a cluster is upgraded."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from cluster import layout

TAG = "previous"
"""Tag of its images."""

SOURCES = layout.HOME / "previous"


def sources() -> Mapping[str, Path]:
    """Write the sources of the first parent of HEAD. Return their directory by the images' tag.

    The result is empty without a history, for example in an archive of the sources.
    """
    commit = _git("rev-parse", "--verify", "HEAD^1")
    if commit is None:
        return {}
    mark = SOURCES / "COMMIT"
    if not mark.exists() or mark.read_bytes() != commit:
        archive = subprocess.run(
            ["git", "archive", commit.decode().strip()],
            cwd=layout.ROOT,
            check=True,
            capture_output=True,
        ).stdout
        shutil.rmtree(SOURCES, ignore_errors=True)
        SOURCES.mkdir(parents=True)
        subprocess.run(["tar", "-x", "-C", str(SOURCES)], input=archive, check=True)
        mark.write_bytes(commit)
    return {TAG: SOURCES}


def _git(*words: str) -> bytes | None:
    done = subprocess.run(["git", *words], cwd=layout.ROOT, capture_output=True, check=False)
    return None if done.returncode else done.stdout
