"""Virtual hosts of a port: their scopes, and which of them a change makes stale."""

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
    """Virtual hosts of a port: one scope per exact hostname, one for all others of a listener."""

    def __init__(self, fragments: Fragments, port: int, *, per_listener: bool) -> None:
        """``per_listener``: hostnames belong to the listener selected by SNI, and are looked up per
        listener."""
        self._fragments = fragments
        self._port = port
        self.per_listener = per_listener
        self._tracker: ChangeTracker[ir.VirtualHost] = ChangeTracker()
        self._exact: dict[str, ir.VirtualHost] = {}
        self._inexact: dict[str, dict[str, ir.VirtualHost]] = {}
        """Hosts without an exact hostname, by listener (if ``per_listener``) and hostname."""
        self._wide_keys: set[str] = set()
        self.chains = Chains()

    def plan(
        self, hosts: Collection[ir.VirtualHost], context: Context, stale: set[str]
    ) -> tuple[list[ir.VirtualHost], list[ir.VirtualHost]]:
        """Plan the virtual hosts of the port. Return the added and the removed ones.

        ``stale``: keys of fragments that depend on changed cluster properties.
        """
        fresh, gone = self._tracker.follow(hosts)
        if not (fresh or gone or stale):
            return fresh, gone
        self.chains.follow(fresh, gone)
        new = {self._key(host): host for host in fresh if _is_exact(host)}
        for host in gone:
            key = self._key(host)
            if not _is_exact(host):
                del self._inexact[self._listener(host)][host.hostname]
            elif key not in new:
                self._fragments.drop(key)
                del self._exact[key]
        for host in fresh:
            if not _is_exact(host):
                self._inexact.setdefault(self._listener(host), {})[host.hostname] = host
        self._exact |= new
        outdated = {key: self._exact[key] for key in stale if key in self._exact}
        for key, host in (outdated | new).items():
            scope = scoped_routes.exact(key.removeprefix("scope/"), host, context)
            self._fragments.put(key, _fragment(scope, [host], context))
        self._plan_wide(context, stale)
        return fresh, gone

    def drop(self) -> list[ir.VirtualHost]:
        """Remove all fragments. Return the hosts that were there."""
        for key in (*self._exact, *self._wide_keys):
            self._fragments.drop(key)
        return self._tracker.follow(())[1]

    def _plan_wide(self, context: Context, stale: set[str]) -> None:
        listeners = {name if self.per_listener else "" for name in self.chains.listeners}
        before, self._wide_keys = self._wide_keys, set()
        for listener in listeners:
            others = [host for _, host in sorted(self._inexact.get(listener, {}).items())]
            name = names.scope(self._port, listener, names.WIDE)
            key = f"scope/{name}"
            self._wide_keys.add(key)
            elsewhere = tuple(sorted(listeners - {listener}))
            inputs = (elsewhere, tuple(map(_Same, others)))
            known = self._fragments.get(key)
            if known is None or known.inputs != inputs or key in stale:
                scope = scoped_routes.wide(name, others, elsewhere, context)
                self._fragments.put(key, _fragment(scope, others, context, inputs))
        for key in before - self._wide_keys:
            self._fragments.drop(key)

    def _listener(self, host: ir.VirtualHost) -> str:
        return host.listener if self.per_listener else ""

    def _key(self, host: ir.VirtualHost) -> str:
        return f"scope/{names.scope(self._port, self._listener(host), host.hostname)}"


class _Same:
    """Compares by object identity."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def _fragment(
    scope: scoped_routes.Scope,
    hosts: Sequence[ir.VirtualHost],
    context: Context,
    inputs: tuple[Any, ...] = (),
) -> Fragment:
    needs = ext_authz.needed(hosts, partial(authentication.uses_authenticator, context))
    return Fragment((scope.resource,), scope.unsupported, uses(hosts), inputs, needs)


def uses(hosts: Iterable[ir.VirtualHost]) -> frozenset[str]:
    """Return the clusters that virtual hosts name."""
    return frozenset(
        name
        for host in hosts
        for route in host.routes
        if isinstance(route.action, ir.Forward)
        for name in cluster_names(route.action)
    )


def _is_exact(host: ir.VirtualHost) -> bool:
    return bool(host.hostname) and not host.hostname.startswith("*")
