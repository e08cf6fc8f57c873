"""Translation of a Gateway and its routes to IR.

1. Addresses: a Gateway that listens only on its own address waits until it has one.
2. Hostnames: the attachments of all routes, grouped by port and hostname
  (:mod:`~gatehouse.compiler.frontends.gateway_api.attachment.virtual_hosts`).
3. Virtual hosts: the matches of all routes of a hostname in order of precedence; L4 hosts.
4. Clusters, certificates and trust bundles: only those that are referred to.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from gatehouse.apis import gateway
from gatehouse.compiler.frontends.gateway_api import dependencies
from gatehouse.compiler.frontends.gateway_api.attachment.virtual_hosts import (
    HTTP,
    STREAM_PROTOCOLS,
    HostnameKey,
    VirtualHostKey,
    entries_of_protocol,
    gateway_virtual_hosts,
    served_ports,
    serving_properties,
    stream_hosts,
    tls_of_port,
)
from gatehouse.compiler.frontends.gateway_api.classes import is_managed_gateway, settings
from gatehouse.compiler.frontends.gateway_api.cluster_key import SERVICE, ClusterKey
from gatehouse.compiler.frontends.gateway_api.extensions import (
    effective,
    parameters,
    policy_conflicts,
)
from gatehouse.compiler.frontends.gateway_api.findings import Finding
from gatehouse.compiler.frontends.gateway_api.inputs import (
    Replacement,
    rejected_by_proxy,
    rejected_ports_key,
    replacement_key,
)
from gatehouse.compiler.frontends.gateway_api.listeners import frontend_tls
from gatehouse.compiler.frontends.gateway_api.listeners import listeners as listening
from gatehouse.compiler.frontends.gateway_api.listeners.addresses import bind_address
from gatehouse.compiler.frontends.gateway_api.listeners.certificates import resolve_certificate
from gatehouse.compiler.frontends.gateway_api.routes import backend_tls, l4_routes
from gatehouse.compiler.frontends.gateway_api.routes.backend_refs import (
    GatewayCluster,
    cluster_ip_backend,
    service_cluster,
)
from gatehouse.compiler.frontends.gateway_api.routes.listener_checks import (
    NO_CHECK,
    listener_check,
)
from gatehouse.compiler.frontends.gateway_api.routes.rules import Ranked, translate
from gatehouse.compiler.frontends.gateway_api.routes.service_ports import backend_tls_policy
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir.http import Cluster, Forward, Respond, Route, VirtualHost
from gatehouse.compiler.ir.proxy_settings import NginxSnippet, NginxUpstreamSettings
from gatehouse.compiler.ir.server_tls import ServerTls
from gatehouse.compiler.ir.settings import DataPlaneSettings
from gatehouse.dataplane.origin import NO_ORIGIN, object_of
from gatehouse.incremental.grouping import presence
from gatehouse.incremental.query import Ask, Key
from gatehouse.incremental.table import Table

_LOCATION = "http.server.location"

_PROTOCOLS: dict[str, Literal["TCP", "UDP", "TLS"]] = {"TCP": "TCP", "UDP": "UDP", "TLS": "TLS"}


def compile_gateway(ask: Ask, key: Key) -> ir.GatewayConfiguration | None:
    """Return the IR of a Gateway.

    None if the Gateway is not managed, waits for an address, or requests an unsupported one.
    """
    if not ask(is_managed_gateway, key):
        return None
    address = ask(bind_address, key)
    if address is None:
        return None
    return ir.GatewayConfiguration(
        name=f"{key[1]}/{key[2]}",
        bind_address=address,
        listeners=ask(gateway_listeners, key),
        l4_listeners=ask(gateway_streams, key),
        clusters=ask(gateway_clusters, key).values(),
        certificates=ask(gateway_certificates, key),
        trust_bundles=ask(gateway_trust, key),
        secrets=ask(dependencies.secrets, key),
        settings=_edge_settings(ask, key),
        snippets=ask(shared_snippets, key),
        usage=ask(settings).usage,
        counter=ask(settings).counter,
    )


def _edge_settings(ask: Ask, key: Key) -> DataPlaneSettings:
    """Return the settings of all ports of a Gateway: its parameters, and those of its policies."""
    edge = effective.gateway_edge(ask, key, ask(parameters.parameters, key).edge)
    policy = ask(policy_conflicts.telemetry_at, key)
    if policy is None:
        return edge
    export = ask(policy_conflicts.trace_export, key)
    origins = (*edge.origins, object_of(policy))
    return msgspec.structs.replace(edge, traces=export, origins=origins)


def virtual_host(ask: Ask, host: VirtualHostKey) -> VirtualHost:
    """Return a virtual host with the matches of its routes in order of precedence."""
    matches: list[tuple[tuple[bool, int], Ranked]] = []
    for route in host.routes:
        named = ask(l4_routes.own_hostname, route, host.hostname)
        ranked = ask(translate, host.gateway, route, host.port, host.protocol).routes
        matches += [((not named[0], -named[1]), item) for item in ranked]
    # A route that names the hostname itself precedes one whose wildcard matches it.
    matches.sort(key=lambda entry: (entry[0], entry[1].rank))
    ordered: list[Route] = []
    for _, item in matches:
        desired = _with_settings(ask, host.gateway, item)
        route_served = _unless_rejected(ask, host.gateway, desired)
        if route_served is not None:
            ordered.append(route_served)
    listener = ask(serving_properties, host.gateway, host.listener)
    check = ask(listener_check, host.gateway, host.listener) if listener.has_filters else NO_CHECK
    return VirtualHost(
        host.hostname,
        tuple(ordered) if not check.findings else tuple(map(_unchecked, ordered)),
        listener.certificates,
        listener.hostname,
        ask(effective.own_settings, host.gateway, host.gateway).settings,
        tuple(
            snippet for snippet in _snippets(ask, host.gateway) if snippet.context == "http.server"
        ),
        tls=listener.tls,
        external_auth=check.external_auth,
    )


def _unchecked(route: Route) -> Route:
    """Return what is served in place of a route whose requests the listener cannot check."""
    action = Respond(500, grpc=route.serves_calls)
    return Route(name=route.name, match=route.match, action=action, origin=route.origin)


def _with_settings(ask: Ask, gateway_key: Key, ranked: Ranked) -> Route:
    """Return a route with its effective settings and the snippets of its Gateway."""
    route, action = ranked.route, ranked.route.action
    policies = ask(effective.route_settings, gateway_key, ranked.owner)
    settings = policies.settings
    if isinstance(action, Forward) and (policies.retry or action.retry):
        retry = action.retry or (None if action.grpc else policies.retry)
        route = route.with_retry(retry)
    more = [snippet for snippet in _snippets(ask, gateway_key) if snippet.context == _LOCATION]
    if not more and settings == route.settings:
        return route
    return msgspec.structs.replace(route, settings=settings, snippets=(*more, *route.snippets))


def _unless_rejected(ask: Ask, gateway_key: Key, route: Route) -> Route | None:
    """Return what is served in place of a route: the route, unless the proxy rejected it."""
    replacement: Replacement | None = ask.read(replacement_key(gateway_key, route.origin))
    if replacement is not None:
        for rejected, substitute in replacement.routes:
            if rejected == route:
                return substitute
    return route


def _snippets(ask: Ask, key: Key) -> tuple[NginxSnippet, ...]:
    return ask(effective.gateway_snippets, key)


def gateway_listeners(ask: Ask, key: Key) -> tuple[ir.Listener, ...]:
    """Return the HTTP and HTTPS ports of a Gateway, sorted."""
    hosts = ask.map(virtual_host, ask(gateway_virtual_hosts, key))
    rejected = ask.read(rejected_ports_key(key)) or ()
    return tuple(
        ir.Listener(
            port,
            "HTTPS" if protocol == "HTTPS" else "HTTP",
            entries_of_protocol(hosts, port, protocol).values(),
            *(ask(_https_settings, key, port) if protocol == "HTTPS" else ()),
        )
        for port, protocol in ask(served_ports, key, HTTP)
        if port not in rejected
    )


def _https_settings(
    ask: Ask, gateway: Key, port: int
) -> tuple[ir.ClientValidation | None, tuple[ServerTls, ...]]:
    """Return the client validation and the TLS settings of an HTTPS port."""
    tls = tls_of_port(ask, gateway, port, "HTTPS")
    return ask(frontend_tls.client_validation, gateway, port), tls


def gateway_streams(ask: Ask, key: Key) -> tuple[ir.L4Listener, ...]:
    """Return the TLS, TCP and UDP ports of a Gateway, sorted."""
    hosts = ask(gateway_stream_hosts, key)
    rejected = ask.read(rejected_ports_key(key)) or ()
    return tuple(
        ir.L4Listener(
            port, _PROTOCOLS[protocol], entries_of_protocol(hosts, port, protocol).values()
        )
        for port, protocol in ask(served_ports, key, STREAM_PROTOCOLS)
        if port not in rejected
    )


def gateway_stream_hosts(ask: Ask, key: Key) -> Table[HostnameKey, ir.L4Host]:
    """Return the L4 hosts of a Gateway's TLS, TCP and UDP ports, by name."""
    return ask.map(stream_host, ask(stream_hosts, key))


