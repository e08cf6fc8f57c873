"""Limit of open files of a process."""

from __future__ import annotations

import contextlib
import resource


def raise_limit() -> int:
    """Raise the limit of open files to the maximum, because each connection needs a file.

    Many systems start processes with 1,024. Return the limit that holds afterwards.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
