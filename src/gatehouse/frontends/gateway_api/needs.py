"""What the routes of a Gateway need beside themselves: clusters, Services, secrets, snippets."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gatehouse.frontends.gateway_api.attaching.hosts import HostKey, stream_hosts, virtual_hosts
from gatehouse.frontends.gateway_api.routing import streams
from gatehouse.frontends.gateway_api.routing.backends import ClusterKey
from gatehouse.frontends.gateway_api.routing.rules import translate
from gatehouse.ir.gateway import SecretFile
from gatehouse.ir.settings import Snippet
from gatehouse.query import Ask, Key


class Needs(msgspec.Struct, frozen=True):
    """Each part without repetition."""

    clusters: tuple[ClusterKey, ...] = ()
    """Sorted."""
    services: frozenset[tuple[str, str]] = frozenset()
    """Those that are referred to."""
    secrets: tuple[SecretFile, ...] = ()
    """Sorted by name."""
    snippets: tuple[Snippet, ...] = ()
    """For the contexts around all servers, in the order of the routes."""


def gateway_needs(ask: Ask, key: Key) -> Needs:
    """Give what all routes of a Gateway need."""
    found = ask.each(host_needs, ask(virtual_hosts, key))
    for stream in ask(stream_hosts, key):
        if stream.route:
            targets = ask(streams.targets, stream.route)
            found.append(Needs(targets.clusters, frozenset(targets.services)))
    return _joined(found)


def host_needs(ask: Ask, host: HostKey) -> Needs:
    """Give what the routes of one virtual host need."""
    found = []
    for route in host.routes:
        translated = ask(translate, (route, host.port, host.protocol))
        around = (
            snippet
            for ranked in translated.routes
            for snippet in ranked.route.snippets
            if snippet.context in ("main", "http")
        )
        needs = Needs(
            translated.clusters,
            frozenset(translated.services),
            translated.secrets,
            tuple(dict.fromkeys(around)),
        )
        found.append(needs)
    return _joined(found)


def _joined(found: Iterable[Needs]) -> Needs:
    clusters: set[ClusterKey] = set()
    services: set[tuple[str, str]] = set()
    secrets: dict[str, SecretFile] = {}
    snippets: dict[Snippet, None] = {}
    for each in found:
        clusters.update(each.clusters)
        services |= each.services
        secrets.update({secret.name: secret for secret in each.secrets})
        snippets.update(dict.fromkeys(each.snippets))
    return Needs(
        tuple(sorted(clusters)),
        frozenset(services),
        tuple(secrets[name] for name in sorted(secrets)),
        tuple(snippets),
    )
