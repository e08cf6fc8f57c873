"""What the agent is told at start: flags over environment over a YAML file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from gatehouse.agent.timeouts import DRAIN_SECONDS, MAX_DRAIN_SECONDS

CONFIG_DIR = "/etc/nginx"
"""Where a control plane believes NGINX's files to be."""

_FIELDS_AGENT = (
    "command.server.host",
    "command.server.port",
    "command.server.type",
    "command.auth.token",
    "command.auth.tokenpath",
    "command.tls.ca",
    "command.tls.cert",
    "command.tls.key",
    "command.tls.server_name",
    "command.tls.skip_verify",
    "labels",
    "log.level",
    "allowed_directories",
    "features",
    "data_plane_config.nginx.treat_warnings_as_errors",
)
_OWN = (
    "state_dir",
    "run_dir",
    "health_bind_address",
    "proxy",
    "nginx",
    "envoy",
    "max_connections",
    "workers",
    "shutdown_delay_seconds",
    "drain_seconds",
    "gateway",
)

KEYS: Mapping[str, str] = {
    **{key: f"NGINX_AGENT_{key.upper().replace('.', '_')}" for key in _FIELDS_AGENT},
    **{f"gatehouse.{name}": f"GATEHOUSE_AGENT_{name.upper()}" for name in _OWN},
    "gatehouse.log_format": "GATEHOUSE_LOG_FORMAT",
    "gatehouse.pod_name": "POD_NAME",
    "gatehouse.pod_namespace": "POD_NAMESPACE",
    "gatehouse.pod_uid": "POD_UID",
}
"""Keys of the YAML file (those of the field's agent, then our own), and their variables."""

FEATURES = frozenset({"configuration"})
"""Those of the field's agent that this one has; metrics are there to be fetched, not pushed."""

MAX_SHUTDOWN_DELAY_SECONDS = 60

_LEVELS = {"warn": "warning", "panic": "error", "fatal": "error"}
"""Levels of the field's agent that are called something else here."""


class OptionsError(ValueError):
    """An option is missing or wrong; the message names it."""


class ProxyMissingError(RuntimeError):
    """There is no usable NGINX or Envoy; the message says which was looked for."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How one agent runs."""

    server_host: str
    server_port: int
    token: str = ""
    """A token that does not change; ``token_path`` goes before it."""
    token_path: Path | None = None
    """File with the token; read again whenever it changed."""
    ca: Path | None = None
    """PEM bundle that vouches for the server; None: the system's, if there is TLS at all."""
    cert: Path | None = None
    key: Path | None = None
    """What the agent shows the server; both or none. Read, like ``ca``, for each connection."""
    server_name: str = ""
    """Name expected in the server's certificate; empty: ``server_host``."""
    labels: Mapping[str, str] = {}
    """Sent with every call, as the field's agent does."""
    log_level: str = ""
    """One of debug, info, warning, error; empty: not said."""
    log_format: str = ""
    """json or console; empty: not said."""
    allowed_directories: tuple[str, ...] = (CONFIG_DIR,)
    """Where files may be, by the control plane's names; what is elsewhere is refused."""
    treat_warnings_as_errors: bool = False
    """Whether a configuration that ``nginx -t`` warns of is refused."""
    root: Path = Path("/var/lib/gatehouse")
    """Configuration: survives restarts."""
    run_dir: Path = Path("/var/run/gatehouse")
    """Sockets, pid, logs and temporary files of NGINX."""
    health_address: str = ""
    """``host:port`` of /livez, /readyz and /metrics; empty: none."""
    proxy: str = "nginx"
    """What the agent runs: ``nginx`` or ``envoy``."""
    nginx: str | None = None
    """Path of the NGINX binary; None: see :func:`gatehouse.agent.nginx.binary.find`."""
    envoy: str | None = None
    """Path of the Envoy binary; None: see :func:`gatehouse.agent.envoy.binary.find`."""
    max_connections: int = 50_000
    """How many connections of clients an Envoy takes; more are closed at once."""
    workers: str = "auto"
    """Number of worker processes, or of Envoy's threads."""
    shutdown_delay_seconds: float = 0.0
    """How long new connections are taken at least, once told to end: whoever sends them here may
    not have heard of it."""
    drain_seconds: float = DRAIN_SECONDS
    """How long connections may take to finish after that."""
    gateway: str = ""
    """Name of the Gateway, in the namespace of the Pod; with those the labels of measurements."""
    pod_name: str = ""
    pod_namespace: str = ""
    pod_uid: str = ""
    ignored: tuple[str, ...] = ()
    """What was asked for that this agent does not have: keys, and ``features.<name>``."""

    @property
    def tls(self) -> bool:
        """Whether the connection is by TLS."""
        return self.ca is not None or self.cert is not None or bool(self.server_name)


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
    return _checked(_build(values))


def _from_file(file: Path) -> dict[str, Any]:
    import yaml  # only here: most agents have no file

    try:
        tree = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise OptionsError(f"{file}: {error}") from error
    if not isinstance(tree, dict):
        raise OptionsError(f"{file}: must be a mapping")
    return dict(_leaves("", tree))


def _leaves(prefix: str, tree: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict) and key not in KEYS:
            yield from _leaves(f"{key}.", value)
        elif value is not None:
            yield key, value


