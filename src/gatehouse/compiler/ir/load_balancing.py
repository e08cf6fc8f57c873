"""A load balancer outside: its hosts, and the servers of the upstreams that it is to hold."""

from __future__ import annotations

from typing import Literal

import msgspec

from gatehouse.compiler.ir.gateway import Gateway, SecretBytes
from gatehouse.dataplane.upstream_name import UpstreamName


class Server(msgspec.Struct, frozen=True):
    """One server of an upstream."""

    address: str
    """``host:port``, an IPv6 host in brackets."""
    draining: bool = False
    """Whether it is to get no new clients."""


class Parameters(msgspec.Struct, frozen=True):
    """Of all servers of an upstream; None: the proxy's own default."""

    weight: int | None = None
    max_conns: int | None = None
    max_fails: int | None = None
    fail_timeout: str | None = None
    slow_start: str | None = None


class UpstreamSet(msgspec.Struct, frozen=True):
    """Everything that an upstream is to hold; a server that is not among these leaves."""

    name: UpstreamName
    servers: tuple[Server, ...]
    """Addresses are distinct."""
    parameters: Parameters = Parameters()


class Tls(msgspec.Struct, frozen=True):
    """How a host is spoken to over HTTPS."""

    verify: bool = True
    trust: bytes = b""
    """PEM; empty for the system's authorities."""
    certificate: bytes = b""
    """PEM of our own certificate, leaf first; empty for none."""
    key: SecretBytes = SecretBytes(b"")
    server_name: str = ""


class Host(msgspec.Struct, frozen=True):
    """One load balancer."""

    url: str
    tls: Tls = Tls()
    authorization: SecretBytes = SecretBytes(b"")
    """Value of that header; empty for none."""

    @property
    def place(self) -> str:
        """What it is called in statuses."""
        return self.url


class LoadBalancer(msgspec.Struct, frozen=True):
    """Hosts that are to be alike."""

    name: str
    """``Kind namespace/name`` of the object that asks for it."""
    hosts: tuple[Host, ...] = ()
    """URLs are distinct."""
    upstreams: tuple[UpstreamSet, ...] = ()
    """Sorted by name; names are distinct."""
    released_upstreams: tuple[UpstreamName, ...] = ()
    """Upstreams that were ours and shall be empty, sorted. Any other upstream is left alone."""
    drain: float = 0.0
    """Seconds for which a server that leaves gets no new clients before it is removed."""
    resync: float = 300.0
    """Seconds within which every upstream is looked at again."""
    timeout: float = 10.0
    """Seconds for one request to a host."""


class Machine(msgspec.Struct, frozen=True):
    """One load balancer that is ours in whole: an agent runs its proxy."""

    name: str

    @property
    def place(self) -> str:
        """What it is called in statuses."""
        return self.name


class Machines(msgspec.Struct, frozen=True):
    """Load balancers that are ours in whole, all alike."""

    name: str
    """``Kind namespace/name`` of the object that asks for them."""
    proxy: Literal["nginx", "envoy"]
    hosts: tuple[Machine, ...]
    """Names are distinct."""
    upstreams: tuple[UpstreamSet, ...]
    """Sorted by name; names are distinct."""
    gateway: Gateway
    """What they serve: listeners of their own in front of these upstreams."""
    retained_upstreams: tuple[str, ...] = ()
    """Its clusters that stay as they were last if they have no endpoints now, sorted."""
    released_upstreams: tuple[UpstreamName, ...] = ()
    """None: what is not served is not there."""
