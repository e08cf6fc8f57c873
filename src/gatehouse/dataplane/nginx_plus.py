"""Servers of an upstream in the NGINX Plus API, and the desired upstreams of a host.

The back end builds them, the transport synchronizes hosts with them. No I/O.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import msgspec

from gatehouse.dataplane.upstream_name import UpstreamName

HTTP_ONLY_PARAMETERS = frozenset({"route", "drain"})
"""Parameters that the API rejects in the stream context."""

IMMUTABLE_PARAMETERS = frozenset({"service", "backup"})
"""Parameters that cannot be changed: another value requires another server."""

_DURATION = re.compile(r"(\d+)(ms|[smhdwMy]?)")

_SECONDS = {
    "ms": 0.001,
    "": 1,
    "s": 1,
    "m": 60,
    "h": 3600,
    "d": 86400,
    "w": 604800,
    "M": 2592000,
    "y": 31536000,
}


class PlusServer(msgspec.Struct, frozen=True):
    """A server with all parameters. The defaults are those of NGINX."""

    server: str
    """``host:port``"""
    weight: int = 1
    max_conns: int = 0
    max_fails: int = 1
    fail_timeout: str = "10s"
    slow_start: str = "0s"
    route: str = ""
    service: str = ""
    backup: bool = False
    down: bool = False
    drain: bool = False


DEFAULTS: Mapping[str, Any] = dict(
    zip(PlusServer.__struct_fields__[1:], PlusServer.__struct_defaults__, strict=True)
)

_TIMES = ("fail_timeout", "slow_start")
_WORDS = tuple(name for name in DEFAULTS if name not in _TIMES)


def differing_parameters(desired: PlusServer, observed: PlusServer) -> frozenset[str]:
    """Return the names of the parameters that differ. Times compare by value: ``60s`` is ``1m``."""
    if desired is observed or desired == observed:
        return frozenset()
    names = [name for name in _WORDS if getattr(desired, name) != getattr(observed, name)]
    for name in _TIMES:
        before, after = getattr(desired, name), getattr(observed, name)
        if before != after and parse_nginx_time(before) != parse_nginx_time(after):
            names.append(name)
    return frozenset(names)


def parse_nginx_time(duration: str) -> float:
    """Return an NGINX time in seconds, or NaN (which equals nothing) for an invalid one."""
    parts = _DURATION.findall(duration)
    if not parts or "".join(number + unit for number, unit in parts) != duration:
        return float("nan")
    return round(sum(int(number) * _SECONDS[unit] for number, unit in parts), 3)


class Upstream:
    """Complete desired state of an upstream."""

    def __init__(self, name: UpstreamName, servers: Iterable[PlusServer]) -> None:
        self.name = name
        self.servers = tuple(servers)
        """Addresses are distinct."""

    @cached_property
    def by_address(self) -> Mapping[str, PlusServer]:
        """The servers by address."""
        return {server.server: server for server in self.servers}

    @cached_property
    def digest(self) -> bytes:
        """Digest of the name and all servers."""
        return hashlib.sha256(msgspec.json.encode((self.name, self.servers))).digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Upstream) and (
            self is other or (self.name == other.name and self.servers == other.servers)
        )

    def __hash__(self) -> int:
        return hash(self.name)


class DesiredUpstreams:
    """Desired upstreams of a host. Other upstreams on the host are left alone."""

    def __init__(
        self,
        upstreams: Mapping[UpstreamName, Upstream],
        *,
        drain: float,
        resync: float,
        timeout: float,
    ) -> None:
        self.upstreams = upstreams
        self.drain, self.resync, self.timeout = drain, resync, timeout
        """Seconds; see :class:`gatehouse.compiler.ir.load_balancing.LoadBalancer`."""

    @cached_property
    def version(self) -> str:
        """12 hexadecimal digits that depend only on the upstreams."""
        whole = hashlib.sha256()
        for name in sorted(self.upstreams):
            # Empty upstreams are skipped: a host that never had an upstream and a host on which it
            # was emptied hold the same.
            if self.upstreams[name].servers:
                whole.update(self.upstreams[name].digest)
        return whole.hexdigest()[:12]
