"""The build plan: from a Gateway to everything its data plane serves.

1. addresses: a Gateway that must listen on its own address waits for it;
2. hosts: every route's attachments, folded into hostnames per port (:mod:`hosts`);
3. virtual hosts: the matches of all routes of one hostname, in the order they are tried; streams;
4. clusters, certificates and trust bundles: those that are named, and no others.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from gatehouse.apis import gateway
from gatehouse.frontends.gateway_api import hostnames
from gatehouse.frontends.gateway_api.attaching.hosts import (
    HostKey,
    StreamKey,
    stream_hosts,
    virtual_hosts,
)
from gatehouse.frontends.gateway_api.classes import gateways
from gatehouse.frontends.gateway_api.extensions import effective, parameters
from gatehouse.frontends.gateway_api.findings import Finding
from gatehouse.frontends.gateway_api.listening import clients
from gatehouse.frontends.gateway_api.listening import listeners as listening
from gatehouse.frontends.gateway_api.listening.addresses import bind_address
from gatehouse.frontends.gateway_api.listening.certificates import resolve
from gatehouse.frontends.gateway_api.needs import gateway_needs
from gatehouse.frontends.gateway_api.routing import backend_tls, streams
from gatehouse.frontends.gateway_api.routing.backends import (
    by_service_address,
    cluster,
    policy_of,
)
from gatehouse.frontends.gateway_api.routing.rules import Ranked, translate
from gatehouse.ir import gateway as ir
from gatehouse.ir.http import Cluster, Route, VirtualHost
from gatehouse.ir.settings import Snippet
from gatehouse.query import Ask, Key

LOCATION = "http.server.location"

_PROTOCOLS: dict[str, Literal["TCP", "UDP", "TLS"]] = {"TCP": "TCP", "UDP": "UDP", "TLS": "TLS"}


def compile_gateway(ask: Ask, key: Key) -> ir.Gateway | None:
    """Give what a Gateway's data plane serves; None while it waits for an address, or may not."""
    if key not in ask(gateways, ""):
        return None
    address = ask(bind_address, key)
    if address is None:
        return None
    return ir.Gateway(
        name=f"{key[1]}/{key[2]}",
        bind_address=address,
        listeners=ask(gateway_listeners, key),
        streams=ask(gateway_streams, key),
        clusters=ask(gateway_clusters, key),
        certificates=ask(gateway_certificates, key),
        trust=ask(gateway_trust, key),
        secrets=ask(gateway_needs, key).secrets,
        edge=ask(parameters.parameters, key).edge,
        snippets=ask(shared_snippets, key),
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
    ordered = tuple(_settled(ask, host.gateway, item) for _, item in found)
    return VirtualHost(
        host.hostname,
        ordered,
        host.certificates,
        host.listener,
        ask(effective.own_settings, host.gateway),
        tuple(each for each in _snippets(ask, host.gateway) if each.context == "http.server"),
    )


def _settled(ask: Ask, gateway_key: Key, ranked: Ranked) -> Route:
    """Give a route with the settings that hold for it, and its Gateway's snippets."""
    route = ranked.route
    settings = ask(effective.route_settings, (gateway_key, ranked.owner))
    more = [each for each in _snippets(ask, gateway_key) if each.context == LOCATION]
    if not more and settings == route.settings:
        return route
    return msgspec.structs.replace(route, settings=settings, snippets=(*more, *route.snippets))


def _snippets(ask: Ask, key: Key) -> tuple[Snippet, ...]:
    return ask(effective.gateway_snippets, key)


def own_hostname(ask: Ask, which: tuple[Key, str]) -> tuple[bool, int]:
    """Say how specific the hostname is by which a route came to serve a virtual host."""
    route = ask.read(which[0])
    names = [name.lower() for name in route.spec.hostnames] or [""]
    covering = [name for name in names if hostnames.covers(name, which[1])]
    return max(hostnames.specificity(name) for name in covering or [""])


def gateway_listeners(ask: Ask, key: Key) -> tuple[ir.Listener, ...]:
    """Give the HTTP and HTTPS ports of a Gateway, sorted."""
    ports: dict[int, list[VirtualHost]] = {}
    protocols: dict[int, str] = {}
    hosts = ask(virtual_hosts, key)
    for host, made in zip(hosts, ask.each(virtual_host, hosts), strict=True):
        ports.setdefault(host.port, []).append(made)
        protocols[host.port] = host.protocol
    return tuple(
        ir.Listener(
            port,
            "HTTPS" if protocols[port] == "HTTPS" else "HTTP",
            tuple(found),
            ask(clients.client_validation, (key, port)) if protocols[port] == "HTTPS" else None,
        )
        for port, found in sorted(ports.items())
    )


def gateway_streams(ask: Ask, key: Key) -> tuple[ir.StreamListener, ...]:
    """Give the TLS, TCP and UDP ports of a Gateway, sorted."""
    found: dict[tuple[int, str], list[ir.StreamHost]] = {}
    for host in ask(stream_hosts, key):
        listed = found.setdefault((host.port, host.protocol), [])
        listed.append(ask(stream_host, host))
    return tuple(
        ir.StreamListener(port, _PROTOCOLS[protocol], tuple(hosts))
        for (port, protocol), hosts in sorted(found.items())
    )


def stream_host(ask: Ask, host: StreamKey) -> ir.StreamHost:
    """Give where the connections of one name go."""
    backends = ask(streams.targets, host.route).backends if host.route else ()
    return ir.StreamHost(host.hostname, backends, host.certificates)


def gateway_clusters(ask: Ask, key: Key) -> tuple[Cluster, ...]:
    """Give every cluster that a Gateway's routes name, sorted."""
    certificate = ask(client_certificate, key)
    common = ask(parameters.parameters, key)
    found = []
    wanted = ask(gateway_needs, key).clusters
    for each, made in zip(wanted, ask.each(cluster, wanted), strict=True):
        if common.service_address:
            made = ask(by_service_address, each)
        if common.memory and made.settings.memory is None:
            settings = msgspec.structs.replace(made.settings, memory=common.memory)
            made = msgspec.structs.replace(made, settings=settings)
        if made.tls is not None and isinstance(certificate, ir.Certificate):
            tls = msgspec.structs.replace(made.tls, certificate=certificate.name)
            made = msgspec.structs.replace(made, tls=tls)
        found.append(made)
    return tuple(sorted(found, key=lambda entry: entry.name))


def client_certificate(ask: Ask, key: Key) -> ir.Certificate | Finding | None:
    """Give the certificate that a Gateway shows to its backends, or why it has none to show."""
    found = ask.read(key)
    if not isinstance(found, gateway.Gateway):
        return None
    reference = found.spec.tls.backend.client_certificate_ref
    return resolve(ask, key, reference) if reference is not None else None


def gateway_certificates(ask: Ask, key: Key) -> tuple[ir.Certificate, ...]:
    """Give every certificate that a Gateway's names or clusters use, sorted."""
    clusters = ask(gateway_clusters, key)
    named = {name for host in ask(virtual_hosts, key) for name in host.certificates}
    named |= {name for host in ask(stream_hosts, key) for name in host.certificates}
    named |= {each.tls.certificate for each in clusters if each.tls is not None}
    known = [c for state in ask(listening.listeners, key) for c in state.certificates]
    own = ask(client_certificate, key)
    if isinstance(own, ir.Certificate):
        known.append(own)
    found = {certificate.name: certificate for certificate in known if certificate.name in named}
    return tuple(found[name] for name in sorted(found))


def gateway_trust(ask: Ask, key: Key) -> tuple[ir.TrustBundle, ...]:
    """Give every trust bundle that a Gateway's ports or clusters use, sorted."""
    clusters = ask(gateway_clusters, key)
    found: dict[str, ir.TrustBundle] = {}
    for host in ask(virtual_hosts, key):
        if host.protocol == "HTTPS":
            bundle, _ = ask(clients.client_trust, (key, host.port))
            if bundle is not None:
                found[bundle.name] = bundle
    wanted = {each.tls.trust for each in clusters if each.tls is not None}
    for policy in ask(gateway_policies, key):
        trusted = ask(backend_tls.resolve, policy).trust
        if trusted is not None and trusted.name in wanted:
            found[trusted.name] = trusted
    return tuple(found[name] for name in sorted(found))


def shared_snippets(ask: Ask, key: Key) -> tuple[Snippet, ...]:
    """Give the snippets outside of any server, of the Gateway's and the routes' own."""
    own = [each for each in _snippets(ask, key) if each.context in ("main", "http")]
    return tuple(dict.fromkeys((*own, *ask(gateway_needs, key).snippets)))


def gateway_policies(ask: Ask, key: Key) -> tuple[Key, ...]:
    """Give the BackendTLSPolicies in force behind a Gateway."""
    found = set(ask.each(policy_of, ask(gateway_needs, key).clusters))
    return tuple(sorted(each for each in found if each is not None))
