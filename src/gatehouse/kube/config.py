"""How to reach an API server: from a kubeconfig file, or from the environment of a Pod."""

from __future__ import annotations

import base64
import binascii
import os
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from gatehouse.kube import http_proxy
from gatehouse.kube.credentials import (
    ExecPlugin,
    ExecToken,
    StaticToken,
    TokenFile,
    TokenSource,
)

SERVICE_ACCOUNT_DIR = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a kubelet mounts the Pod's token, CA and namespace."""


class ConfigError(Exception):
    """A kubeconfig cannot be used; the message names the file and the field."""


class Configuration(msgspec.Struct, frozen=True):
    """One API server and who we are to it. Holds key material: never log it."""

    server: str
    """``https://host:port``, possibly with a path prefix, without a trailing slash."""
    tokens: TokenSource
    ca: bytes = b""
    """PEM bundle; empty for the system's trust store."""
    client_cert: bytes = b""
    client_key: bytes = b""
    verify: bool = True
    """False for ``insecure-skip-tls-verify``."""
    server_name: str = ""
    """The name to expect in the certificate where it is not the URL's host."""
    proxy: str = ""
    namespace: str = "default"

    def __repr__(self) -> str:
        return f"Configuration({self.server})"

    def ssl_context(self) -> ssl.SSLContext | None:
        """Make the TLS context; None for a plain http server. Raises ConfigError."""
        if not self.server.startswith("https://"):
            return None
        context = ssl.create_default_context()
        try:
            if self.ca:
                context = ssl.create_default_context(cadata=self.ca.decode("ascii"))
            if not self.verify:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            if self.client_cert:
                _load_pair(context, self.client_cert, self.client_key)
        except (ssl.SSLError, ValueError) as error:
            raise ConfigError(f"TLS material for {self.server}: {error}") from error
        return context


def _load_pair(context: ssl.SSLContext, cert: bytes, key: bytes) -> None:
    # OpenSSL's Python binding reads pairs from files only. mkdtemp gives mode 0700.
    with tempfile.TemporaryDirectory(prefix="gatehouse-") as name:
        path = Path(name) / "pair.pem"
        path.touch(mode=0o600)
        path.write_bytes(cert.rstrip() + b"\n" + key)
        context.load_cert_chain(path)


def from_environment(environ: Mapping[str, str] = os.environ) -> Configuration:
    """Use ``KUBECONFIG`` where set, else what a kubelet gives every Pod, else ~/.kube/config."""
    if path := environ.get("KUBECONFIG", ""):
        return from_kubeconfig(Path(path.split(os.pathsep)[0]))
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster(environ)
    return from_kubeconfig(Path.home() / ".kube" / "config")


def in_cluster(environ: Mapping[str, str], directory: Path = SERVICE_ACCOUNT_DIR) -> Configuration:
    """Use the ServiceAccount of the Pod we run in."""
    host = environ.get("KUBERNETES_SERVICE_HOST", "")
    port = environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ConfigError("KUBERNETES_SERVICE_HOST is not set: this is no Pod")
    try:
        ca = (directory / "ca.crt").read_bytes()
        namespace_file = directory / "namespace"
        namespace = namespace_file.read_text().strip() if namespace_file.exists() else "default"
    except OSError as error:
        raise ConfigError(f"the Pod's ServiceAccount: {error}") from error
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return Configuration(
        server=server,
        tokens=TokenFile(directory / "token"),
        ca=ca,
        proxy=http_proxy.proxy_for(server, environ),
        namespace=namespace,
    )


def from_kubeconfig(path: Path | str, context: str = "") -> Configuration:
    """Read a kubeconfig; ``context`` overrides its current-context. Raises ConfigError."""
    path = Path(path)
    try:
        document = yaml.safe_load(path.read_bytes())
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"kubeconfig {path}: {error}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"kubeconfig {path}: is no mapping")
    reader = _Kubeconfig(path, document)
    chosen = context or str(document.get("current-context") or "")
    if not chosen:
        raise ConfigError(f"kubeconfig {path}: has no current-context")
    where = reader.section("contexts", "context", chosen)
    cluster = reader.section("clusters", "cluster", str(where.get("cluster", "")))
    user_name = str(where.get("user") or "")
    user = reader.section("users", "user", user_name) if user_name else {}
    server = str(cluster.get("server") or "").rstrip("/")
    if not server.startswith(("https://", "http://")):
        raise ConfigError(f"kubeconfig {path}: cluster.server {server!r} is no http(s) URL")
    return Configuration(
        server=server,
        tokens=reader.tokens(user),
        ca=reader.material(cluster, "certificate-authority"),
        client_cert=reader.material(user, "client-certificate"),
        client_key=reader.material(user, "client-key"),
        verify=not cluster.get("insecure-skip-tls-verify", False),
        server_name=str(cluster.get("tls-server-name") or ""),
        proxy=str(cluster.get("proxy-url") or http_proxy.proxy_for(server, os.environ)),
        namespace=str(where.get("namespace") or "default"),
    )


class _Kubeconfig(msgspec.Struct):
    """A parsed file, with its path for messages and as the base of relative paths."""

    path: Path
    document: dict[str, Any]

    def section(self, plural: str, singular: str, name: str) -> dict[str, Any]:
        for entry in self.document.get(plural) or ():
            if isinstance(entry, dict) and entry.get("name") == name:
                body = entry.get(singular)
                return body if isinstance(body, dict) else {}
        raise ConfigError(f"kubeconfig {self.path}: {plural} has no entry named {name!r}")

    def material(self, section: dict[str, Any], field: str) -> bytes:
        """Read ``<field>-data`` (base64) or the file named by ``<field>``."""
        if data := section.get(f"{field}-data"):
            try:
                return base64.b64decode(str(data), validate=True)
            except (binascii.Error, ValueError) as error:
                message = f"kubeconfig {self.path}: {field}-data is no base64"
                raise ConfigError(message) from error
        if file := section.get(field):
            try:
                return (self.path.parent / str(file)).read_bytes()
            except OSError as error:
                raise ConfigError(f"kubeconfig {self.path}: {field}: {error}") from error
        return b""

    def tokens(self, user: dict[str, Any]) -> TokenSource:
        # kubectl prefers the file where both are given, since it may be kept fresh.
        if file := user.get("tokenFile"):
            return TokenFile(self.path.parent / str(file))
        if token := user.get("token"):
            return StaticToken(str(token))
        plugin = user.get("exec")
        if isinstance(plugin, dict):
            return ExecToken(self._plugin(plugin))
        return StaticToken()

    def _plugin(self, section: dict[str, Any]) -> ExecPlugin:
        command = str(section.get("command") or "")
        if not command:
            raise ConfigError(f"kubeconfig {self.path}: user.exec has no command")
        if "/" in command:
            command = str(self.path.parent / command)
        return ExecPlugin(
            command=command,
            args=tuple(str(arg) for arg in section.get("args") or ()),
            env=tuple((str(e["name"]), str(e["value"])) for e in section.get("env") or ()),
            api_version=str(section.get("apiVersion") or "client.authentication.k8s.io/v1"),
        )
