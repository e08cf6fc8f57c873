"""Dependencies of a Gateway's routes: clusters, Services, secrets and snippets."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gatehouse.compiler.frontends.gateway_api.attachment.parent_refs import parent_results
from gatehouse.compiler.frontends.gateway_api.attachment.virtual_hosts import (
    HostKey,
    Name,
    stream_hosts,
    virtual_hosts,
)
from gatehouse.compiler.frontends.gateway_api.inputs import routes_by_service
from gatehouse.compiler.frontends.gateway_api.routes import l4_routes
from gatehouse.compiler.frontends.gateway_api.routes.backend_refs import ClusterKey
from gatehouse.compiler.frontends.gateway_api.routes.rules import translate
from gatehouse.compiler.ir.gateway import SecretFile
from gatehouse.compiler.ir.settings import Snippet
from gatehouse.incremental.grouping import Grouping, Union, group_by, presence, union
from gatehouse.incremental.query import Ask, Key
from gatehouse.incremental.table import Table


class Needs(msgspec.Struct, frozen=True):
    """Dependencies of one hostname."""

    clusters: frozenset[ClusterKey] = frozenset()
    services: frozenset[tuple[str, str]] = frozenset()
    """Services that routes refer to."""
    secrets: tuple[SecretFile, ...] = ()
    snippets: tuple[Snippet, ...] = ()
    """Snippets for the contexts ``main`` and ``http``."""


def gateway_needs(ask: Ask, key: Key) -> Table[Name, Needs]:
    """Return the dependencies of each hostname of a Gateway."""
    return ask(_needs, key).whole


def _needs(ask: Ask, key: Key) -> Union[Name, Needs]:
    hosts = ask.map(host_needs, ask(virtual_hosts, key))
    return union(ask.last(), (hosts, ask.map(stream_needs, ask(stream_hosts, key))))


def host_needs(ask: Ask, host: HostKey) -> Needs:
    """Return the dependencies of the routes of one virtual host."""
    translated = [ask(translate, (route, host.port, host.protocol)) for route in host.routes]
    shared_snippets = (
        snippet
        for each in translated
        for ranked in each.routes
        for snippet in ranked.route.snippets
        if snippet.context in ("main", "http")
    )
    return Needs(
        frozenset(cluster for each in translated for cluster in each.clusters),
        frozenset(service for each in translated for service in each.services),
        tuple(secret for each in translated for secret in each.secrets),
        tuple(dict.fromkeys(shared_snippets)),
    )


def stream_needs(ask: Ask, host: HostKey) -> Needs | None:
    """Return the dependencies of the L4 route of a hostname; None if no route serves it."""
    if not host.routes:
        return None
    targets = ask(l4_routes.targets, l4_routes.oldest(ask, host.routes))
    return Needs(frozenset(targets.clusters), frozenset(targets.services))


def clusters(ask: Ask, key: Key) -> Table[tuple[str, ClusterKey], tuple[Key, ClusterKey]]:
    """Return the clusters of a Gateway by name, each with the Gateway's key."""
    return ask(_clusters, key).groups


Named = tuple[str, ClusterKey]


def _clusters(ask: Ask, key: Key) -> Grouping[Key, Name, Needs, Named, tuple[Key, ClusterKey]]:
    return group_by(ask.last(), ask(gateway_needs, key), _clusters_of, _of_gateway, key)


def _clusters_of(_: Key, __: Name, needs: Needs) -> Iterable[Named]:
    return ((cluster.name, cluster) for cluster in needs.clusters)


def _of_gateway(gateway: Key, named: Named, _: object) -> tuple[Key, ClusterKey]:
    return gateway, named[1]


def services(ask: Ask, key: Key) -> Table[tuple[str, str], bool]:
    """Return the Services that a Gateway's routes refer to, as the keys of a table."""
    return ask(_services, key).groups


def _services(ask: Ask, key: Key) -> Grouping[None, Name, Needs, tuple[str, str], bool]:
    return group_by(ask.last(), ask(gateway_needs, key), _services_of, presence, None)


def _services_of(_: None, __: Name, needs: Needs) -> Iterable[tuple[str, str]]:
    return needs.services


def users(ask: Ask, service: tuple[str, str]) -> tuple[Key, ...]:
    """Return the Gateways whose routes refer to a Service, sorted."""
    referring = ask.read(routes_by_service(*service))
    owners = {each.gateway for route in referring for each in ask(parent_results, route)}
    return tuple(sorted(owner for owner in owners if service in ask(services, owner)))


def secrets(ask: Ask, key: Key) -> tuple[SecretFile, ...]:
    """Return the secrets of a Gateway's routes, sorted by name, without duplicates."""
    needs = ask(gateway_needs, key)
    found = {
        each.name: each
        for name in ask(_with_secrets_or_snippets, key).groups
        for each in needs[name].secrets
    }
    return tuple(found[name] for name in sorted(found))


def snippets(ask: Ask, key: Key) -> tuple[Snippet, ...]:
    """Return the ``main`` and ``http`` snippets of routes, in their order, without duplicates."""
    needs = ask(gateway_needs, key)
    found = (
        each for name in ask(_with_secrets_or_snippets, key).groups for each in needs[name].snippets
    )
    return tuple(dict.fromkeys(found))


def _with_secrets_or_snippets(ask: Ask, key: Key) -> Grouping[None, Name, Needs, Name, bool]:
    """Return the hostnames that have secrets or snippets. They are few."""
    return group_by(ask.last(), ask(gateway_needs, key), _if_secrets_or_snippets, presence, None)


def _if_secrets_or_snippets(_: None, name: Name, needs: Needs) -> Iterable[Name]:
    return [name] if needs.secrets or needs.snippets else []
