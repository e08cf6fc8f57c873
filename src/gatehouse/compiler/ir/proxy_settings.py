"""IR of settings that exist for one proxy only, in structures named after it.

Most are the field ``nginx`` or ``envoy`` of proxy-neutral settings. None, or an empty value, means
the default of the proxy. Sizes are in bytes, times in seconds.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from gatehouse.dataplane.origin import Origin


class ProxyOnly(msgspec.Struct, frozen=True, kw_only=True):
    """Settings for one proxy."""


class Buffers(msgspec.Struct, frozen=True):
    """Number and size in bytes of buffers."""

    number: int
    size: int


class NginxClientSettings(ProxyOnly, frozen=True):
    """Limits of NGINX towards clients of a route. Envoy has them for a whole listener at most."""

    body_buffer: int | None = None
    body_timeout: float | None = None
    """Timeout between two reads of a request body."""
    requests: int | None = None
    """Maximum number of requests on one connection."""
    lifetime: float | None = None
    """Maximum age of a connection that still accepts requests."""
    idle: float | None = None
    """Timeout of an idle keep-alive connection; 0: keep-alive is disabled."""
    keepalive_header_timeout: float | None = None
    """Timeout announced to clients in the ``Keep-Alive`` header, in place of ``idle``."""
    keepalive_min_timeout: float | None = None
    """Minimum time that an idle connection stays open, even if NGINX would close it earlier."""


class EnvoyClientSettings(ProxyOnly, frozen=True):
    """Limits of Envoy towards clients of a route."""

    whole_body: int | None = None
    """Maximum size of a body that Envoy may hold in memory to learn its length. Set with the
    maximum size of a body."""


class NginxClientAddress(ProxyOnly, frozen=True):
    """Client address from a header at NGINX."""

    recursive: bool = False
    """True: the client address is the last address in the header that is not trusted, as always at
    Envoy."""


class NginxResponseSettings(ProxyOnly, frozen=True):
    """Reading of backend responses by NGINX."""

    buffering: bool | None = None
    buffer_size: int | None = None
    """Size of the buffer for response headers."""
    buffers: Buffers | None = None
    busy_buffers_size: int | None = None
    """Maximum size of the buffers that may be in transit to the client."""
    connect: float | None = None
    """Timeout of a connection attempt. Envoy has it for a whole cluster."""


class NginxRateLimits(ProxyOnly, frozen=True):
    """Rate limits of NGINX."""

    log_level: Literal["", "info", "notice", "warn", "error"] = ""
    """Level of messages about rejected requests."""
    log_level_fields: tuple[Origin, ...] = ()
    """The fields that set it."""


class NginxUpstreamSettings(ProxyOnly, frozen=True):
    """Upstreams of NGINX."""

    memory: int | None = None
    """Size of the memory in which NGINX workers share the state of endpoints."""


class NginxCompression(ProxyOnly, frozen=True):
    """Response compression by NGINX."""

    buffers: Buffers | None = None
    vary: bool | None = None
    http_version: str = ""
    """Minimum HTTP version of the request."""
    disabled: tuple[str, ...] = ()
    """Patterns of user agents whose responses are not compressed."""
    proxied: tuple[str, ...] = ()
    """Proxied requests that are compressed: parameters of ``gzip_proxied``."""


class NginxUsageReports(msgspec.Struct, frozen=True):
    """Licence and usage reporting of NGINX Plus. Paths are those of the data plane."""

    license: str
    """Path of the licence token."""
    state: str
    """Directory for state that must survive a reload."""
    endpoint: str = ""
    """``host[:port]`` of the reporting endpoint; empty: that of F5."""
    resolver: tuple[str, ...] = ()
    """Name servers as ``host[:port]``; empty: those of the system."""
    proxy: str = ""
    """``host:port`` of an HTTP proxy; empty: none."""
    verified: bool = True
    """True: the certificate of the endpoint is verified."""
    trust: str = ""
    """Path of the CA certificates for the endpoint; empty: those of the system."""
    certificate: str = ""
    """Path of the client certificate; empty: none."""
    key: str = ""
    enforce_initial_report: bool = True
    """True: NGINX serves no traffic before its first report was accepted."""


class NginxSettings(ProxyOnly, frozen=True):
    """NGINX of a data plane."""

    exposes_version: bool = False
    """True: responses include the version of NGINX."""
    error_level: str = ""
    """Lowest level of messages about requests that NGINX logs; empty for the default."""
    connections_per_worker: int | None = None
    """Maximum number of connections of a worker process, to clients and to backends."""
    zone_bytes: int | None = None
    """Size of each upstream's shared memory; None for the default."""


class NginxSnippet(msgspec.Struct, frozen=True):
    """Raw configuration in the syntax of NGINX. Only trusted users may write it."""

    origin: Origin
    context: Literal["main", "http", "http.server", "http.server.location"]
    text: str
