"""Shares that data planes have of limits of requests in flight, divided by their use.

A data plane that needs more gets more, as from KubeGateway's limiter. The result depends only on
the last reports, so that a restarted controller continues with the same shares.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from gatehouse.compiler.frontends.inputs import limit_use_key, replicas_key, sharing_key
from gatehouse.compiler.frontends.upstream_cluster.attachment import gateways_of_cluster
from gatehouse.compiler.ir.kube_apiserver import DividedLimit, FlowSchema
from gatehouse.incremental.query import Ask, Key

MINIMUM_DIVISOR = 20
"""Part of a limit that a data plane has without use: one twentieth, if that leaves half of it to be
divided by use."""

_DataPlane = tuple[str, str]


class DataPlaneUse(msgspec.Struct, frozen=True):
    """Use that a data plane makes of the limits of an UpstreamCluster."""

    sharing: bool
    """True if its agent serves shares. Others have the even share."""
    use: Mapping[str, int] | None = None
    """Requests in flight that it needs, by schema; None if not known."""


def even_share(total: int, count: int) -> int:
    """Return the share of each data plane without regard to their use."""
    return max(min(total, 1), total // max(1, count))


def minimum_share(total: int, count: int) -> int:
    """Return the share of a data plane without use."""
    return max(min(total, 1), min(total // MINIMUM_DIVISOR, total // (2 * max(1, count))))


def _divide(total: int, needs: Mapping[_DataPlane, int], least: int) -> dict[_DataPlane, int]:
    """Divide a limit by need; what exceeds all needs is divided evenly.

    ``least``: minimum share. The sum exceeds ``total`` only if that is less than all of these.
    """
    if not needs:
        return {}
    needs = {name: max(least, min(need, total)) for name, need in needs.items()}
    spare = total - sum(needs.values())
    if spare >= 0:
        return {name: need + spare // len(needs) for name, need in needs.items()}
    excess = {name: need - least for name, need in needs.items()}
    left, whole = max(0, total - least * len(needs)), max(1, sum(excess.values()))
    return {name: least + left * excess[name] // whole for name in needs}


def uses(ask: Ask, key: Key) -> Mapping[_DataPlane, DataPlaneUse]:
    """Return the use that connected data planes make of the limits of an UpstreamCluster."""
    return dict(_uses(ask, key))


def _uses(ask: Ask, key: Key) -> Iterator[tuple[_DataPlane, DataPlaneUse]]:
    for gateway in ask(gateways_of_cluster, key):
        sharing = ask.read(sharing_key(gateway)) or frozenset()
        reported = ask.read(limit_use_key(gateway, key[2])) or {}
        for name in ask.read(replicas_key(gateway)) or ():
            yield (gateway[1], name), DataPlaneUse(name in sharing, reported.get(name))


def divided_limit(
    planes: Mapping[_DataPlane, DataPlaneUse], schema: str, total: int
) -> Mapping[_DataPlane, int]:
    """Return the share of each data plane in the limit of a schema."""
    count = len(planes)
    even, least = even_share(total, count), minimum_share(total, count)
    shares = {name: even for name, plane in planes.items() if not plane.sharing}
    needs = {
        name: least if _is_unknown(plane, schema) else (plane.use or {})[schema]
        for name, plane in planes.items()
        if plane.sharing
    }
    return {**shares, **_divide(max(0, total - sum(shares.values())), needs, least)}


def _is_unknown(plane: DataPlaneUse, schema: str) -> bool:
    """Return whether a data plane that serves shares has not reported its use of a limit."""
    return plane.sharing and schema not in (plane.use or {})


def with_shares(ask: Ask, gateway: Key, key: Key, schema: FlowSchema) -> FlowSchema:
    """Return a schema with the shares of a Gateway's data planes, if its limit is divided."""
    if schema.divided is None:
        return schema
    planes, total = ask(uses, key), schema.divided.total
    shares = divided_limit(planes, schema.name, total)
    unknown = {name for name, plane in planes.items() if _is_unknown(plane, schema.name)}
    # Data planes without a known use have equal shares, and keep the ones that they had.
    initial = shares[min(unknown)] if unknown else minimum_share(total, len(planes))
    own = ((gateway[1], name) for name in sorted(ask.read(replicas_key(gateway)) or ()))
    known = tuple(
        (plane[1], shares[plane])
        for plane in own
        if plane in planes and planes[plane].sharing and plane not in unknown
    )
    divided = DividedLimit(total, initial, known)
    return msgspec.structs.replace(schema, divided=divided)
