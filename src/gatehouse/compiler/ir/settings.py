"""IR of traffic settings: limits, timeouts and load balancing.

None, or an empty value, always means the default of the proxy. What exists for one proxy only is in
a section of it (:mod:`gatehouse.compiler.ir.proxy_settings`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Self

import msgspec

from gatehouse.compiler.ir.access_log import AccessLog
from gatehouse.compiler.ir.proxy_settings import (
    EnvoyClientSettings,
    NginxClientAddress,
    NginxClientSettings,
    NginxCompression,
    NginxRateLimits,
    NginxResponseSettings,
    NginxSettings,
    NginxUpstreamSettings,
)
from gatehouse.compiler.ir.tracing import TraceExport, Tracing
from gatehouse.dataplane.origin import NO_ORIGIN, Origin


class Sourced(msgspec.Struct, frozen=True, kw_only=True):
    """Settings whose sources are known."""

    sources: tuple[tuple[str, Origin], ...] = ()
    """Paths of the fields that are set, such as ``idle`` or ``nginx.idle``, each with the field of
    the object that sets it."""

    def source(self, field: str) -> Origin:
        """Return the field of an object that sets the field at a path."""
        return next((origin for name, origin in self.sources if name == field), NO_ORIGIN)

    @property
    def objects(self) -> tuple[Origin, ...]:
        """The objects that set any field."""
        return tuple(dict.fromkeys(origin.whole for _, origin in self.sources))

    def without(self, removed: Callable[[Origin], bool]) -> Self:
        """Return the settings without the fields whose source is removed; itself without any."""
        paths = [path for path, origin in self.sources if removed(origin)]
        if not paths:
            return self
        defaults, values = type(self)(), dict[str, Any]()
        for path in paths:
            section, _, name = path.rpartition(".")
            if section:
                default = getattr(getattr(defaults, section), name)
                known = values.get(section, getattr(self, section))
                values[section] = msgspec.structs.replace(known, **{name: default})
            else:
                values[name] = getattr(defaults, name)
        sources = tuple(item for item in self.sources if item[0] not in paths)
        return msgspec.structs.replace(self, **values, sources=sources)


class ClientSettings(Sourced, frozen=True):
    """Limits towards clients. Sizes in bytes."""

    body_size: int | None = None
    """Maximum size of a request body; 0: unlimited."""
    nginx: NginxClientSettings = NginxClientSettings()
    envoy: EnvoyClientSettings = EnvoyClientSettings()


class ProxySettings(Sourced, frozen=True):
    """Reading of backend responses. Timeouts in seconds between two operations."""

    send: float | None = None
    read: float | None = None
    nginx: NginxResponseSettings = NginxResponseSettings()


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
    """Limits that each instance of a data plane counts on its own."""
    status: int | None = None
    """Status of the response to a rejected request."""
    dry_run: bool | None = None
    nginx: NginxRateLimits = NginxRateLimits()
    shared: tuple[RateLimit, ...] = ()
    """Limits that all data planes count together."""

    @property
    def rules(self) -> tuple[RateLimit, ...]:
        """All limits."""
        return (*self.limits, *self.shared)


HTML = "text/html"
"""Media type that compression always includes. NGINX cannot exclude it."""


class Compression(Sourced, frozen=True):
    """Response compression with gzip, of a data plane or of a route."""

    enabled: bool | None = None
    """Of a route: whether responses are compressed. None: as the data plane does it."""
    level: int | None = None
    min_length: int | None = None
    """Minimum size in bytes of a compressed response."""
    types: tuple[str, ...] = ()
    nginx: NginxCompression = NginxCompression()


class SettingSections(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that both policies and routes have."""

    client: ClientSettings = ClientSettings()
    proxy: ProxySettings = ProxySettings()
    rates: RateLimits = RateLimits()
    compression: Compression = Compression()

    @property
    def sections(self) -> dict[str, Sourced]:
        """The settings whose sources are known, by the name of their field."""
        return {
            name: section
            for name in self.__struct_fields__
            if isinstance(section := getattr(self, name), Sourced)
        }


class Settings(SettingSections, frozen=True, kw_only=True):
    """All settings of a virtual host or route."""

    tracing: Tracing | None = None
    """None: requests are not traced."""


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


