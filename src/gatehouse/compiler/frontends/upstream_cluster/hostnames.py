"""Hostnames of UpstreamClusters, and conflicts between them: the current owner wins.

The record of a cluster contains the hostnames that it owns, so that no edit of another cluster
takes one away. Of clusters without such a record, `metadata.name` wins over `serverNames`, then the
oldest cluster, then the first by name.
"""

from __future__ import annotations

import msgspec

from gatehouse.apis import upstream_clusters as api
from gatehouse.compiler.frontends.upstream_cluster.attachment import _named as selected_gateways
from gatehouse.compiler.frontends.upstream_cluster.attachment import gateways_of_cluster
from gatehouse.compiler.frontends.upstream_cluster.inputs import hostname_bucket
from gatehouse.compiler.frontends.upstream_cluster.record import (
    ClusterRecord,
    cluster_record,
    effective_gates,
)
from gatehouse.compiler.frontends.upstream_cluster.servers import is_name
from gatehouse.incremental.query import Ask, Key

Serving = tuple[Key, Key]
"""A Gateway and an UpstreamCluster that it serves."""


class ClusterHostnames(msgspec.Struct, frozen=True):
    """Hostnames of a cluster at a Gateway."""

    own: tuple[str, ...] = ()
    """Hostnames in lower case, sorted."""
    lost: tuple[tuple[str, Key], ...] = ()
    """Hostnames that another cluster owns, with that cluster."""


def requested_hostnames(ask: Ask, key: Key) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the valid hostnames in a cluster's spec, sorted, and the problems of others."""
    cluster = ask.read(key)
    if not isinstance(cluster, api.UpstreamCluster):
        return (), ()
    good, problems = [], []
    listed = cluster.spec.secure_serving.server_names
    places = [("metadata.name", cluster.metadata.name)]
    places += [(f"spec.secureServing.serverNames[{i}]", name) for i, name in enumerate(listed)]
    for place, name in places:
        if is_name(name.lower()):
            good.append(name.lower())
        else:
            problems.append(f"{place}: {name!r} must be a hostname")
    return tuple(sorted(set(good))), tuple(problems)


def hostname_owner(ask: Ask, gateway: Key, host: str) -> Key | None:
    """Return the cluster that owns a hostname at a Gateway; None if there is none."""
    rivals = [
        (_precedence(ask, key, gateway, host), key)
        for key in ask.read(hostname_bucket(host))
        if gateway in ask(gateways_of_cluster, key)
    ]
    return min(rivals)[1] if rivals else None


def _precedence(ask: Ask, key: Key, gateway: Key, host: str) -> tuple[bool, bool, bool, str]:
    """Return the sort key of a cluster that requests a hostname. The first owns it."""
    owned_at = cluster_record(ask, key).gateways_with(host)
    metadata = ask.read(key).metadata
    return (
        gateway not in owned_at,
        not owned_at,
        metadata.name.lower() != host,
        metadata.creation_timestamp,
    )


def cluster_hostnames(ask: Ask, gateway: Key, key: Key) -> ClusterHostnames:
    """Return the hostnames that a cluster owns at a Gateway, and those that it lost."""
    own, lost = [], []
    for host in ask(requested_hostnames, key)[0]:
        winner = ask(hostname_owner, gateway, host)
        if winner == key or winner is None:
            own.append(host)
        else:
            lost.append((host, winner))
    return ClusterHostnames(tuple(own), tuple(lost))


def next_record(ask: Ask, key: Key) -> ClusterRecord:
    """Return the record of a cluster after this pass. Plain function.

    A hostname stays owned while its Gateway exists but has no valid listener for UpstreamClusters.
    """
    serving, before = ask(gateways_of_cluster, key), cluster_record(ask, key)
    owned = {
        (gateway, host) for gateway in serving for host in ask(cluster_hostnames, gateway, key).own
    }
    requested, selected = ask(requested_hostnames, key)[0], ask(selected_gateways, key).gateways
    for gateway, host in before.hosts:
        waits = gateway not in serving and (selected is None or gateway in selected)
        if waits and host in requested and ask.read(gateway) is not None:
            owned.add((gateway, host))
    return ClusterRecord(frozenset(owned), effective_gates(ask, key).enabled)
