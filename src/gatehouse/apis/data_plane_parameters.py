"""Parameters of a data plane: the spec that NginxProxy and GatewayParameters share."""

from __future__ import annotations

from typing import Any

import msgspec

from gatehouse.apis.gateway import ObjectReference
from gatehouse.apis.meta import View


class BuffersSpec(View, frozen=True):
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


class CompressionSpec(View, frozen=True):
    """Compression of responses."""

    level: int | None = None
    min_length: int | None = None
    mime_types: tuple[str, ...] = ()
    buffers: BuffersSpec | None = None
    gzip: GzipSettings = GzipSettings()


class ResolverAddress(View, frozen=True):
    """Address of a name server."""

    type: str
    value: str


class DnsResolverSpec(View, frozen=True):
    """Name servers for the names of ExternalName Services."""

    addresses: tuple[ResolverAddress, ...] = ()
    timeout: str | None = None
    cache_ttl: str | None = msgspec.field(default=None, name="cacheTTL")
    disable_ipv6: bool | None = msgspec.field(default=None, name="disableIPv6")


class LoggingSpec(View, frozen=True):
    """Logging settings."""

    agent_level: str | None = None
    error_level: str | None = None
    access_log: dict[str, Any] | None = None
    """Only NginxProxy's CRD has ``escape`` and ``errorLevel``, and any ``format``."""


class SpanAttributeSpec(View, frozen=True):
    """An attribute of a span."""

    key: str
    value: str


class ExporterTlsSpec(View, frozen=True):
    """TLS to the collector of an endpoint with ``https://``."""

    ca_certificate_refs: tuple[ObjectReference, ...] = ()
    client_certificate_ref: ObjectReference | None = None


class TraceExporterSpec(View, frozen=True):
    """Export of spans to a collector."""

    endpoint: str | None = None
    interval: str | None = None
    batch_size: int | None = None
    batch_count: int | None = None
    tls: ExporterTlsSpec | None = None
    """Belongs to the endpoint of the same object."""


class TelemetrySpec(View, frozen=True):
    """Traces of requests."""

    disabled_features: tuple[str, ...] | None = None
    exporter: TraceExporterSpec | None = None
    service_name: str | None = None
    span_attributes: tuple[SpanAttributeSpec, ...] | None = None


class ParametersSpec(View, frozen=True):
    """``spec`` of NginxProxy and GatewayParameters. Only NginxProxy's CRD has ``useClusterIP``,
    ``zoneSize`` and ``serverTokens``, and only GatewayParameters' has ``pathNormalization``."""

    ip_family: str | None = None
    path_normalization: str | None = None
    disable_http2: bool | None = msgspec.field(default=None, name="disableHTTP2")
    disable_sni_host_validation: bool | None = msgspec.field(
        default=None, name="disableSNIHostValidation"
    )
    disable_base_headers: tuple[str, ...] = ()
    use_cluster_ip: bool | None = msgspec.field(default=None, name="useClusterIP")
    zone_size: str | None = None
    server_tokens: str | None = None
    rewrite_client_ip: RewriteClientIp | None = msgspec.field(default=None, name="rewriteClientIP")
    compression: CompressionSpec | None = None
    logging: LoggingSpec | None = None
    dns_resolver: DnsResolverSpec | None = None
    telemetry: TelemetrySpec | None = None
    metrics: dict[str, Any] | None = None
    connections_per_worker: int | None = msgspec.field(default=None, name="workerConnections")
    waf: dict[str, Any] | None = None
    nginx_plus: dict[str, Any] | None = None
    """This field and the three before it are in NginxProxy's CRD only."""
    resource_limits: dict[str, Any] | None = None
    """Ceilings of what objects may claim of the data plane, by name."""
    kubernetes: dict[str, Any] | None = None
    """A :class:`~gatehouse.apis.data_plane_workload.Workload` as written, to merge over another."""
