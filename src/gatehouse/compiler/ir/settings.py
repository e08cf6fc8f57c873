"""IR of traffic settings: limits, timeouts, buffers and load balancing.

None, or an empty value, always means the default of the proxy.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from gatehouse.dataplane.origin import NO_ORIGIN, Origin


class Sourced(msgspec.Struct, frozen=True, kw_only=True):
    """Settings whose sources are known."""

    sources: tuple[tuple[str, Origin], ...] = ()
    """Fields of this structure that are set, each with the field of the object that sets it."""

    def source(self, field: str) -> Origin:
        """Return the field of an object that sets ``field``."""
        return next((origin for name, origin in self.sources if name == field), NO_ORIGIN)

    @property
    def objects(self) -> tuple[Origin, ...]:
        """The objects that set any field."""
        return tuple(dict.fromkeys(origin.whole for _, origin in self.sources))


class ClientSettings(Sourced, frozen=True):
    """Limits towards clients. Sizes in bytes, times in seconds."""

    body_size: int | None = None
    """Maximum size of a request body; 0: unlimited."""
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
    """Minimum time that an idle connection stays open, even if the proxy would close it earlier."""


class Buffers(msgspec.Struct, frozen=True):
    """Number and size in bytes of the buffers for a response."""

    number: int
    size: int


class ProxySettings(Sourced, frozen=True):
    """Reading of backend responses. Sizes in bytes, timeouts in seconds between two operations."""

    buffering: bool | None = None
    buffer_size: int | None = None
    """Size of the buffer for response headers."""
    buffers: Buffers | None = None
    busy_buffers_size: int | None = None
    """Maximum size of the buffers that may be in transit to the client."""
    connect: float | None = None
    send: float | None = None
    read: float | None = None


class Attribute(msgspec.Struct, frozen=True):
    """A request attribute by its NGINX variable name: ``binary_remote_addr``, ``http_x_user``."""

    name: str


class RateLimit(msgspec.Struct, frozen=True):
    """Maximum number of requests per second or minute for each value of a key."""

    name: str
    """Identifies the counters: limits of the same name share them."""
    key: tuple[str | Attribute, ...]
    rate: int
    per: Literal["second", "minute"]
    memory: int
    """Size in bytes of the memory for all counters."""
    burst: int = 0
    """Number of excess requests that may wait."""
    delay: int | None = 0
    """Number of excess requests that are not delayed; None: no request is delayed."""
    origin: Origin = NO_ORIGIN
    """The rule of a policy."""


class RateLimits(msgspec.Struct, frozen=True):
    """Rate limits of a route. A request must meet all of them."""

    limits: tuple[RateLimit, ...] = ()
    log_level: Literal["", "info", "notice", "warn", "error"] = ""
    status: int | None = None
    """Status of the response to a rejected request."""
    dry_run: bool | None = None


class Settings(msgspec.Struct, frozen=True):
    """All settings of a virtual host or route."""

    client: ClientSettings = ClientSettings()
    proxy: ProxySettings = ProxySettings()
    rates: RateLimits = RateLimits()


class Balancing(msgspec.Struct, frozen=True):
    """Choice of the endpoint for a request."""

    method: Literal[
        "round-robin", "least-connections", "client-hash", "hash", "random", "least-time"
    ] = "round-robin"
    """``client-hash`` hashes the address of the client, ``hash`` the attribute of the settings."""
    consistent: bool = False
    """True: a change of the endpoints moves few keys (``hash``)."""
    choice: Literal["", "any", "least-connections", "least-time"] = ""
    """Choice between two random endpoints (``random``); empty: one is drawn."""
    response: Literal["", "header", "whole"] = ""
    """Measured time: until the response header, or until the end of the response."""
    in_flight: bool = False
    """True: requests without a response count, too (``least-time``)."""

    @property
    def timed(self) -> bool:
        """True if response times are compared."""
        return bool(self.response)


class UpstreamSettings(Sourced, frozen=True):
    """Load balancing and keep-alive connections of a cluster."""

    balancing: Balancing | None = None
    key: Attribute | None = None
    """Attribute that is hashed."""
    connections: int | None = None
    """Maximum number of idle connections; 0: none."""
    requests: int | None = None
    lifetime: float | None = None
    idle: float | None = None
    memory: int | None = None
    """Size in bytes of the memory in which NGINX workers share the state of endpoints."""

    @property
    def effective_balancing(self) -> Balancing:
        """The choice of endpoints: round robin unless it is set."""
        return self.balancing or Balancing()


class ClientAddress(msgspec.Struct, frozen=True):
    """Source of the client address, and the peers that are trusted to supply it."""

    source: Literal["proxy-protocol", "x-forwarded-for"]
    trusted: tuple[str, ...] = ()
    """IP addresses and CIDR ranges."""
    recursive: bool = False
    """True: the client address is the last address in the header that is not trusted."""


class Compression(Sourced, frozen=True):
    """Response compression with gzip."""

    level: int | None = None
    min_length: int | None = None
    """Minimum size in bytes of a compressed response."""
    types: tuple[str, ...] = ()
    buffers: Buffers | None = None
    vary: bool | None = None
    http_version: str = ""
    """Minimum HTTP version of the request."""
    disabled: tuple[str, ...] = ()
    """Patterns of user agents whose responses are not compressed."""
    proxied: tuple[str, ...] = ()
    """Proxied requests that are compressed: parameters of NGINX's ``gzip_proxied``."""


class DataPlaneSettings(Sourced, frozen=True):
    """Settings of all ports of a data plane."""

    ipv4: bool = True
    ipv6: bool = True
    http2: bool = True
    sni_host_validation: bool = True
    """Reject requests whose Host does not match the listener selected by SNI (421)."""
    removed_headers: tuple[str, ...] = ()
    """Default headers, lower case, that are not sent to backends; ``*``: none is sent."""
    client_address: ClientAddress | None = None
    origins: tuple[Origin, ...] = ()
    """Objects with these settings, those that override others last."""
    exposes_version: bool = False
    """True: responses include the version of the proxy."""
    compression: Compression | None = None


class UsageReports(msgspec.Struct, frozen=True):
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


class Snippet(msgspec.Struct, frozen=True):
    """Raw configuration in the syntax of the proxy. Only trusted users may write it."""

    origin: Origin
    context: Literal["main", "http", "http.server", "http.server.location"]
    text: str
