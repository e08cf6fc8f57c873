"""Parameters of a data plane: the spec that NginxProxy and GatewayParameters share."""

from __future__ import annotations

from typing import Any

import msgspec

from gatehouse.apis.meta import View


class Buffers(View, frozen=True):
    """Response buffers."""

    number: int
    size: str


class TrustedAddress(View, frozen=True):
    """A trusted source of client addresses."""

    type: str
    value: str


class RewriteClientIp(View, frozen=True):
    """Source of the client address."""

    mode: str | None = None
    set_ip_recursively: bool | None = msgspec.field(default=None, name="setIPRecursively")
    trusted_addresses: tuple[TrustedAddress, ...] = ()


class GzipSettings(View, frozen=True):
    """Settings specific to gzip."""

    vary: bool | None = None
    http_version: str | None = None
    disable: tuple[str, ...] = ()
    proxied: tuple[str, ...] = ()


class Compression(View, frozen=True):
    """Compression of responses."""

    level: int | None = None
    min_length: int | None = None
    mime_types: tuple[str, ...] = ()
    buffers: Buffers | None = None
    gzip: GzipSettings = GzipSettings()


class Logging(View, frozen=True):
    """Logging settings."""

    agent_level: str | None = None


class ParametersSpec(View, frozen=True):
    """``spec`` of NginxProxy and GatewayParameters. Only NginxProxy's CRD has ``useClusterIP``,
    ``zoneSize`` and ``serverTokens``."""

    ip_family: str | None = None
    disable_http2: bool | None = msgspec.field(default=None, name="disableHTTP2")
    disable_sni_host_validation: bool | None = msgspec.field(
        default=None, name="disableSNIHostValidation"
    )
    disable_base_headers: tuple[str, ...] = ()
    use_cluster_ip: bool | None = msgspec.field(default=None, name="useClusterIP")
    zone_size: str | None = None
    server_tokens: str | None = None
    rewrite_client_ip: RewriteClientIp | None = msgspec.field(default=None, name="rewriteClientIP")
    compression: Compression | None = None
    logging: Logging | None = None
    kubernetes: dict[str, Any] | None = None
    """A :class:`~gatehouse.apis.data_plane_workload.Workload` as written, to merge over another."""
