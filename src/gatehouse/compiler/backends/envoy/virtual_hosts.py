"""Which scopes a port has, and which of them a change concerns."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import Any

from gatehouse.compiler.backends.envoy import authentication, ext_authz, names, scoped_routes
from gatehouse.compiler.backends.envoy.filter_chains import Chains
from gatehouse.compiler.backends.envoy.fragments import ChangeTracker, Fragment, Fragments
from gatehouse.compiler.backends.envoy.route_context import Context
from gatehouse.compiler.backends.envoy.routes import cluster_names
from gatehouse.compiler.ir import http as ir


class Hosts:
    """The virtual hosts of a port: exact names each by itself, others of a listener together."""

    def __init__(self, fragments: Fragments, port: int, *, apart: bool) -> None:
        """``apart``: requests are for names of the listener alone that a handshake was for."""
        self._fragments = fragments
        self._port = port
        self.apart = apart
        self._followed: ChangeTracker[ir.VirtualHost] = ChangeTracker()
        self._exact: dict[str, ir.VirtualHost] = {}
        self._places: dict[str, dict[str, ir.VirtualHost]] = {}
        """The hosts that are no exact names, by the place where they are looked up."""
        self._wide: set[str] = set()
        self.chains = Chains()

    def plan(
        self, wanted: Collection[ir.VirtualHost], context: Context, stale: set[str]
    ) -> tuple[list[ir.VirtualHost], list[ir.VirtualHost]]:
        """Plan what the port serves now; ``stale``: parts whose clusters look different.

        Gives the hosts that are new, and those that are there no more.
        """
        fresh, gone = self._followed.follow(wanted)
        if not (fresh or gone or stale):
            return fresh, gone
        self.chains.follow(fresh, gone)
        new = {self._key(host): host for host in fresh if _is_exact(host)}
        for host in gone:
            key = self._key(host)
            if not _is_exact(host):
                del self._places[self._place(host)][host.hostname]
            elif key not in new:
                self._fragments.drop(key)
                del self._exact[key]
        for host in fresh:
            if not _is_exact(host):
                self._places.setdefault(self._place(host), {})[host.hostname] = host
        self._exact |= new
        again = {key: self._exact[key] for key in stale if key in self._exact}
        for key, host in (again | new).items():
            made = scoped_routes.exact(key.removeprefix("scope/"), host, context)
            self._fragments.put(key, _fragment(made, [host], context))
        self._plan_wide(context, stale)
        return fresh, gone

    def drop(self) -> list[ir.VirtualHost]:
        """Take everything away; give the hosts that were there."""
        for key in (*self._exact, *self._wide):
            self._fragments.drop(key)
        return self._followed.follow(())[1]

    def _plan_wide(self, context: Context, stale: set[str]) -> None:
        everywhere = {name if self.apart else "" for name in self.chains.listeners}
        before, self._wide = self._wide, set()
        for place in everywhere:
            others = [host for _, host in sorted(self._places.get(place, {}).items())]
            name = names.scope(self._port, place, names.WIDE)
            key = f"scope/{name}"
            self._wide.add(key)
            elsewhere = tuple(sorted(everywhere - {place}))
            seen = (elsewhere, tuple(map(_Same, others)))
            known = self._fragments.get(key)
            if known is None or known.seen != seen or key in stale:
                made = scoped_routes.wide(name, others, elsewhere, context)
                self._fragments.put(key, _fragment(made, others, context, seen))
        for key in before - self._wide:
            self._fragments.drop(key)

    def _place(self, host: ir.VirtualHost) -> str:
        return host.listener if self.apart else ""

    def _key(self, host: ir.VirtualHost) -> str:
        return f"scope/{names.scope(self._port, self._place(host), host.hostname)}"


class _Same:
    """Equal to what has the very same object in it."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def _fragment(
    made: scoped_routes.Scope,
    hosts: Sequence[ir.VirtualHost],
    context: Context,
    seen: tuple[Any, ...] = (),
) -> Fragment:
    needs = ext_authz.needed(hosts, partial(authentication.asks, context))
    return Fragment((made.resource,), made.unsupported, uses(hosts), seen, needs)


def uses(hosts: Iterable[ir.VirtualHost]) -> frozenset[str]:
    """Give the clusters that virtual hosts name."""
    return frozenset(
        name
        for host in hosts
        for route in host.routes
        if isinstance(route.action, ir.Forward)
        for name in cluster_names(route.action)
    )


def _is_exact(host: ir.VirtualHost) -> bool:
    return bool(host.hostname) and not host.hostname.startswith("*")
