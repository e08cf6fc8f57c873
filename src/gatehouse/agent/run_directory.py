"""The run directory, which is to be short: the paths of Unix sockets under it are limited."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

SOCKET_PATH_MAX = 107
"""Bytes that the path of a unix socket may have on Linux (``sun_path`` less its final NUL)."""

_LONGEST_NAME = 40
"""Room left for the names of sockets, ours and those in bundles."""


def short(asked: Path) -> Path:
    """Give the run directory that is asked for, or a short stand-in for one too long for sockets.

    The stand-in depends on the path alone, so that a restarted agent finds it again.
    """
    if len(bytes(asked)) + 1 + _LONGEST_NAME <= SOCKET_PATH_MAX:
        return asked
    name = hashlib.sha256(bytes(asked)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"gatehouse-{name}"