def stream_host(ask: Ask, host: VirtualHostKey) -> ir.L4Host:
    """Return the backends of the connections to one hostname."""
    listener = ask(serving_properties, host.gateway, host.listener)
    route = l4_routes.preferred(ask, host.hostname, host.routes) if host.routes else None
    targets = l4_routes.Targets()
    if route and rejected_by_proxy(ask, host.gateway, route):
        targets = l4_routes.Targets(rejected=1)
    elif route:
        targets = ask(l4_routes.l4_backends, host.gateway, route)
    return ir.L4Host(
        host.hostname,
        targets.backends,
        listener.certificates,
        rejected=targets.rejected,
        origin=object_of(route) if route else NO_ORIGIN,
        tls=listener.tls,
    )


def gateway_clusters(ask: Ask, key: Key) -> Table[tuple[str, ClusterKey], Cluster]:
    """Return all clusters that a Gateway's routes refer to."""
    return ask.map(gateway_cluster, ask(dependencies.clusters_of_gateway, key))


def gateway_cluster(ask: Ask, cluster: GatewayCluster) -> Cluster:
    """Return a cluster with the settings and the client certificate of a Gateway. An XBackend says
    itself whether there is a client certificate."""
    key = cluster[0]
    common, certificate = ask(parameters.parameters, key), ask(client_certificate, key)
    result = ask(cluster_ip_backend if common.service_address else service_cluster, *cluster)
    zone_bytes = common.edge.nginx.zone_bytes
    if zone_bytes and result.settings.nginx.memory is None:
        own = NginxUpstreamSettings(memory=zone_bytes)
        settings = msgspec.structs.replace(result.settings, nginx=own)
        result = msgspec.structs.replace(result, settings=settings)
    is_service = cluster[1].kind == SERVICE
    if result.tls is not None and is_service and isinstance(certificate, ir.Certificate):
        tls = msgspec.structs.replace(result.tls, certificate=certificate.name)
        result = msgspec.structs.replace(result, tls=tls)
    return result


