"""Attachment of UpstreamClusters to listeners of the protocol, at all or at named Gateways."""

from __future__ import annotations

import msgspec

from gatehouse.apis import upstream_clusters as api
from gatehouse.compiler.frontends.gateway_api.classes import gateways, is_managed
from gatehouse.compiler.frontends.gateway_api.listeners.listeners import (
    ListenerSpec,
    listener_specs,
)
from gatehouse.compiler.frontends.gateway_api.listeners.protocols import KUBE_APISERVER
from gatehouse.compiler.frontends.upstream_cluster.inputs import CLUSTERS
from gatehouse.incremental.query import Ask, Key
from gatehouse.incremental.table import Table


class Named(msgspec.Struct, frozen=True):
    """Parsed annotation with Gateways."""

    gateways: tuple[Key, ...] | None = None
    """The named Gateways; None for all."""
    problems: tuple[str, ...] = ()


def named(ask: Ask, key: Key) -> Named:
    """Parse the annotation with the Gateways of an UpstreamCluster."""
    found = ask.read(key)
    if not isinstance(found, api.UpstreamCluster) or api.GATEWAYS not in found.metadata.annotations:
        return Named()
    gateways, problems = [], []
    for part in found.metadata.annotations[api.GATEWAYS].split(","):
        namespace, slash, name = part.strip().partition("/")
        if slash and namespace and name and "/" not in name:
            gateways.append(("Gateway", namespace, name))
        elif part.strip():
            problems.append(f"annotation {api.GATEWAYS}: {part.strip()!r} must be namespace/name")
    return Named(tuple(dict.fromkeys(gateways)), tuple(problems))


def listeners(ask: Ask, gateway: Key) -> tuple[ListenerSpec, ...]:
    """Return the listeners of a Gateway that serve UpstreamClusters."""
    return tuple(
        spec
        for spec in ask(listener_specs, gateway)
        if spec.protocol == KUBE_APISERVER and spec.accepted and "UpstreamCluster" in spec.kinds
    )


def serving(ask: Ask, _: str = "") -> Table[Key, Key]:
    """Return the managed Gateways with a listener that serves UpstreamClusters."""
    return ask.map(_serving, ask(gateways, ""))


def _serving(ask: Ask, key: Key) -> Key | None:
    return key if ask(serves, key) else None


def serves(ask: Ask, gateway: Key) -> bool:
    """Return whether a Gateway is managed and has a listener that serves UpstreamClusters."""
    return bool(ask(is_managed, gateway) and ask(listeners, gateway))


def gateways_of(ask: Ask, key: Key) -> tuple[Key, ...]:
    """Return the Gateways that serve an UpstreamCluster, sorted."""
    if not isinstance(ask.read(key), api.UpstreamCluster):
        return ()
    named_gateways = ask(named, key).gateways
    if named_gateways is not None:
        return tuple(sorted(each for each in named_gateways if ask(serves, each)))
    return tuple(ask(serving, ""))


def clusters_of(ask: Ask, gateway: Key) -> tuple[Key, ...]:
    """Return the UpstreamClusters that attach to a Gateway, sorted."""
    return tuple(key for key in ask.read(CLUSTERS) if gateway in ask(gateways_of, key))


def problems(ask: Ask, key: Key) -> tuple[str, ...]:
    """Return the problems of the Gateways that an object names."""
    found = ask(named, key)
    missing = [each for each in found.gateways or () if not ask(serves, each)]
    unserved = [
        f"annotation {api.GATEWAYS}: Gateway {each[1]}/{each[2]} has no listener with protocol "
        f"{KUBE_APISERVER} that allows UpstreamClusters"
        for each in missing
    ]
    return (*found.problems, *unserved)


def attached(ask: Ask, gateway: Key) -> dict[tuple[Key, str], int]:
    """Return the number of UpstreamClusters on each listener of a Gateway and its ListenerSets."""
    count = len(ask(clusters_of, gateway)) if ask(listeners, gateway) else 0
    return {spec.key: count for spec in ask(listeners, gateway)}
