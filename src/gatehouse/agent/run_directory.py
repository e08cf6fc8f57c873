"""Run directory with a short path, because Linux limits the paths of Unix sockets."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

MAX_SOCKET_PATH_BYTES = 107
"""Maximum length in bytes of a Unix socket path on Linux (`sun_path` less its final NUL)."""

_MAX_SOCKET_NAME_BYTES = 40
"""Bytes reserved for the names of sockets, of the agent and in file sets."""


def short_path(path: Path) -> Path:
    """Return `path`, or a short substitute if `path` is too long for sockets.

    The substitute depends on the path alone, so a restarted agent finds it again.
    """
    if len(bytes(path)) + 1 + _MAX_SOCKET_NAME_BYTES <= MAX_SOCKET_PATH_BYTES:
        return path
    name = hashlib.sha256(bytes(path)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"gatehouse-{name}"
