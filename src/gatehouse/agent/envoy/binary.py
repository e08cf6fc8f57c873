"""Selection of the Envoy executable, and its version."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import msgspec

from gatehouse.agent.binary_probe import probe_binary
from gatehouse.agent.options import ProxyMissingError
from gatehouse.runtime import envoy_server


class EnvoyMissingError(ProxyMissingError):
    """No usable Envoy was found. The message names what was searched."""


class EnvoyBinary(msgspec.Struct, frozen=True):
    """An Envoy executable as described by `envoy --version`."""

    path: Path
    version: str
    """Version such as `1.40.0`."""


def probe_envoy(path: Path) -> EnvoyBinary:
    """Return the description of a binary. Raises :class:`EnvoyMissingError` if it is not Envoy."""
    result = probe_binary(path, "--version", EnvoyMissingError)
    version = re.search(r"version: \w+/(\d+\.\d+\.\d+)", result.stdout)
    if version is None:
        raise EnvoyMissingError(f"{path} is not Envoy: {(result.stdout or result.stderr)[:200]!r}")
    return EnvoyBinary(path, version[1])


def find_envoy_binary(named: str | None) -> Path:
    """Return the Envoy to use: `named`, or that of the package envoy-server.

    Raises :class:`EnvoyMissingError`.
    """
    if named is not None:
        path = shutil.which(named)
        if path is None:
            raise EnvoyMissingError(f"{named} is not an executable file")
        return Path(path).absolute()
    if packaged := envoy_server.envoy_executable():
        return packaged
    raise EnvoyMissingError("no Envoy configured, and package envoy-server not found")
