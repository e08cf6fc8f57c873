"""What the agent is told at start: flags over environment over a YAML file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

KEYS: Mapping[str, str] = {
    "command.server.host": "NGINX_AGENT_COMMAND_SERVER_HOST",
    "command.server.port": "NGINX_AGENT_COMMAND_SERVER_PORT",
    "command.auth.tokenpath": "NGINX_AGENT_COMMAND_AUTH_TOKENPATH",
    "command.tls.ca": "NGINX_AGENT_COMMAND_TLS_CA",
    "command.tls.server_name": "NGINX_AGENT_COMMAND_TLS_SERVER_NAME",
    "labels": "NGINX_AGENT_LABELS",
    "log.level": "NGINX_AGENT_LOG_LEVEL",
    "gatehouse.root": "GATEHOUSE_AGENT_ROOT",
    "gatehouse.run_dir": "GATEHOUSE_AGENT_RUN_DIR",
    "gatehouse.health_address": "GATEHOUSE_AGENT_HEALTH_ADDRESS",
    "gatehouse.nginx": "GATEHOUSE_AGENT_NGINX",
    "gatehouse.workers": "GATEHOUSE_AGENT_WORKERS",
    "gatehouse.pod_name": "POD_NAME",
    "gatehouse.pod_uid": "POD_UID",
}
"""Keys of the YAML file (those of the field's agent, then our own), and their variables."""


class OptionsError(ValueError):
    """An option is missing or wrong; the message names it."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How one agent runs."""

    server_host: str
    server_port: int
    token_path: Path | None = None
    """File with the token; read again whenever it changed."""
    ca: Path | None = None
    """PEM bundle that vouches for the server; None: no TLS, which forbids a token."""
    server_name: str = ""
    """Name expected in the server's certificate; empty: ``server_host``."""
    labels: Mapping[str, str] = {}
    """Sent with every call, as the field's agent does."""
    log_level: str = "info"
    root: Path = Path("/var/lib/gatehouse")
    """Configuration: survives restarts."""
    run_dir: Path = Path("/var/run/gatehouse")
    """Sockets, pid, logs and temporary files of NGINX."""
    health_address: str = ""
    """``host:port`` of /livez and /readyz; empty: none."""
    nginx: str | None = None
    """Path of the NGINX binary; None: see :func:`gatehouse.agent.nginx_binary.find`."""
    workers: str = "auto"
    """Number of worker processes."""
    pod_name: str = ""
    pod_uid: str = ""


def options_from_environment(environ: Mapping[str, str]) -> Options:
    """Build options from environment variables alone; raises :class:`OptionsError`."""
    return load_options(environ)


def load_options(
    environ: Mapping[str, str],
    *,
    file: Path | None = None,
    flags: Mapping[str, str] | None = None,
) -> Options:
    """Build options from ``flags`` (keyed like :data:`KEYS`), environment and YAML ``file``.

    Raises :class:`OptionsError`.
    """
    values = _from_file(file) if file is not None else {}
    values.update({key: environ[name] for key, name in KEYS.items() if environ.get(name)})
    values.update({key: value for key, value in (flags or {}).items() if value})
    return _build(values)


def _from_file(file: Path) -> dict[str, Any]:
    try:
        tree = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise OptionsError(f"{file}: {error}") from error
    if not isinstance(tree, dict):
        raise OptionsError(f"{file}: must be a mapping")
    values: dict[str, Any] = {}
    for key in KEYS:
        found: Any = tree
        for part in key.split("."):
            found = found.get(part) if isinstance(found, dict) else None
        if found is not None:
            values[key] = found
    return values


def _build(values: Mapping[str, Any]) -> Options:
    def text(key: str, default: str = "") -> str:
        return str(values.get(key, default))

    def path(key: str) -> Path | None:
        return Path(text(key)) if text(key) else None

    host = text("command.server.host")
    if not host:
        raise OptionsError("command.server.host is not set")
    options = Options(
        server_host=host,
        server_port=_port("command.server.port", text("command.server.port")),
        token_path=path("command.auth.tokenpath"),
        ca=path("command.tls.ca"),
        server_name=text("command.tls.server_name"),
        labels=_labels(values.get("labels")),
        log_level=text("log.level", "info").lower(),
        root=Path(text("gatehouse.root", "/var/lib/gatehouse")).absolute(),
        run_dir=Path(text("gatehouse.run_dir", "/var/run/gatehouse")).absolute(),
        health_address=text("gatehouse.health_address"),
        nginx=text("gatehouse.nginx") or None,
        workers=_workers(text("gatehouse.workers", "auto")),
        pod_name=text("gatehouse.pod_name"),
        pod_uid=text("gatehouse.pod_uid"),
    )
    if options.token_path is not None and options.ca is None:
        raise OptionsError("command.auth.tokenpath needs command.tls.ca: a token needs TLS")
    for name, place in (("root", options.root), ("run_dir", options.run_dir)):
        if any(character in str(place) for character in "\"\\$'\r\n;{}"):
            raise OptionsError(f"gatehouse.{name}: {place} has characters NGINX treats specially")
    return options


def _port(key: str, value: str) -> int:
    if not value.isdecimal() or not 0 < int(value) < 65536:
        raise OptionsError(f"{key}: {value!r} is no port")
    return int(value)


def _workers(value: str) -> str:
    if value != "auto" and not (value.isdecimal() and int(value) > 0):
        raise OptionsError(f"gatehouse.workers: {value!r} is neither 'auto' nor a number above 0")
    return value


def _labels(value: Any) -> dict[str, str]:
    if value is None:
        return {}
    if isinstance(value, dict):
        return {str(key): str(item) for key, item in value.items()}
    labels: dict[str, str] = {}
    for pair in filter(None, str(value).split(",")):
        key, equals, item = pair.partition("=")
        if not equals or not key.strip():
            raise OptionsError(f"labels: {pair!r} is not key=value")
        labels[key.strip()] = item.strip()
    return labels
