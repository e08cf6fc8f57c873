"""Hostnames of UpstreamClusters, and conflicts between them: the older cluster wins."""

from __future__ import annotations

import msgspec

from gatehouse.apis import upstream_clusters as api
from gatehouse.compiler.frontends.upstream_cluster.attachment import gateways_of
from gatehouse.compiler.frontends.upstream_cluster.inputs import named
from gatehouse.compiler.frontends.upstream_cluster.servers import is_name
from gatehouse.incremental.query import Ask, Key

Serving = tuple[Key, Key]
"""A Gateway and an UpstreamCluster that it serves."""


class Hosts(msgspec.Struct, frozen=True):
    """Hostnames of a cluster at a Gateway."""

    own: tuple[str, ...] = ()
    """Hostnames in lower case, sorted."""
    lost: tuple[tuple[str, Key], ...] = ()
    """Hostnames that an older cluster has, with that cluster."""


def requested_hostnames(ask: Ask, key: Key) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the valid hostnames in a cluster's spec, sorted, and the problems of others."""
    found = ask.read(key)
    if not isinstance(found, api.UpstreamCluster):
        return (), ()
    good, problems = [], []
    listed = found.spec.secure_serving.server_names
    places = [("metadata.name", found.metadata.name)]
    places += [(f"spec.secureServing.serverNames[{i}]", name) for i, name in enumerate(listed)]
    for place, name in places:
        if is_name(name.lower()):
            good.append(name.lower())
        else:
            problems.append(f"{place}: {name!r} must be a hostname")
    return tuple(sorted(set(good))), tuple(problems)


def hostname_owner(ask: Ask, which: tuple[Key, str]) -> Key | None:
    """Return the cluster that owns a hostname at a Gateway: the oldest; None if there is none."""
    gateway, host = which
    rivals = [
        (ask.read(key).metadata.creation_timestamp, key)
        for key in ask.read(named(host))
        if gateway in ask(gateways_of, key)
    ]
    return min(rivals)[1] if rivals else None


def hosts(ask: Ask, place: Serving) -> Hosts:
    """Return the hostnames that a cluster owns at a Gateway, and those that it lost."""
    gateway, key = place
    own, lost = [], []
    for host in ask(requested_hostnames, key)[0]:
        winner = ask(hostname_owner, (gateway, host))
        if winner == key or winner is None:
            own.append(host)
        else:
            lost.append((host, winner))
    return Hosts(tuple(own), tuple(lost))
