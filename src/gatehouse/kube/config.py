"""Configuration of an API server client, from a kubeconfig or from the environment of a Pod."""

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
from kube_base.types.ip_addresses import bracketed

SERVICE_ACCOUNT_DIR = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Directory in which the kubelet mounts the Pod's token, CA and namespace."""


class ConfigError(Exception):
    """A kubeconfig cannot be used; the message names the file and the field."""


class Configuration(msgspec.Struct, frozen=True):
    """Address and credentials for one API server. Contains private keys: never log it."""

    server: str
    """``https://host:port``, possibly with a path prefix, without a trailing slash."""
    tokens: TokenSource
    ca: bytes = b""
    """CA certificates (PEM); empty for the system's trust store."""
    client_cert: bytes = b""
    client_key: bytes = b""
    verify: bool = True
    """False for ``insecure-skip-tls-verify``."""
    server_name: str = ""
    """Expected server name in the certificate; empty for the host of the URL."""
    proxy: str = ""
    namespace: str = "default"

    def __repr__(self) -> str:
        return f"Configuration({self.server})"

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return the TLS context; None for plain HTTP. Raises ConfigError."""
        if not self.server.startswith("https://"):
            return None
        try:
            # Without authorities of its own: those of the machine.
            context = ssl.create_default_context(cadata=self.ca.decode("ascii") or None)
            if not self.verify:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            if self.client_cert:
                _load_pair(context, self.client_cert, self.client_key)
        except (ssl.SSLError, ValueError) as error:
            raise ConfigError(f"TLS credentials for {self.server}: {error}") from error
        return context


def _load_pair(context: ssl.SSLContext, cert: bytes, key: bytes) -> None:
    # The ssl module reads key pairs only from files. The directory has mode 0700.
    with tempfile.TemporaryDirectory(prefix="gatehouse-") as name:
        path = Path(name) / "pair.pem"
        path.touch(mode=0o600)
        path.write_bytes(cert.rstrip() + b"\n" + key)
        context.load_cert_chain(path)


def from_environment(environ: Mapping[str, str] = os.environ) -> Configuration:
    """Use ``KUBECONFIG`` if set, else the Pod's ServiceAccount, else ~/.kube/config."""
    if path := environ.get("KUBECONFIG", ""):
        return from_kubeconfig(Path(path.split(os.pathsep)[0]))
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster(environ)
    return from_kubeconfig(Path.home() / ".kube" / "config")


def in_cluster(environ: Mapping[str, str], directory: Path = SERVICE_ACCOUNT_DIR) -> Configuration:
    """Use the ServiceAccount of the Pod of this process. Raises ConfigError."""
    host = environ.get("KUBERNETES_SERVICE_HOST", "")
    port = environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ConfigError("KUBERNETES_SERVICE_HOST is not set: not running in a Pod")
    try:
        ca = (directory / "ca.crt").read_bytes()
        namespace_file = directory / "namespace"
        namespace = namespace_file.read_text().strip() if namespace_file.exists() else "default"
    except OSError as error:
        raise ConfigError(f"the Pod's ServiceAccount: {error}") from error
    server = f"https://{bracketed(host)}:{port}"
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
        document = yaml.load(path.read_bytes(), yaml.CSafeLoader)
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"kubeconfig {path}: {error}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"kubeconfig {path}: must be a mapping")
    reader = _Kubeconfig(path, document)
    context_name = context or str(document.get("current-context") or "")
    if not context_name:
        raise ConfigError(f"kubeconfig {path}: current-context is not set")
    context_section = reader.section("contexts", "context", context_name)
    cluster = reader.section("clusters", "cluster", str(context_section.get("cluster", "")))
    user_name = str(context_section.get("user") or "")
    user = reader.section("users", "user", user_name) if user_name else {}
    server = str(cluster.get("server") or "").rstrip("/")
    if not server.startswith(("https://", "http://")):
        raise ConfigError(f"kubeconfig {path}: cluster.server {server!r} must be an http(s) URL")
    return Configuration(
        server=server,
        tokens=reader.tokens(user),
        ca=reader.material(cluster, "certificate-authority"),
        client_cert=reader.material(user, "client-certificate"),
        client_key=reader.material(user, "client-key"),
        verify=not cluster.get("insecure-skip-tls-verify", False),
        server_name=str(cluster.get("tls-server-name") or ""),
        proxy=str(cluster.get("proxy-url") or http_proxy.proxy_for(server, os.environ)),
        namespace=str(context_section.get("namespace") or "default"),
    )


class _Kubeconfig(msgspec.Struct):
    """A parsed kubeconfig and its path, which is the base of relative paths."""

    path: Path
    document: dict[str, Any]

    def section(self, plural: str, singular: str, name: str) -> dict[str, Any]:
        for entry in self.document.get(plural) or ():
            if isinstance(entry, dict) and entry.get("name") == name:
                body = entry.get(singular)
                return body if isinstance(body, dict) else {}
        raise ConfigError(f"kubeconfig {self.path}: {plural}: {name!r} not found")

    def material(self, section: dict[str, Any], field: str) -> bytes:
        """Read ``<field>-data`` (base64) or the file named by ``<field>``."""
        if data := section.get(f"{field}-data"):
            try:
                return base64.b64decode(str(data), validate=True)
            except (binascii.Error, ValueError) as error:
                message = f"kubeconfig {self.path}: {field}-data must be base64"
                raise ConfigError(message) from error
        if file := section.get(field):
            try:
                return (self.path.parent / str(file)).read_bytes()
            except OSError as error:
                raise ConfigError(f"kubeconfig {self.path}: {field}: {error}") from error
        return b""

    def tokens(self, user: dict[str, Any]) -> TokenSource:
        # As in kubectl the file wins if both are set, since it may be updated.
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
            raise ConfigError(f"kubeconfig {self.path}: user.exec.command is not set")
        if "/" in command:
            command = str(self.path.parent / command)
        return ExecPlugin(
            command=command,
            args=tuple(str(arg) for arg in section.get("args") or ()),
            env=tuple((str(e["name"]), str(e["value"])) for e in section.get("env") or ()),
            api_version=str(section.get("apiVersion") or "client.authentication.k8s.io/v1"),
        )
