"""Dependencies of a Gateway's routes: clusters, Services, secrets and snippets."""

from __future__ import annotations

import msgspec

from gatehouse.compiler.frontends.gateway_api.attachment.parent_refs import parent_results
from gatehouse.compiler.frontends.gateway_api.attachment.virtual_hosts import (
    HostnameKey,
    VirtualHostKey,
    gateway_virtual_hosts,
    stream_hosts,
)
from gatehouse.compiler.frontends.gateway_api.classes import is_managed_gateway
from gatehouse.compiler.frontends.gateway_api.cluster_key import ClusterKey
from gatehouse.compiler.frontends.gateway_api.inputs import (
    listeners_by_service,
    policies_by_server,
    pools_by_picker,
    rejected_by_proxy,
    routes_by_service,
)
from gatehouse.compiler.frontends.gateway_api.listeners.listener_sets import parent_of
from gatehouse.compiler.frontends.gateway_api.routes import l4_routes
from gatehouse.compiler.frontends.gateway_api.routes.listener_checks import listener_check
from gatehouse.compiler.frontends.gateway_api.routes.rules import translate
from gatehouse.compiler.ir.gateway import SecretFile
from gatehouse.compiler.ir.proxy_settings import NginxSnippet
from gatehouse.incremental.grouping import presence
from gatehouse.incremental.query import Ask, Key
from gatehouse.incremental.table import Table


class Needs(msgspec.Struct, frozen=True):
    """Dependencies of one hostname."""

    clusters: frozenset[ClusterKey] = frozenset()
    services: frozenset[Key] = frozenset()
    """Backends that routes refer to, and their endpoint pickers."""
    secrets: tuple[SecretFile, ...] = ()
    snippets: tuple[NginxSnippet, ...] = ()
    """Snippets for the contexts ``main`` and ``http``."""


def gateway_needs(ask: Ask, key: Key) -> Table[HostnameKey, Needs]:
    """Return the dependencies of each hostname of a Gateway."""
    hosts = ask.map(host_needs, ask(gateway_virtual_hosts, key))
    return ask.merge((hosts, ask.map(stream_needs, ask(stream_hosts, key))))


def host_needs(ask: Ask, host: VirtualHostKey) -> Needs:
    """Return the dependencies of the routes of one virtual host."""
    translated = [
        ask(translate, host.gateway, route, host.port, host.protocol) for route in host.routes
    ]
    shared_snippets = (
        snippet
        for route in translated
        for ranked in route.routes
        for snippet in ranked.route.snippets
        if snippet.context in ("main", "http")
    )
    clusters = {cluster for route in translated for cluster in route.clusters}
    services = {service for route in translated for service in route.services}
    server = ask(listener_check, host.gateway, host.listener).cluster
    if server is not None:
        clusters.add(server)
        services.add((server.kind, server.namespace, server.service))
    return Needs(
        frozenset(clusters),
        frozenset(services),
        tuple(secret for route in translated for secret in route.secrets),
        tuple(dict.fromkeys(shared_snippets)),
    )


def stream_needs(ask: Ask, host: VirtualHostKey) -> Needs | None:
    """Return the dependencies of the L4 route of a hostname; None if no route serves it."""
    if not host.routes:
        return None
    route = l4_routes.preferred(ask, host.hostname, host.routes)
    if rejected_by_proxy(ask, host.gateway, route):
        return None
    targets = ask(l4_routes.l4_backends, host.gateway, route)
    return Needs(frozenset(targets.clusters), frozenset(targets.services))


def clusters_of_gateway(
    ask: Ask, key: Key
) -> Table[tuple[str, ClusterKey], tuple[Key, ClusterKey]]:
    """Return the clusters of a Gateway by name, each with the Gateway's key."""
    return ask.group_by(
        ask(gateway_needs, key),
        lambda _, needs: ((cluster.name, cluster) for cluster in needs.clusters),
        lambda named, _: (key, named[1]),
    )


def services(ask: Ask, key: Key) -> Table[Key, bool]:
    """Return the backends and endpoint pickers of a Gateway's routes, as the keys of a table."""
    return ask.group_by(ask(gateway_needs, key), lambda _, needs: needs.services, presence)


def gateways_using(ask: Ask, service: Key) -> tuple[Key, ...]:
    """Return the Gateways whose routes or listeners refer to a Service, sorted.

    The endpoint picker of an InferencePool counts as one that the routes of the pool refer to, and
    the authorization server of a SecurityPolicy as one that its targets refer to.
    """
    name = service[1:]
    pools = (pool[1:] for pool in ask.read(pools_by_picker(*name)))
    referring = {route for one in (name, *pools) for route in ask.read(routes_by_service(*one))}
    targets = {
        (target.kind, key[1], target.name)
        for key in ask.read(policies_by_server(*name))
        for target in ask.read(key).targets
    }
    referring |= {target for target in targets if target[0] != "Gateway"}
    owners = {
        parent_result.gateway for route in referring for parent_result in ask(parent_results, route)
    }
    for holder in ask.read(listeners_by_service(*name)):
        owner = holder if holder[0] == "Gateway" else ask(parent_of, holder)
        owners |= {owner} if owner is not None else set()
    owners |= {target for target in targets if ask(is_managed_gateway, target)}
    return tuple(sorted(owner for owner in owners if ask.entry(services, owner, key=service)))


def secrets(ask: Ask, key: Key) -> tuple[SecretFile, ...]:
    """Return the secrets of a Gateway's routes, sorted by name, without duplicates."""
    by_name = {
        secret.name: secret
        for needs in ask(_with_secrets_or_snippets, key).values()
        for secret in needs.secrets
    }
    return tuple(by_name[name] for name in sorted(by_name))


def route_snippets(ask: Ask, key: Key) -> tuple[NginxSnippet, ...]:
    """Return the ``main`` and ``http`` snippets of routes, in their order, without duplicates."""
    snippets = (
        snippet
        for needs in ask(_with_secrets_or_snippets, key).values()
        for snippet in needs.snippets
    )
    return tuple(dict.fromkeys(snippets))


def _with_secrets_or_snippets(ask: Ask, key: Key) -> Table[HostnameKey, Needs]:
    """Return the dependencies of the hostnames that have secrets or snippets. They are few."""
    return ask.derive(
        ask(gateway_needs, key),
        lambda _, needs: needs if needs.secrets or needs.snippets else None,
    )
