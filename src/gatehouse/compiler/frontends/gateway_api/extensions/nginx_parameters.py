"""Settings of a data plane that exist for NGINX only. No I/O."""

from __future__ import annotations

from gatehouse.apis import data_plane_parameters as api
from gatehouse.compiler.frontends.gateway_api.extensions import nginx_values
from gatehouse.compiler.frontends.gateway_api.extensions.policy_fields import FieldParser
from gatehouse.compiler.ir.proxy_settings import NginxSettings

_ERROR_LEVELS = ("debug", "info", "notice", "warn", "error", "crit", "alert", "emerg")
MAX_WORKER_CONNECTIONS = 65_535
MAX_ZONE_BYTES = 256 << 20
"""Maximum size in bytes of a shared memory zone in parameters of a GatewayClass."""


def parse_nginx_settings(parse: FieldParser, spec: api.ParametersSpec) -> NginxSettings:
    """Return the settings of NGINX. Problems go to ``parse``."""
    settings = NginxSettings(
        exposes_version=spec.server_tokens == "on",
        error_level=_error_level(parse, spec.logging),
        connections_per_worker=spec.connections_per_worker,
        zone_bytes=parse("zoneSize", nginx_values.size, spec.zone_size),
    )
    if (settings.zone_bytes or 0) > MAX_ZONE_BYTES:
        parse.problems.append("spec.zoneSize: must be at most 256m")
    if spec.server_tokens not in (None, "on", "off"):
        parse.problems.append("spec.serverTokens: must be on or off: other values need NGINX Plus")
    if not 1 <= (spec.connections_per_worker or 1) <= MAX_WORKER_CONNECTIONS:
        parse.problems.append(f"spec.workerConnections: must be from 1 to {MAX_WORKER_CONNECTIONS}")
    return settings


def _error_level(parse: FieldParser, requested: api.LoggingSpec | None) -> str:
    level = (requested.error_level or "") if requested is not None else ""
    if level and level not in _ERROR_LEVELS:
        parse.problems.append(f"spec.logging.errorLevel: {level!r} is not supported")
        return ""
    return level
