"""Agent options: command line flags, environment variables and a YAML file, in this precedence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from gatehouse.agent.liveness import LivenessPolicy
from gatehouse.agent.timeouts import DRAIN_SECONDS, MAX_DRAIN_SECONDS
from kube_base.runtime.time_limits import scaled

CONFIG_DIR = "/etc/nginx"
"""Directory of NGINX's files as the control plane names them."""

_NGINX_AGENT_KEYS = (
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
    "probe_period_seconds",
    "probe_failure_threshold",
    "hang_kill_seconds",
    "gateway",
)

KEYS: Mapping[str, str] = {
    **{key: f"NGINX_AGENT_{key.upper().replace('.', '_')}" for key in _NGINX_AGENT_KEYS},
    **{f"gatehouse.{name}": f"GATEHOUSE_AGENT_{name.upper()}" for name in _OWN},
    "gatehouse.log_format": "GATEHOUSE_LOG_FORMAT",
    "gatehouse.pod_name": "POD_NAME",
    "gatehouse.pod_namespace": "POD_NAMESPACE",
    "gatehouse.pod_uid": "POD_UID",
}
"""Keys of the YAML file (those of NGINX Agent, then Gatehouse's), with their environment variables.
"""

_FEATURES = frozenset({"configuration"})
"""Features of NGINX Agent that this agent has. Metrics are scraped, not pushed."""

MAX_SHUTDOWN_DELAY_SECONDS = 60

MIN_PROBE_PERIOD_SECONDS, MAX_PROBE_PERIOD_SECONDS = 0.1, 60
MAX_HANG_KILL_SECONDS = 3600

_LEVELS = {"warn": "warning", "panic": "error", "fatal": "error"}
"""Log levels of NGINX Agent that have another name here."""


PROBE_BINARY_SECONDS = scaled(10.0)
"""Timeout in seconds of a proxy's binary that prints its version or tests a module."""


class AgentOptionsError(ValueError):
    """An option is missing or invalid. The message names it."""


class ProxyMissingError(RuntimeError):
    """No usable NGINX or Envoy was found. The message names the searched paths."""


class AgentOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of one agent."""

    server_host: str
    server_port: int
    token: str = ""
    """Token that does not change. Ignored if `token_path` is set."""
    token_path: Path | None = None
    """File with the token. Read again when it changes."""
    ca: Path | None = None
    """PEM file that verifies the server certificate. None: the system's CA certificates if TLS is
    used.
    """
    cert: Path | None = None
    key: Path | None = None
    """Client certificate and key: both or none. Read for each connection, like `ca`."""
    server_name: str = ""
    """Name expected in the server certificate. Empty: `server_host`."""
    labels: Mapping[str, str] = {}
    """Labels sent as metadata of every call, as NGINX Agent does."""
    log_level: str = ""
    """One of debug, info, warning, error. Empty: not set."""
    log_format: str = ""
    """One of auto, text, json, console. Empty: not set."""
    allowed_directories: tuple[str, ...] = (CONFIG_DIR,)
    """Directories for files, as the control plane names them. Files elsewhere are rejected."""
    treat_warnings_as_errors: bool = False
    """True if a configuration is rejected if `nginx -t` prints a warning."""
    root: Path = Path("/var/lib/gatehouse")
    """Directory of configurations, which must survive restarts."""
    run_dir: Path = Path("/var/run/gatehouse")
    """Directory of sockets, PID file, logs and temporary files."""
    health_address: str = ""
    """`host:port` of /livez, /readyz and /metrics. Empty: not served."""
    proxy: str = "nginx"
    """Proxy to run: `nginx` or `envoy`."""
    nginx: str | None = None
    """Path of the NGINX binary. None: see
    :func:`~gatehouse.agent.nginx.binary.find_nginx_binary`.
    """
    envoy: str | None = None
    """Path of the Envoy binary. None: see
    :func:`~gatehouse.agent.envoy.binary.find_envoy_binary`.
    """
    max_connections: int = 50_000
    """Maximum number of client connections to Envoy. Further ones are closed at once."""
    workers: str = "auto"
    """Number of NGINX worker processes or Envoy threads, or `auto`."""
    shutdown_delay_seconds: float = 0.0
    """Minimum time in seconds for accepting new connections after SIGTERM, because clients and load
    balancers may learn of the shutdown late.
    """
    drain_seconds: float = DRAIN_SECONDS
    """Maximum time in seconds for connections to finish after that."""
    liveness: LivenessPolicy = LivenessPolicy()
    """Probes of the proxy."""
    gateway: str = ""
    """Name of the Gateway in the Pod's namespace. With the Pod fields, a label of the metrics."""
    pod_name: str = ""
    pod_namespace: str = ""
    pod_uid: str = ""
    ignored: tuple[str, ...] = ()
    """Unsupported settings: keys, and `features.<name>`."""

    @property
    def metric_labels(self) -> dict[str, str]:
        """Return the labels of all metrics."""
        return {"namespace": self.pod_namespace, "pod": self.pod_name, "gateway": self.gateway}

    @property
    def tls(self) -> bool:
        """Return whether the connection uses TLS."""
        return self.ca is not None or self.cert is not None or bool(self.server_name)


