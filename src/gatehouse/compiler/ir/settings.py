"""Settings of traffic that policies give: how clients and backends are spoken to, how often.

None, or nothing, everywhere: the proxy's own default.
"""

from __future__ import annotations

from typing import Literal

import msgspec


class ClientSettings(msgspec.Struct, frozen=True):
    """Limits towards clients. Sizes in bytes, times in seconds."""

    body_size: int | None = None
    """The longest body that is taken; 0: any."""
    body_buffer: int | None = None
    body_timeout: float | None = None
    """Between two reads of a body."""
    requests: int | None = None
    """How many one connection may carry."""
    lifetime: float | None = None
    """How long one connection may carry requests."""
    idle: float | None = None
    """How long a connection is kept without a request; 0: not at all."""
    keepalive_header_timeout: float | None = None
    """What clients are told of ``idle``."""
    keepalive_min_timeout: float | None = None
    """How long a connection without a request is kept even when the proxy would rather end it."""
    policies: tuple[str, ...] = ()
    """For people: the objects that say so, as ``namespace/name``."""


class Buffers(msgspec.Struct, frozen=True):
    """How many buffers of which size in bytes an answer may fill."""

    number: int
    size: int


class ProxySettings(msgspec.Struct, frozen=True):
    """How answers of backends are read. Sizes in bytes, times in seconds between two steps."""

    buffering: bool | None = None
    buffer_size: int | None = None
    """Of the buffer for the head of an answer."""
    buffers: Buffers | None = None
    busy_buffers_size: int | None = None
    """Of buffers that may be on their way to the client at once."""
    connect: float | None = None
    send: float | None = None
    read: float | None = None
    policies: tuple[str, ...] = ()
    """For people: the objects that say so, as ``namespace/name``."""


class Attribute(msgspec.Struct, frozen=True):
    """An attribute of a request, named as NGINX does: ``binary_remote_addr``, ``http_x_user``."""

    name: str


class RateLimit(msgspec.Struct, frozen=True):
    """So many requests per second or minute for each value of a key."""

    name: str
    """Whose count it is: limits of one name share it."""
    key: tuple[str | Attribute, ...]
    rate: int
    per: Literal["second", "minute"]
    memory: int
    """Bytes for all counts."""
    burst: int = 0
    """How many more may wait."""
    delay: int | None = 0
    """How many of those do not wait; None: none of them waits."""


class RateLimits(msgspec.Struct, frozen=True):
    """All of the limits must be kept."""

    limits: tuple[RateLimit, ...] = ()
    log_level: Literal["", "info", "notice", "warn", "error"] = ""
    status: int | None = None
    """Of the answer to what is too much."""
    dry_run: bool | None = None


class Settings(msgspec.Struct, frozen=True):
    """Everything that is set for a virtual host or route."""

    client: ClientSettings = ClientSettings()
    proxy: ProxySettings = ProxySettings()
    rates: RateLimits = RateLimits()


class UpstreamSettings(msgspec.Struct, frozen=True):
    """How the endpoints of a cluster are chosen and kept connected."""

    balancing: str = ""
    """In NGINX's words: ``least_conn``, ``ip_hash``, ``hash consistent``, ``random two``…"""
    key: Attribute | None = None
    """What is hashed."""
    connections: int | None = None
    """Idle ones kept; 0: none."""
    requests: int | None = None
    lifetime: float | None = None
    idle: float | None = None
    memory: int | None = None
    """Bytes that workers share for what they know of the endpoints."""
    policies: tuple[str, ...] = ()
    """For people: the objects that say so, as ``namespace/name``."""


class ClientAddress(msgspec.Struct, frozen=True):
    """Where the address of a client is taken from, if those who say it may be believed."""

    source: Literal["proxy-protocol", "x-forwarded-for"]
    trusted: tuple[str, ...] = ()
    """Addresses, and networks in CIDR form."""
    recursive: bool = False
    """Whether of several addresses the last is taken that is not trusted itself."""


class Compression(msgspec.Struct, frozen=True):
    """Which answers are compressed with gzip, and how."""

    level: int | None = None
    min_length: int | None = None
    """Bytes of the shortest answer."""
    types: tuple[str, ...] = ()
    buffers: Buffers | None = None
    vary: bool | None = None
    http_version: str = ""
    """The least version of HTTP of a request."""
    disabled: tuple[str, ...] = ()
    """Patterns of user agents."""
    proxied: tuple[str, ...] = ()
    """Which requests that came by a proxy, in NGINX's words."""


class DataPlaneSettings(msgspec.Struct, frozen=True):
    """How a data plane meets its clients, on all of its ports."""

    ipv4: bool = True
    ipv6: bool = True
    http2: bool = True
    sni_host_validation: bool = True
    """Whether a request's host must belong to the listener of its TLS handshake."""
    removed_headers: tuple[str, ...] = ()
    """Headers, lower case, that backends are not told; ``*`` for all that they are else."""
    client_address: ClientAddress | None = None
    server_tokens: bool = False
    """Whether answers say which version of the proxy they are from."""
    compression: Compression | None = None


class UsageReports(msgspec.Struct, frozen=True):
    """The licence of NGINX Plus, and how it reports its use. Files are the data plane's own."""

    license: str
    """Path of the token."""
    state: str
    """A directory to keep what must outlive a reload."""
    endpoint: str = ""
    """``host[:port]``; empty: F5's."""
    resolver: tuple[str, ...] = ()
    """Name servers, ``host[:port]``; none: the system's."""
    proxy: str = ""
    """``host:port``; empty: none."""
    verified: bool = True
    """Whether the endpoint's certificate is checked."""
    trust: str = ""
    """Path of authorities for that; empty: the system's."""
    certificate: str = ""
    """Path of a certificate that is shown; empty: none."""
    key: str = ""
    enforce_initial_report: bool = True
    """Whether no traffic is served before a first report was taken."""


class Snippet(msgspec.Struct, frozen=True):
    """Raw text in the back end's own language, which only trusted users may write."""

    name: str
    """For people: ``Kind namespace/name``."""
    context: Literal["main", "http", "http.server", "http.server.location"]
    text: str
