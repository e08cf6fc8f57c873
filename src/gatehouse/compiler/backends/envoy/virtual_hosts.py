"""Queries for the scopes of virtual hosts: one per exact hostname, one for all others of a
listener."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import msgspec

from gatehouse.compiler.backends.configuration import (
    ClusterReferences,
    Entries,
    PortHostname,
    all_virtual_hosts,
    entries_of_port,
    secret_files,
)
from gatehouse.compiler.backends.envoy import authentication, ext_authz, names, scoped_routes
from gatehouse.compiler.backends.envoy.route_context import EnvoyRouteContext
from gatehouse.compiler.backends.fragments import Fragment, Need, failed_fragment
from gatehouse.compiler.backends.source import GatewaySource, capabilities, gateway_configuration
from gatehouse.compiler.ir import http as ir
from gatehouse.dataplane.origin import Origin
from gatehouse.dataplane.xds.resources import XdsResource
from gatehouse.incremental.grouping import presence
from gatehouse.incremental.query import Ask
from gatehouse.incremental.table import Table


class HttpPort(msgspec.Struct, frozen=True):
    """Properties that all virtual hosts of a port share."""

    scheme: str
    per_listener: bool
    """True: hostnames belong to the listener selected by SNI, and are looked up per listener."""
    keeps_slashes: bool = False
    """True: repeated and encoded slashes in paths stay as the client sent them."""
    counter: str = ""
    """``host:port`` of the rate limit service; empty: none."""


def http_ports(ask: Ask, gateway: GatewaySource) -> Table[int, HttpPort]:
    """Return the HTTP and HTTPS ports of a gateway."""
    configuration = gateway_configuration(ask, gateway)
    return Table(
        (
            listener.port,
            HttpPort(
                "https" if listener.protocol == "HTTPS" else "http",
                configuration.settings.sni_host_validation and listener.protocol == "HTTPS",
                not configuration.settings.merge_slashes,
                configuration.counter,
            ),
        )
        for listener in configuration.listeners
    )


def exact_scopes(ask: Ask, gateway: GatewaySource) -> Table[PortHostname, Fragment[XdsResource]]:
    """Return the scopes of all exact hostnames."""
    return ask.map_keys(_exact_scope, all_virtual_hosts, gateway, failed_fragment)


def _exact_scope(
    ask: Ask, gateway: GatewaySource, key: PortHostname
) -> Fragment[XdsResource] | None:
    number, hostname = key
    host = ask.entry(all_virtual_hosts, gateway, key=(number, hostname))
    port = ask.entry(http_ports, gateway, key=number)
    if host is None or port is None or not _is_exact(hostname):
        return None
    name = names.scope(number, host.listener if port.per_listener else "", hostname)
    context = _context(ask, gateway, port)
    return _fragment(scoped_routes.exact(name, host, context), [host], context)


def wide_scopes(ask: Ask, gateway: GatewaySource) -> Table[PortHostname, Fragment[XdsResource]]:
    """Return the scopes of all other hostnames, by port and listener."""
    return ask.map_keys(_wide_scope, _listeners, gateway, failed_fragment)


def _wide_scope(
    ask: Ask, gateway: GatewaySource, key: PortHostname
) -> Fragment[XdsResource] | None:
    number, listener = key
    port = ask.entry(http_ports, gateway, key=number)
    if port is None:
        return None
    keys = ask.entry(_inexact_hostnames, gateway, key=(number, listener)) or ()
    candidates = (ask.entry(all_virtual_hosts, gateway, key=key) for key in keys)
    hosts = [host for host in candidates if host is not None]
    elsewhere = [name for name in ask(_listeners_of_port, gateway, number) if name != listener]
    name = names.scope(number, listener, names.WIDE)
    context = _context(ask, gateway, port)
    return _fragment(scoped_routes.wide(name, hosts, elsewhere, context), hosts, context)


def _listeners(ask: Ask, gateway: GatewaySource) -> Table[PortHostname, bool]:
    """Return the listeners that have virtual hosts, by port and hostname.

    The hostname is empty on ports that do not separate those of their listeners.
    """
    ports = ask(_separated_ports, gateway)
    return ask.group_by(
        ask(all_virtual_hosts, gateway), partial(_listener_of, ports), presence, about=ports
    )


def _listeners_of_port(ask: Ask, gateway: GatewaySource, port: int) -> tuple[str, ...]:
    return tuple(listener for _, listener in entries_of_port(ask(_listeners, gateway), port))


def _inexact_hostnames(
    ask: Ask, gateway: GatewaySource
) -> Table[PortHostname, tuple[PortHostname, ...]]:
    """Return the virtual hosts without an exact hostname, by port and listener."""
    ports = ask(_separated_ports, gateway)
    hosts = ask(all_virtual_hosts, gateway)
    return ask.group_by(hosts, partial(_inexact_listener_of, ports), about=ports)


def _separated_ports(ask: Ask, gateway: GatewaySource) -> frozenset[int]:
    """Return the ports that separate the hostnames of their listeners."""
    ports = ask(http_ports, gateway).items()
    return frozenset(number for number, port in ports if port.per_listener)


def _listener_of(
    separated: frozenset[int], key: PortHostname, host: ir.VirtualHost
) -> Iterable[PortHostname]:
    return [(key[0], host.listener if key[0] in separated else "")]


def _inexact_listener_of(
    separated: frozenset[int], key: PortHostname, host: ir.VirtualHost
) -> Iterable[PortHostname]:
    return [] if _is_exact(host.hostname) else _listener_of(separated, key, host)


def _is_exact(hostname: str) -> bool:
    return bool(hostname) and not hostname.startswith("*")


def _context(ask: Ask, gateway: GatewaySource, port: HttpPort) -> EnvoyRouteContext:
    secrets = Entries(ask, secret_files, gateway)
    references = ClusterReferences(ask, gateway)
    able = capabilities(ask, gateway)
    return EnvoyRouteContext(
        references, secrets, able, port.scheme, port.keeps_slashes, counter=port.counter
    )


def _fragment(
    scope: scoped_routes.Scope, hosts: Sequence[ir.VirtualHost], context: EnvoyRouteContext
) -> Fragment[XdsResource]:
    needs = ext_authz.needed(hosts, partial(authentication.uses_authenticator, context))
    return Fragment((scope.resource,), scope.unsupported, needs)


def needed_filters(ask: Ask, gateway: GatewaySource) -> Table[Need, bool]:
    """Return the filters that need an authenticator, each with an object that uses it."""
    exact, wide = ask(_needs_of, exact_scopes, gateway), ask(_needs_of, wide_scopes, gateway)
    return exact.updated(wide)


def _needs_of(
    ask: Ask,
    scopes: Callable[[Ask, GatewaySource], Table[PortHostname, Fragment[XdsResource]]],
    gateway: GatewaySource,
) -> Table[Need, bool]:
    return ask.group_by(ask(scopes, gateway), lambda _, fragment: fragment.needs, presence)


def snippet_origins(ask: Ask, gateway: GatewaySource) -> Table[Origin, bool]:
    """Return the origins of the snippets of all virtual hosts."""
    return ask.group_by(
        ask(all_virtual_hosts, gateway),
        lambda _, host: (snippet.origin for snippet in host.snippets),
        presence,
    )