def options_from_environment(environ: Mapping[str, str]) -> AgentOptions:
    """Build options from environment variables alone; raises :class:`OptionsError`."""
    return load_options(environ)


def load_options(
    environ: Mapping[str, str],
    *,
    file: Path | None = None,
    flags: Mapping[str, str] | None = None,
) -> AgentOptions:
    """Build options from ``flags`` (keyed like :data:`KEYS`), environment and YAML ``file``.

    Raises :class:`OptionsError`.
    """
    values = _from_file(file) if file is not None else {}
    values.update({key: environ[name] for key, name in KEYS.items() if environ.get(name)})
    values.update({key: value for key, value in (flags or {}).items() if value})
    return _checked(_build(values))


def _from_file(file: Path) -> dict[str, Any]:
    import yaml  # imported here because most agents have no file

    try:
        tree = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise AgentOptionsError(f"{file}: {error}") from error
    if not isinstance(tree, dict):
        raise AgentOptionsError(f"{file}: must be a mapping")
    return dict(_leaves("", tree))


def _leaves(prefix: str, tree: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict) and key not in KEYS:
            yield from _leaves(f"{key}.", value)
        elif value is not None:
            yield key, value


def _build(values: Mapping[str, Any]) -> AgentOptions:
    def text(key: str, default: str = "") -> str:
        return str(values.get(key, default))

    def path(key: str) -> Path | None:
        return Path(text(key)) if text(key) else None

    host = text("command.server.host")
    if not host:
        raise AgentOptionsError("command.server.host: required")
    level = text("log.level").lower()
    features = _list(values.get("features", "configuration"))
    _reject_unsupported(values, features)
    return AgentOptions(
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
        allowed_directories=_list(values.get("allowed_directories", CONFIG_DIR)),
        treat_warnings_as_errors=_bool(values, "data_plane_config.nginx.treat_warnings_as_errors"),
        root=Path(text("gatehouse.state_dir", "/var/lib/gatehouse")).absolute(),
        run_dir=Path(text("gatehouse.run_dir", "/var/run/gatehouse")).absolute(),
        health_address=text("gatehouse.health_bind_address"),
        proxy=_proxy(text("gatehouse.proxy", "nginx")),
        nginx=text("gatehouse.nginx") or None,
        envoy=text("gatehouse.envoy") or None,
        max_connections=_positive(values, "gatehouse.max_connections", 50_000),
        workers=_workers(text("gatehouse.workers", "auto")),
        shutdown_delay_seconds=_seconds(
            values, "gatehouse.shutdown_delay_seconds", 0, MAX_SHUTDOWN_DELAY_SECONDS
        ),
        drain_seconds=_seconds(values, "gatehouse.drain_seconds", DRAIN_SECONDS, MAX_DRAIN_SECONDS),
        liveness=_liveness(values),
        gateway=text("gatehouse.gateway"),
        pod_name=text("gatehouse.pod_name"),
        pod_namespace=text("gatehouse.pod_namespace"),
        pod_uid=text("gatehouse.pod_uid"),
        ignored=(
            *(key for key in values if key not in KEYS),
            *(f"features.{name}" for name in features if name not in _FEATURES),
        ),
    )


def _reject_unsupported(values: Mapping[str, Any], features: tuple[str, ...]) -> None:
    """Raise AgentOptionsError for settings that would change the agent. Others are ignored."""
    if str(values.get("command.server.type", "grpc")).lower() != "grpc":
        raise AgentOptionsError("command.server.type: not supported, must be grpc")
    if _bool(values, "command.tls.skip_verify"):
        raise AgentOptionsError("command.tls.skip_verify: not supported, must be false")
    if "configuration" not in features:
        raise AgentOptionsError("features: must include 'configuration'")


