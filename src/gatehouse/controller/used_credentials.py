"""Credentials that a proxy reads, because something of a configuration names them, and what does.

No I/O.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterator
from itertools import chain

import msgspec

from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir.http import Cluster, Route
from gatehouse.controller.quarantined_routes import changed_routes
from gatehouse.dataplane.origin import Origin

NOWHERE = Cluster("no-endpoint", ())
"""A cluster without endpoints."""


def secrets_of_route(route: Route) -> tuple[str, ...]:
    """Return the names of the secrets of a route's authentication."""
    return route.authentication.secrets if route.authentication is not None else ()


def needs_of_new_routes(
    good: ir.GatewayConfiguration, new: ir.GatewayConfiguration
) -> dict[Origin, set[str]]:
    """Return the names of the credentials without which ``new`` does not have a route.

    Only routes are among them that ``good`` does not have.
    """
    of_clusters = {entry.name: entry.credentials for entry in new.clusters}
    hosts = (host for listener in new.listeners for host in listener.virtual_hosts)
    certificates = {id(r): host.certificates for host in hosts for r in host.routes}
    needs: defaultdict[Origin, set[str]] = defaultdict(set)
    for route in changed_routes(good, new):
        needs[route.origin].update(certificates[id(route)], secrets_of_route(route))
        needs[route.origin].update(*(of_clusters.get(name, ()) for name in route.clusters))
    before = {host for listener in good.l4_listeners for host in listener.hosts}
    for l4_host in (host for listener in new.l4_listeners for host in listener.hosts):
        if l4_host not in before:
            needs[l4_host.origin].update(l4_host.certificates)
            needs[l4_host.origin].update(*(of_clusters.get(n, ()) for n in l4_host.clusters))
    return needs


def certificate_port(
    listener: ir.Listener, held: Callable[[tuple[str, ...]], bool]
) -> Iterator[ir.L4Listener]:
    """Yield a port that has the certificates of a listener, and on which all connections end.

    A proxy reads these and the CA certificates of clients together, and may name either. No route
    is behind it, because an Envoy keeps it while it rejects the listener of the next step.
    ``held``: returns whether any of some certificates is held back.
    """
    hosts = tuple(
        ir.L4Host(host.hostname, (ir.L4Backend(NOWHERE.name),), host.certificates, tls=host.tls)
        for host in listener.virtual_hosts
        if host.certificates and not held(host.certificates)
    )
    if hosts:
        yield ir.L4Listener(listener.port, "TLS", hosts)


def with_used_credentials(
    gateway: ir.GatewayConfiguration, others: Container[str] = ()
) -> ir.GatewayConfiguration:
    """Return a configuration without the credentials that nothing names.

    ``others``: names of credentials that stay in any case.
    """
    used = set(_used_credentials(gateway))

    def stays(name: str) -> bool:
        return name in used or name in others

    return msgspec.structs.replace(
        gateway,
        certificates=tuple(entry for entry in gateway.certificates if stays(entry.name)),
        trust_bundles=tuple(entry for entry in gateway.trust_bundles if stays(entry.name)),
        secrets=tuple(entry for entry in gateway.secrets if stays(entry.name)),
    )


def _used_credentials(gateway: ir.GatewayConfiguration) -> Iterator[str]:
    for listener in gateway.listeners:
        if listener.client_validation is not None and listener.virtual_hosts:
            yield listener.client_validation.trust
        for host in listener.virtual_hosts:
            yield from host.certificates
            yield from chain.from_iterable(map(secrets_of_route, host.routes))
    for l4_listener in gateway.l4_listeners:
        for l4_host in l4_listener.hosts:
            yield from l4_host.certificates
    for api_listener in gateway.api_listeners:
        yield from api_listener.certificates
        for api_cluster in api_listener.clusters:
            yield from api_cluster.credentials
    for cluster in gateway.clusters:
        yield from cluster.credentials
    if gateway.settings.traces is not None:
        yield from gateway.settings.traces.credentials
