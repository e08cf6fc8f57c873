"""The build plan: from a Gateway to everything its data plane serves.

1. addresses: a Gateway that must listen on its own address waits for it;
2. hosts: every route's attachments, folded into hostnames per port;
3. virtual hosts: the matches of all routes of one hostname, in the order they are tried;
4. clusters and certificates: those that are named, and no others.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gatehouse.apis import core
from gatehouse.frontends.gateway_api import hostnames
from gatehouse.frontends.gateway_api import listeners as listening
from gatehouse.frontends.gateway_api.attachment import attachments
from gatehouse.frontends.gateway_api.backends import ClusterKey, cluster
from gatehouse.frontends.gateway_api.classes import gateways, settings
from gatehouse.frontends.gateway_api.rules import Ranked, translate
from gatehouse.ir import gateway as ir
from gatehouse.ir.http import Cluster, VirtualHost
from gatehouse.query import Ask, Key


class HostKey(msgspec.Struct, frozen=True, order=True):
    """A hostname of a port, and who serves it: all that identifies a virtual host's content."""

    port: int
    protocol: str
    hostname: str
    routes: tuple[Key, ...]
    certificates: tuple[str, ...]


def compile_gateway(ask: Ask, key: Key) -> ir.Gateway | None:
    """Give what a Gateway's data plane serves; None while it waits for an address, or may not."""
    if key not in ask(gateways, ""):
        return None
    found = ask.read(key)
    if any(entry.value for entry in found.spec.addresses):
        return None
    address = ""
    if ask(settings, "").bind == "load-balancer":
        addresses = ask(gateway_addresses, key)
        if not addresses:
            return None
        address = addresses[0]
    hosts = ask(virtual_hosts, key)
    return ir.Gateway(
        name=f"{key[1]}/{key[2]}",
        bind_address=address,
        listeners=_by_port(ask, hosts),
        clusters=_clusters(ask, hosts),
        certificates=_certificates(ask, key, hosts),
    )


def gateway_addresses(ask: Ask, key: Key) -> tuple[str, ...]:
    """Give the addresses of the Service that was provisioned for a Gateway."""
    found: list[str] = []
    for service_key in ask.read(("@service", key[1], key[2])):
        service = ask.read(service_key)
        if isinstance(service, core.Service):
            found += [entry.ip for entry in service.status.load_balancer.ingress if entry.ip]
    return tuple(found)


def virtual_hosts(ask: Ask, key: Key) -> tuple[HostKey, ...]:
    """Give the virtual hosts of a Gateway, sorted; a listener's own hostname is always one."""
    ports: dict[int, str] = {}
    certificates: dict[tuple[int, str], list[str]] = {}
    routes: dict[tuple[int, str], dict[Key, None]] = {}
    served: dict[str, tuple[str, ...]] = {}
    for state in ask(listening.listeners, key):
        if not state.served:
            continue
        shape = state.shape
        served[shape.name] = tuple(entry.name for entry in state.certificates)
        ports[shape.port] = shape.protocol
        routes.setdefault((shape.port, shape.hostname), {})
        certificates.setdefault((shape.port, shape.hostname), []).extend(served[shape.name])
    for route in ask.read(("@routes", key[1], key[2])):
        for attachment in ask(attachments, route):
            if attachment.gateway != key:
                continue
            for place in attachment.places:
                if place.listener in served:
                    where = (place.port, place.hostname)
                    routes.setdefault(where, {})[route] = None
                    certificates.setdefault(where, []).extend(served[place.listener])
    return tuple(
        HostKey(
            port,
            ports[port],
            hostname,
            tuple(sorted(found)),
            tuple(sorted(set(certificates[(port, hostname)]))),
        )
        for (port, hostname), found in sorted(routes.items())
    )


def virtual_host(ask: Ask, host: HostKey) -> VirtualHost:
    """Merge the routes of one hostname into the order in which they are tried."""
    found: list[tuple[tuple[bool, int], Ranked]] = []
    for route in host.routes:
        named = ask(own_hostname, (route, host.hostname))
        ranked = ask(translate, (route, host.port, host.protocol)).routes
        found += [((not named[0], -named[1]), item) for item in ranked]
    # A route that names the host itself goes before one that only covers it.
    found.sort(key=lambda entry: (entry[0], entry[1].rank))
    return VirtualHost(host.hostname, tuple(item.route for _, item in found), host.certificates)


def own_hostname(ask: Ask, which: tuple[Key, str]) -> tuple[bool, int]:
    """Say how specific the hostname is by which a route came to serve a virtual host."""
    route = ask.read(which[0])
    names = [name.lower() for name in route.spec.hostnames] or [""]
    covering = [name for name in names if hostnames.covers(name, which[1])]
    return max(hostnames.specificity(name) for name in covering or [""])


def _by_port(ask: Ask, hosts: tuple[HostKey, ...]) -> tuple[ir.Listener, ...]:
    ports: dict[int, list[VirtualHost]] = {}
    protocols: dict[int, str] = {}
    for host in hosts:
        ports.setdefault(host.port, []).append(ask(virtual_host, host))
        protocols[host.port] = host.protocol
    return tuple(
        ir.Listener(port, "HTTPS" if protocols[port] == "HTTPS" else "HTTP", tuple(found))
        for port, found in sorted(ports.items())
    )


def _clusters(ask: Ask, hosts: Iterable[HostKey]) -> tuple[Cluster, ...]:
    keys: set[ClusterKey] = {
        key
        for host in hosts
        for route in host.routes
        for key in ask(translate, (route, host.port, host.protocol)).clusters
    }
    found = [ask(cluster, key) for key in keys]
    return tuple(sorted(found, key=lambda entry: entry.name))


def _certificates(ask: Ask, key: Key, hosts: Iterable[HostKey]) -> tuple[ir.Certificate, ...]:
    named = {name for host in hosts for name in host.certificates}
    found = {
        certificate.name: certificate
        for state in ask(listening.listeners, key)
        for certificate in state.certificates
        if certificate.name in named
    }
    return tuple(found[name] for name in sorted(found))