def cluster_credentials(ask: Ask, key: Key) -> Table[tuple[str, str], bool]:
    """Return the (certificate, trust bundle) names that clusters use."""
    return ask.group_by(ask(gateway_clusters, key), _credentials_of, presence)


def _credentials_of(_: object, cluster: Cluster) -> Iterable[tuple[str, str]]:
    return [(cluster.tls.certificate, cluster.tls.trust)] if cluster.tls is not None else []


def client_certificate(ask: Ask, key: Key) -> ir.Certificate | Finding | None:
    """Return the certificate that a Gateway presents to backends, or why it cannot be used.

    None if ``spec.tls.backend.clientCertificateRef`` is not set.
    """
    gateway_object = ask.read(key)
    if not isinstance(gateway_object, gateway.Gateway):
        return None
    reference = gateway_object.spec.tls.backend.client_certificate_ref
    return resolve_certificate(ask, key, key, reference) if reference is not None else None


def gateway_certificates(ask: Ask, key: Key) -> tuple[ir.Certificate, ...]:
    """Return all certificates of a Gateway's listeners, clusters and collector, by name."""
    by_name = {
        certificate.name: certificate
        for state in ask(listening.ordered_listeners, key)
        if state.served and state.spec.protocol in (*HTTP, *STREAM_PROTOCOLS)
        for certificate in state.certificates
    }
    own = ask(client_certificate, key)
    used = {name for name, _ in ask(cluster_credentials, key)}
    if isinstance(own, ir.Certificate) and own.name in used:
        by_name[own.name] = own
    for holder in ask(gateway_policies, key) if any(used) else ():
        of_backend = ask(backend_tls.backend_tls_at, key, holder).certificate
        if of_backend is not None:
            by_name[of_backend.name] = of_backend
    collector = ask(policy_conflicts.trace_credentials, key).certificate
    if collector is not None:
        by_name[collector.name] = collector
    return tuple(by_name[name] for name in sorted(by_name))


def gateway_trust(ask: Ask, key: Key) -> tuple[ir.TrustBundle, ...]:
    """Return all trust bundles of a Gateway's ports, clusters and collector, by name."""
    result: dict[str, ir.TrustBundle] = {}
    for port, protocol in ask(served_ports, key, HTTP):
        if protocol == "HTTPS":
            bundle, _ = ask(frontend_tls.client_trust_of_port, key, port)
            if bundle is not None:
                result[bundle.name] = bundle
    needed = {name for _, name in ask(cluster_credentials, key)}
    for policy in ask(gateway_policies, key) if needed else ():
        trusted = ask(backend_tls.backend_tls_at, key, policy).trust
        if trusted is not None and trusted.name in needed:
            result[trusted.name] = trusted
    collector = ask(policy_conflicts.trace_credentials, key).trust
    if collector is not None:
        result[collector.name] = collector
    return tuple(result[name] for name in sorted(result))


def shared_snippets(ask: Ask, key: Key) -> tuple[NginxSnippet, ...]:
    """Return the ``main`` and ``http`` snippets of a Gateway and its routes."""
    own = [snippet for snippet in _snippets(ask, key) if snippet.context in ("main", "http")]
    return tuple(dict.fromkeys((*own, *ask(dependencies.route_snippets, key))))


def gateway_policies(ask: Ask, key: Key) -> Table[Key, bool]:
    """Return the objects with the TLS settings of a Gateway's clusters."""
    policies = ask.map(_policy, ask(dependencies.clusters_of_gateway, key))
    return ask.group_by(policies, lambda _, policy: (policy,), presence)


def _policy(ask: Ask, cluster: GatewayCluster) -> Key | None:
    return ask(backend_tls_policy, cluster[1])
