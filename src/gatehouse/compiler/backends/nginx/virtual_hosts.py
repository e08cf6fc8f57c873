"""The virtual hosts of a port: which of them a change concerns, and what they need beside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Set

import msgspec

from gatehouse.compiler.backends.nginx import (
    names,
    rate_limits,
    session_persistence,
    weighted_upstreams,
)
from gatehouse.compiler.backends.nginx.directives import Directive
from gatehouse.compiler.backends.nginx.fragments import ChangeTracker, Part, Parts, look
from gatehouse.compiler.backends.nginx.proxy_pass import cluster_names
from gatehouse.compiler.backends.nginx.route_context import Context
from gatehouse.compiler.backends.nginx.servers import Port, names_by_sni, server
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.authentication import Oidc
from gatehouse.dataplane.file_set import File


class Common(msgspec.Struct, frozen=True):
    """An upstream that routes need, of any virtual host."""

    name: str
    shares: tuple[tuple[str, int], ...]
    """Names of clusters, with their weights."""
    by: str = ""
    """The variable that decides which endpoint answers."""


Need = Directive | Common | Oidc
"""A count of a rate limit, an upstream, users whom an authenticator is to know."""


class Hosts:
    """The virtual hosts of a port."""

    def __init__(self, parts: Parts, port: Port) -> None:
        self._parts = parts
        self.port = port
        self._followed: ChangeTracker[ir.VirtualHost] = ChangeTracker()
        self._hosts: dict[str, ir.VirtualHost] = {}
        """By their parts' keys."""
        self._listeners: Counter[str] = Counter()
        self._names: tuple[str, ...] | None = None
        self._sni: Directive | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The hostnames, sorted."""
        if self._names is None:
            self._names = tuple(sorted(host.hostname for host in self._hosts.values()))
        return self._names

    @property
    def sni(self) -> Directive:
        """The map from the name in a TLS handshake to the listener that it belongs to."""
        if self._sni is None:
            self._sni = names_by_sni(self.port, self._listeners)
        return self._sni

    @property
    def open(self) -> bool:
        """Whether there is a virtual host for any name."""
        return self._key("") in self._hosts

    def plan(self, wanted: Collection[ir.VirtualHost], context: Context, stale: Set[str]) -> None:
        """Plan what the port serves now; ``stale``: keys of parts that are to be made again."""
        fresh, gone = self._followed.follow(wanted)
        new = {self._key(host.hostname): host for host in fresh}
        left = {self._key(host.hostname) for host in gone} - new.keys()
        for key in left:
            self._parts.drop(key)
            del self._hosts[key]
        if left or new.keys() - self._hosts.keys():
            self._names = None
        self._count(fresh, gone)
        self._hosts |= new
        again = {key: self._hosts[key] for key in stale if key in self._hosts}
        for key, host in (again | new).items():
            self._parts.put(key, self._part(host, context))

    def drop(self) -> None:
        """Take everything away."""
        for key in self._hosts:
            self._parts.drop(key)

    def _count(self, fresh: Iterable[ir.VirtualHost], gone: Iterable[ir.VirtualHost]) -> None:
        before = +self._listeners
        self._listeners.update(host.listener for host in fresh)
        self._listeners.subtract(host.listener for host in gone)
        self._listeners = +self._listeners
        if before.keys() != self._listeners.keys():
            self._sni = None

    def _key(self, hostname: str) -> str:
        return f"host/{self.port.number:05}/{hostname}"

    def _part(self, host: ir.VirtualHost, context: Context) -> Part:
        served = msgspec.structs.replace(
            context,
            scope=f"{self.port.number}/{host.hostname}",
            client=host.settings.client,
            untold=self.port.edge.removed_headers,
        )
        written = server(self.port, host, served)
        file = File.make(names.server_file(self.port.number, host.hostname), written.text)
        uses = frozenset(look(name) for _, each in _forwards(host) for name in cluster_names(each))
        return Part((file,), written.unsupported, uses, needs=frozenset(_needs(host, context)))


def _forwards(host: ir.VirtualHost) -> Iterator[tuple[str, ir.Forward]]:
    """Give every route that forwards: its name, and how."""
    for route in host.routes:
        if isinstance(route.action, ir.Forward):
            yield route.name, route.action


def _needs(host: ir.VirtualHost, context: Context) -> Iterator[Need]:
    yield from rate_limits.zones(route.settings.rates for route in host.routes)
    for route in host.routes:
        if isinstance(route.authentication, Oidc):
            yield route.authentication
    for name, action in _forwards(host):
        for common, shares in weighted_upstreams.upstreams(action, context.clusters).items():
            yield Common(common, tuple((cluster.name, weight) for cluster, weight in shares))
        if action.persistence is None:
            continue
        variable = names.session_variable(action.persistence, name)
        for backend in action.backends:
            cluster = context.clusters.get(backend.cluster)
            if cluster is not None and cluster.endpoints:
                own = session_persistence.upstream_name(cluster.name, action.persistence, name)
                yield Common(own, ((cluster.name, 1),), variable)