def _build(values: Mapping[str, Any]) -> Options:
    def text(key: str, default: str = "") -> str:
        return str(values.get(key, default))

    def path(key: str) -> Path | None:
        return Path(text(key)) if text(key) else None

    host = text("command.server.host")
    if not host:
        raise OptionsError("command.server.host is not set")
    level = text("log.level").lower()
    features = _words(values.get("features", "configuration"))
    _refuse_what_is_not_had(values, features)
    return Options(
        server_host=host,
        server_port=_port("command.server.port", text("command.server.port")),
        token=text("command.auth.token"),
        token_path=path("command.auth.tokenpath"),
        ca=path("command.tls.ca"),
        cert=path("command.tls.cert"),
        key=path("command.tls.key"),
        server_name=text("command.tls.server_name"),
        labels=_labels(values.get("labels")),
        log_level=_LEVELS.get(level, level),
        log_format=text("gatehouse.log_format").lower(),
        allowed_directories=_words(values.get("allowed_directories", CONFIG_DIR)),
        treat_warnings_as_errors=_truth(values, "data_plane_config.nginx.treat_warnings_as_errors"),
        root=Path(text("gatehouse.state_dir", "/var/lib/gatehouse")).absolute(),
        run_dir=Path(text("gatehouse.run_dir", "/var/run/gatehouse")).absolute(),
        health_address=text("gatehouse.health_bind_address"),
        proxy=_proxy(text("gatehouse.proxy", "nginx")),
        nginx=text("gatehouse.nginx") or None,
        envoy=text("gatehouse.envoy") or None,
        max_connections=_above_zero(
            "gatehouse.max_connections", text("gatehouse.max_connections", "50000")
        ),
        workers=_workers(text("gatehouse.workers", "auto")),
        shutdown_delay_seconds=_seconds(
            values, "gatehouse.shutdown_delay_seconds", 0, MAX_SHUTDOWN_DELAY_SECONDS
        ),
        drain_seconds=_seconds(values, "gatehouse.drain_seconds", DRAIN_SECONDS, MAX_DRAIN_SECONDS),
        gateway=text("gatehouse.gateway"),
        pod_name=text("gatehouse.pod_name"),
        pod_namespace=text("gatehouse.pod_namespace"),
        pod_uid=text("gatehouse.pod_uid"),
        ignored=(
            *(key for key in values if key not in KEYS),
            *(f"features.{name}" for name in features if name not in FEATURES),
        ),
    )


def _refuse_what_is_not_had(values: Mapping[str, Any], features: tuple[str, ...]) -> None:
    """Refuse what would make another agent of this one; the rest is left out."""
    if str(values.get("command.server.type", "grpc")).lower() != "grpc":
        raise OptionsError("command.server.type: only grpc is spoken")
    if _truth(values, "command.tls.skip_verify"):
        raise OptionsError("command.tls.skip_verify: certificates are always checked")
    if "configuration" not in features:
        raise OptionsError("features: an agent without 'configuration' has nothing to do")


def _checked(options: Options) -> Options:
    if (options.token or options.token_path is not None) and not options.tls:
        raise OptionsError("command.auth.tokenpath needs command.tls.ca: a token needs TLS")
    if (options.cert is None) is not (options.key is None):
        raise OptionsError("command.tls.cert and command.tls.key go together")
    if options.log_level not in ("", "debug", "info", "warning", "error"):
        raise OptionsError(f"log.level: {options.log_level!r} is no level")
    if options.log_format not in ("", "auto", "text", "json", "console"):
        raise OptionsError(f"gatehouse.log_format: {options.log_format!r} is not text or json")
    for place in options.allowed_directories:
        if not place.startswith("/") or place == "/" or ".." in place.split("/"):
            raise OptionsError(f"allowed_directories: {place!r} is no plain path below /")
    for name, directory in (("state_dir", options.root), ("run_dir", options.run_dir)):
        if any(character in str(directory) for character in "\"\\$'\r\n;{}"):
            raise OptionsError(
                f"gatehouse.{name}: {directory} has characters NGINX treats specially"
            )
    return options


def _truth(values: Mapping[str, Any], key: str) -> bool:
    value = str(values.get(key, "false")).lower()
    if value not in ("true", "false"):
        raise OptionsError(f"{key}: {value!r} is neither true nor false")
    return value == "true"


def _words(value: Any) -> tuple[str, ...]:
    """Read a list, which in the environment and in flags is separated by commas."""
    items = value if isinstance(value, list) else str(value).split(",")
    return tuple(str(item).strip().rstrip("/") or "/" for item in items if str(item).strip())


def _port(key: str, value: str) -> int:
    if not value.isdecimal() or not 0 < int(value) < 65536:
        raise OptionsError(f"{key}: {value!r} is no port")
    return int(value)


def _proxy(value: str) -> str:
    if value not in ("nginx", "envoy"):
        raise OptionsError(f"gatehouse.proxy: {value!r} is neither 'nginx' nor 'envoy'")
    return value


def _above_zero(key: str, value: str) -> int:
    if not value.isdecimal() or int(value) < 1:
        raise OptionsError(f"{key}: {value!r} is no number above 0")
    return int(value)


def _seconds(values: Mapping[str, Any], key: str, default: float, most: int) -> float:
    """Read what may be a fraction."""
    value = str(values.get(key, default))
    try:
        found = float(value)
    except ValueError:
        found = -1.0
    if not 0 <= found <= most:
        raise OptionsError(f"{key}: {value!r} is no number from 0 to {most}")
    return found


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