class RetryBudget(msgspec.Struct, frozen=True):
    """Limit of the retries to a cluster, of all routes together: the larger of both numbers."""

    percent: int
    """Share of its requests that may be retries."""
    min_per_second: float
    """Retries per second that are permitted in any case."""


class CircuitBreaker(msgspec.Struct, frozen=True):
    """Limits of a cluster, of all routes and endpoints together; None: there is none."""

    connections: int | None = None
    pending: int | None = None
    """Requests that wait for a connection."""
    requests: int | None = None
    """Requests without a complete response."""


class PassiveChecks(msgspec.Struct, frozen=True):
    """Ejection of endpoints that requests do not reach: they get none for a time."""

    failures: int
    """Number of failed connections and timeouts."""
    ejection: float
    """Seconds without requests: whole ones."""


MAX_CHECKED_ENDPOINTS = 100
"""Maximum number of endpoints of a cluster that are checked: Envoy does this in one thread."""


class ActiveChecks(msgspec.Struct, frozen=True):
    """Requests of the proxy itself that find out which endpoints work. Times in seconds."""

    path: str
    interval: float
    timeout: float
    failures: int
    """Number of failed checks, one after the other, after which an endpoint gets no requests."""
    successes: int
    """Number of good checks, one after the other, after which it gets requests again."""


class UpstreamSettings(Sourced, frozen=True):
    """Load balancing, connections and limits of a cluster."""

    balancing: Balancing | None = None
    key: Attribute | None = None
    """Attribute that is hashed."""
    connections: int | None = None
    """Maximum number of idle connections; 0: none."""
    requests: int | None = None
    lifetime: float | None = None
    idle: float | None = None
    retry_budget: RetryBudget | None = None
    """None: retries are not limited."""
    breaker: CircuitBreaker | None = None
    endpoint_connections: int | None = None
    """Maximum number of connections to one endpoint that are in use; None: not limited."""
    passive_checks: PassiveChecks | None = None
    """None: no endpoint is ejected."""
    active_checks: ActiveChecks | None = None
    """None: the proxy itself sends no requests."""
    nginx: NginxUpstreamSettings = NginxUpstreamSettings()

    @property
    def effective_balancing(self) -> Balancing:
        """The choice of endpoints: round robin unless it is set."""
        return self.balancing or Balancing()


class ClientAddress(msgspec.Struct, frozen=True):
    """Source of the client address, and the peers that are trusted to supply it."""

    source: Literal["proxy-protocol", "x-forwarded-for"]
    trusted: tuple[str, ...] = ()
    """IP addresses and CIDR ranges."""
    nginx: NginxClientAddress = NginxClientAddress()


class DataPlaneSettings(Sourced, frozen=True):
    """Settings of all ports of a data plane."""

    ipv4: bool = True
    ipv6: bool = True
    http2: bool = True
    sni_host_validation: bool = True
    """Reject requests whose Host does not match the listener selected by SNI (421)."""
    merge_slashes: bool = True
    """Merge repeated slashes of paths, and decode encoded ones, before routes are compared.
    Backends get the same path."""
    header_bytes: int | None = None
    """Maximum size of the headers of a request."""
    removed_headers: tuple[str, ...] = ()
    """Default headers, lower case, that are not sent to backends; ``*``: none is sent."""
    client_address: ClientAddress | None = None
    origins: tuple[Origin, ...] = ()
    """Objects with these settings, those that override others last."""
    compression: Compression | None = None
    access_log: AccessLog | None = AccessLog()
    """Log of requests and connections; None: nothing is logged."""
    traces: TraceExport | None = None
    """Export of traces; None: no request is traced."""
    nginx: NginxSettings = NginxSettings()


class NameResolution(msgspec.Struct, frozen=True):
    """Name servers that a proxy asks for the addresses of external names. Times in seconds."""

    addresses: tuple[str, ...]
    """IP addresses, at least one."""
    timeout: float | None = None
    """Timeout of a lookup."""
    cache_ttl: float | None = None
    """Time for which addresses are cached; None: the TTL of the DNS response."""
    ipv6: bool = True
    """True: IPv6 addresses are looked up, too."""
