"""The names under which clusters are reached, and who has one that several want: the older."""

from __future__ import annotations

import msgspec

from gatehouse.apis import upstream_clusters as api
from gatehouse.compiler.frontends.upstream_cluster.attachment import gateways_of
from gatehouse.compiler.frontends.upstream_cluster.inputs import named
from gatehouse.compiler.frontends.upstream_cluster.servers import is_name
from gatehouse.incremental.query import Ask, Key

Place = tuple[Key, Key]
"""A Gateway, and an UpstreamCluster that it serves."""


class Hosts(msgspec.Struct, frozen=True):
    """The names of a cluster at a Gateway."""

    own: tuple[str, ...] = ()
    """Lower case, sorted."""
    lost: tuple[tuple[str, Key], ...] = ()
    """Those that an older cluster has, and which one."""


def wanted(ask: Ask, key: Key) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Give the names that a cluster asks for, sorted, and what is wrong with others."""
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
            problems.append(f"{place}: {name!r} is not a host name, and is not served")
    return tuple(sorted(set(good))), tuple(problems)


def holder(ask: Ask, which: tuple[Key, str]) -> Key | None:
    """Give the cluster that has a name at a Gateway."""
    gateway, host = which
    rivals = [
        (ask.read(key).metadata.creation_timestamp, key)
        for key in ask.read(named(host))
        if gateway in ask(gateways_of, key)
    ]
    return min(rivals)[1] if rivals else None


def hosts(ask: Ask, place: Place) -> Hosts:
    """Give the names that a cluster has at a Gateway, and those that it does not get."""
    gateway, key = place
    own, lost = [], []
    for host in ask(wanted, key)[0]:
        winner = ask(holder, (gateway, host))
        if winner == key or winner is None:
            own.append(host)
        else:
            lost.append((host, winner))
    return Hosts(tuple(own), tuple(lost))
