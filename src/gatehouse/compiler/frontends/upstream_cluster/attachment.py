"""Attachment of UpstreamClusters to listeners of the protocol, at all or at named Gateways."""

from __future__ import annotations

import msgspec

from gatehouse.apis import upstream_clusters as api
from gatehouse.compiler.frontends.gateway_api.classes import gateways, is_managed_gateway
from gatehouse.compiler.frontends.gateway_api.listeners.listeners import (
    ListenerProperties,
    listener_specs,
)
from gatehouse.compiler.frontends.gateway_api.listeners.protocols import KUBE_APISERVER
from gatehouse.compiler.frontends.upstream_cluster.inputs import CLUSTERS
from gatehouse.incremental.query import Ask, Key
from gatehouse.incremental.table import Table


class NamedGateways(msgspec.Struct, frozen=True):
    """Parsed annotation with Gateways."""

    gateways: tuple[Key, ...] | None = None
    """The named Gateways; None for all."""
    problems: tuple[str, ...] = ()


def _named(ask: Ask, key: Key) -> NamedGateways:
    """Parse the annotation with the Gateways of an UpstreamCluster."""
    cluster = ask.read(key)
    if (
        not isinstance(cluster, api.UpstreamCluster)
        or api.GATEWAYS_ANNOTATION not in cluster.metadata.annotations
    ):
        return NamedGateways()
    gateways, problems = [], []
    for part in cluster.metadata.annotations[api.GATEWAYS_ANNOTATION].split(","):
        namespace, slash, name = part.strip().partition("/")
        if slash and namespace and name and "/" not in name:
            gateways.append(("Gateway", namespace, name))
        elif part.strip():
            problems.append(
                f"annotation {api.GATEWAYS_ANNOTATION}: {part.strip()!r} must be namespace/name"
            )
    return NamedGateways(tuple(dict.fromkeys(gateways)), tuple(problems))


def cluster_listeners(ask: Ask, gateway: Key) -> tuple[ListenerProperties, ...]:
    """Return the listeners of a Gateway that serve UpstreamClusters."""
    return tuple(
        spec
        for spec in ask(listener_specs, gateway)
        if spec.protocol == KUBE_APISERVER and spec.accepted and "UpstreamCluster" in spec.kinds
    )


def serving(ask: Ask) -> Table[Key, Key]:
    """Return the managed Gateways with a listener that serves UpstreamClusters."""
    return ask.map(_serving, ask(gateways))


def _serving(ask: Ask, key: Key) -> Key | None:
    return key if ask(serves, key) else None


def serves(ask: Ask, gateway: Key) -> bool:
    """Return whether a Gateway is managed and has a listener that serves UpstreamClusters."""
    return bool(ask(is_managed_gateway, gateway) and ask(cluster_listeners, gateway))


def gateways_of_cluster(ask: Ask, key: Key) -> tuple[Key, ...]:
    """Return the Gateways that serve an UpstreamCluster, sorted."""
    if not isinstance(ask.read(key), api.UpstreamCluster):
        return ()
    named_gateways = ask(_named, key).gateways
    if named_gateways is not None:
        return tuple(
            sorted(named_gateway for named_gateway in named_gateways if ask(serves, named_gateway))
        )
    return tuple(ask(serving))


def clusters_of(ask: Ask, gateway: Key) -> tuple[Key, ...]:
    """Return the UpstreamClusters that attach to a Gateway, sorted."""
    return tuple(key for key in ask.read(CLUSTERS) if gateway in ask(gateways_of_cluster, key))


def gateway_problems(ask: Ask, key: Key) -> tuple[str, ...]:
    """Return the problems of the Gateways that an object names."""
    named = ask(_named, key)
    missing = [gateway for gateway in named.gateways or () if not ask(serves, gateway)]
    unserved = [
        f"annotation {api.GATEWAYS_ANNOTATION}: Gateway {gateway[1]}/{gateway[2]} has no listener "
        f"with protocol {KUBE_APISERVER} that allows UpstreamClusters"
        for gateway in missing
    ]
    return (*named.problems, *unserved)


def attached_clusters(ask: Ask, gateway: Key) -> dict[tuple[Key, str], int]:
    """Return the number of UpstreamClusters on each listener of a Gateway and its ListenerSets."""
    count = len(ask(clusters_of, gateway)) if ask(cluster_listeners, gateway) else 0
    return {spec.key: count for spec in ask(cluster_listeners, gateway)}