def _checked(options: AgentOptions) -> AgentOptions:
    if (options.token or options.token_path is not None) and not options.tls:
        raise AgentOptionsError("command.auth.tokenpath: requires TLS, set command.tls.ca")
    if (options.cert is None) is not (options.key is None):
        raise AgentOptionsError("command.tls.cert: must be set together with command.tls.key")
    if options.log_level not in ("", "debug", "info", "warning", "error"):
        raise AgentOptionsError(
            f"log.level: {options.log_level!r} must be debug, info, warning or error"
        )
    if options.log_format not in ("", "auto", "text", "json", "console"):
        raise AgentOptionsError(
            f"gatehouse.log_format: {options.log_format!r} must be auto, text, json or console"
        )
    for directory in options.allowed_directories:
        if not directory.startswith("/") or directory == "/" or ".." in directory.split("/"):
            raise AgentOptionsError(
                f"allowed_directories: {directory!r} must be an absolute path without '..'"
            )
    for name, path in (("state_dir", options.root), ("run_dir", options.run_dir)):
        if any(character in str(path) for character in "\"\\$'\r\n;{}"):
            raise AgentOptionsError(
                f"gatehouse.{name}: {path} must not have characters that are special to NGINX"
            )
    return options


def _bool(values: Mapping[str, Any], key: str) -> bool:
    value = str(values.get(key, "false")).lower()
    if value not in ("true", "false"):
        raise AgentOptionsError(f"{key}: {value!r} must be true or false")
    return value == "true"


def _list(value: Any) -> tuple[str, ...]:
    """Parse a list, which is comma-separated in environment variables and flags."""
    items = value if isinstance(value, list) else str(value).split(",")
    return tuple(str(item).strip().rstrip("/") or "/" for item in items if str(item).strip())


def _port(key: str, value: str) -> int:
    if not value.isdecimal() or not 0 < int(value) < 65536:
        raise AgentOptionsError(f"{key}: {value!r} must be a port number")
    return int(value)


def _proxy(value: str) -> str:
    if value not in ("nginx", "envoy"):
        raise AgentOptionsError(f"gatehouse.proxy: {value!r} must be nginx or envoy")
    return value


def _positive(values: Mapping[str, Any], key: str, default: int) -> int:
    value = str(values.get(key, default))
    if not value.isdecimal() or int(value) < 1:
        raise AgentOptionsError(f"{key}: {value!r} must be an integer above 0")
    return int(value)


def _seconds(values: Mapping[str, Any], key: str, default: float, maximum: int) -> float:
    """Parse a duration in seconds, which may have a fraction."""
    value = str(values.get(key, default))
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= maximum:
        raise AgentOptionsError(f"{key}: {value!r} must be a number from 0 to {maximum}")
    return seconds


def _liveness(values: Mapping[str, Any]) -> LivenessPolicy:
    default = LivenessPolicy()
    period, kill = "gatehouse.probe_period_seconds", "gatehouse.hang_kill_seconds"
    threshold = "gatehouse.probe_failure_threshold"
    policy = LivenessPolicy(
        _seconds(values, period, default.period_seconds, MAX_PROBE_PERIOD_SECONDS),
        _positive(values, threshold, default.failure_threshold),
        _seconds(values, kill, default.kill_seconds, MAX_HANG_KILL_SECONDS),
    )
    if 0 < policy.period_seconds < MIN_PROBE_PERIOD_SECONDS:
        raise AgentOptionsError(f"{period}: must be 0 or at least {MIN_PROBE_PERIOD_SECONDS}")
    if 0 < policy.kill_seconds < policy.period_seconds * policy.failure_threshold:
        raise AgentOptionsError(f"{kill}: must be 0 or at least {period} times {threshold}")
    return policy


def _workers(value: str) -> str:
    if value != "auto" and not (value.isdecimal() and int(value) > 0):
        raise AgentOptionsError(f"gatehouse.workers: {value!r} must be auto or an integer above 0")
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
            raise AgentOptionsError(f"labels: {pair!r} must be key=value")
        labels[key.strip()] = item.strip()
    return labels
