"""Virtual hosts of a port: which of them are stale, and what they need beside them."""

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
from gatehouse.compiler.backends.nginx.fragments import (
    ChangeTracker,
    Fragment,
    Fragments,
    properties_key,
)
from gatehouse.compiler.backends.nginx.proxy_pass import cluster_names
from gatehouse.compiler.backends.nginx.route_context import Context
from gatehouse.compiler.backends.nginx.servers import Port, names_by_sni, server
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.authentication import Oidc
from gatehouse.dataplane.file_set import File


class Common(msgspec.Struct, frozen=True):
    """An upstream that routes of any virtual host may need."""

    name: str
    shares: tuple[tuple[str, int], ...]
    """Names of clusters, with their weights."""
    by: str = ""
    """The variable that selects the endpoint."""


Need = Directive | Common | Oidc
"""A rate limit zone, an upstream, or a relying party of an authenticator."""


class Hosts:
    """The virtual hosts of a port."""

    def __init__(self, fragments: Fragments, port: Port) -> None:
        self._fragments = fragments
        self.port = port
        self._tracker: ChangeTracker[ir.VirtualHost] = ChangeTracker()
        self._hosts: dict[str, ir.VirtualHost] = {}
        """By fragment key."""
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
        """Map from SNI to the listener that it belongs to."""
        if self._sni is None:
            self._sni = names_by_sni(self.port, self._listeners)
        return self._sni

    @property
    def has_default(self) -> bool:
        """Return whether there is a virtual host for all other hostnames."""
        return self._key("") in self._hosts

    def plan(self, hosts: Collection[ir.VirtualHost], context: Context, stale: Set[str]) -> None:
        """Plan the virtual hosts of the port; ``stale``: keys of fragments to regenerate."""
        added, removed = self._tracker.follow(hosts)
        new = {self._key(host.hostname): host for host in added}
        dropped = {self._key(host.hostname) for host in removed} - new.keys()
        for key in dropped:
            self._fragments.drop(key)
            del self._hosts[key]
        if dropped or new.keys() - self._hosts.keys():
            self._names = None
        self._count(added, removed)
        self._hosts |= new
        outdated = {key: self._hosts[key] for key in stale if key in self._hosts}
        for key, host in (outdated | new).items():
            self._fragments.put(key, self._fragment(host, context))

    def drop(self) -> None:
        """Remove all fragments."""
        for key in self._hosts:
            self._fragments.drop(key)

    def _count(self, fresh: Iterable[ir.VirtualHost], gone: Iterable[ir.VirtualHost]) -> None:
        before = +self._listeners
        self._listeners.update(host.listener for host in fresh)
        self._listeners.subtract(host.listener for host in gone)
        self._listeners = +self._listeners
        if before.keys() != self._listeners.keys():
            self._sni = None

    def _key(self, hostname: str) -> str:
        return f"host/{self.port.number:05}/{hostname}"

    def _fragment(self, host: ir.VirtualHost, context: Context) -> Fragment:
        served = msgspec.structs.replace(
            context,
            scope=f"{self.port.number}/{host.hostname}",
            client=host.settings.client,
            removed_headers=self.port.edge.removed_headers,
        )
        generated = server(self.port, host, served)
        file = File.make(names.server_file(self.port.number, host.hostname), generated.text)
        uses = frozenset(
            properties_key(name) for _, each in _forwards(host) for name in cluster_names(each)
        )
        return Fragment(
            (file,), generated.unsupported, uses, needs=frozenset(_needs(host, context))
        )


def _forwards(host: ir.VirtualHost) -> Iterator[tuple[str, ir.Forward]]:
    """Yield the name and action of every route that forwards."""
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
