"""IR of an external load balancer: its hosts and the desired servers of its upstreams."""

from __future__ import annotations

from typing import Literal

import msgspec

from gatehouse.compiler.ir.gateway import GatewayConfiguration, SecretBytes
from gatehouse.dataplane.upstream_name import UpstreamName


class UpstreamServer(msgspec.Struct, frozen=True):
    """A server of an upstream."""

    address: str
    """``host:port``, an IPv6 host in brackets."""
    draining: bool = False
    """True: the server gets no new clients."""


class ServerParameters(msgspec.Struct, frozen=True):
    """Parameters of all servers of an upstream; None: the default of the proxy."""

    weight: int | None = None
    max_conns: int | None = None
    max_fails: int | None = None
    fail_timeout: str | None = None
    slow_start: str | None = None


class UpstreamSet(msgspec.Struct, frozen=True):
    """Desired state of an upstream. Servers that are not listed are removed."""

    name: UpstreamName
    servers: tuple[UpstreamServer, ...]
    """Addresses are distinct."""
    parameters: ServerParameters = ServerParameters()


class HostTls(msgspec.Struct, frozen=True):
    """TLS to a host."""

    verify: bool = True
    trust: bytes = b""
    """CA certificates in PEM; empty: those of the system."""
    certificate: bytes = b""
    """Client certificate in PEM, leaf first; empty: none."""
    key: SecretBytes = SecretBytes(b"")
    server_name: str = ""


class Host(msgspec.Struct, frozen=True):
    """An NGINX Plus API endpoint."""

    url: str
    tls: HostTls = HostTls()
    authorization: SecretBytes = SecretBytes(b"")
    """Value of the Authorization header; empty: none."""

    @property
    def place(self) -> str:
        """Name of the host in statuses."""
        return self.url


class LoadBalancer(msgspec.Struct, frozen=True):
    """Hosts with the same desired upstreams."""

    name: str
    """``Kind namespace/name`` of the source object."""
    hosts: tuple[Host, ...] = ()
    """URLs are distinct."""
    upstreams: tuple[UpstreamSet, ...] = ()
    """Sorted by name; names are distinct."""
    released_upstreams: tuple[UpstreamName, ...] = ()
    """Upstreams that were owned before and must become empty, sorted. Other upstreams are not
    changed."""
    drain: float = 0.0
    """Drain timeout in seconds: a removed server gets no new clients for so long before it is
    deleted."""
    resync: float = 300.0
    """Maximum time in seconds between two checks of an upstream."""
    timeout: float = 10.0
    """Timeout in seconds of one request to a host."""


class Machine(msgspec.Struct, frozen=True):
    """An external machine. Gatehouse owns its whole proxy configuration: an agent runs the
    proxy."""

    name: str

    @property
    def place(self) -> str:
        """Name of the machine in statuses."""
        return self.name


class Machines(msgspec.Struct, frozen=True):
    """External machines with the same configuration."""

    name: str
    """``Kind namespace/name`` of the source object."""
    proxy: Literal["nginx", "envoy"]
    hosts: tuple[Machine, ...]
    """Names are distinct."""
    upstreams: tuple[UpstreamSet, ...]
    """Sorted by name; names are distinct."""
    gateway: GatewayConfiguration
    """Desired configuration: listeners in front of these upstreams."""
    retained_upstreams: tuple[str, ...] = ()
    """Names of clusters that keep their last endpoints if they have none now, sorted."""
    released_upstreams: tuple[UpstreamName, ...] = ()
    """Always empty: an upstream that is not listed is not in the configuration."""
