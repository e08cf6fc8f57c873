"""Envoy's runtime: settings that resources rely on, and limits of requests in flight.

Envoy counts requests in flight by cluster, and a changed cluster is a new one with a count of 0.
But the limit itself may be a runtime value. So limits are in one runtime resource, and a changed
limit leaves the cluster and its count as they are.

All data planes of a Gateway get the same resource. For limits that data planes share, it has the
share of each, and an agent keeps only its own (:func:`own_limits`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from envoy.service.runtime.v3 import rtds_pb2
from google.protobuf import json_format

from gatehouse.dataplane.xds.resources import RUNTIME_TYPE_URL, XdsResource

MAX_PROGRAM_SIZE = 100_000
"""Maximum number of instructions of a compiled regular expression. Envoy's default is 100."""

RUNTIME = {"re2.max_program_size.error_level": MAX_PROGRAM_SIZE}
"""Static layer of Envoy's runtime."""

LIMITS_LAYER = "gatehouse.limits"
"""Name of the runtime resource with the limits, and of its layer."""

_FETCH_TIMEOUT = "1s"
"""Maximum delay of Envoy's start while no control plane is connected."""


def runtime_layers() -> dict[str, object]:
    """Return the runtime of Envoy's bootstrap configuration."""
    source = {"ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": _FETCH_TIMEOUT}
    limits = {"name": LIMITS_LAYER, "rtds_config": source}
    return {
        "layers": [
            {"name": "static", "static_layer": RUNTIME},
            {"name": LIMITS_LAYER, "rtds_layer": limits},
        ]
    }


_TOTALS, _SHARES = "gatehouse.total", "gatehouse.share"
"""Fields of the layer: limits by Envoy cluster that data planes share, and their shares by
instance. The instance with an empty name is one without a share."""


class SharedLimit(msgspec.Struct, frozen=True):
    """A limit that data planes share."""

    total: int
    """Limit of all data planes together."""
    initial: int
    """Limit of a data plane that has no share yet."""
    shares: Mapping[str, int] = {}
    """Limit by name of the data plane."""


def limits_resource(
    max_requests: Mapping[str, int],
    shared: Mapping[str, SharedLimit] | None = None,
    others: Mapping[str, int] | None = None,
) -> XdsResource:
    """Return the runtime resource with the limits of requests in flight by Envoy cluster.

    ``shared``: limits that data planes share. For them, ``max_requests`` has the limit of data
    planes whose agent does not serve shares. ``others``: other settings, by key of the runtime.
    """
    proto = rtds_pb2.Runtime(name=LIMITS_LAYER)
    proto.layer.update({_key(cluster): limit for cluster, limit in sorted(max_requests.items())})
    proto.layer.update(others or {})
    shares: dict[str, dict[str, int]] = {}
    for cluster, limit in (shared or {}).items():
        for instance, share in {**limit.shares, "": limit.initial}.items():
            shares.setdefault(instance, {})[cluster] = share
    if shared:
        totals = {cluster: limit.total for cluster, limit in shared.items()}
        proto.layer.update({_TOTALS: totals, _SHARES: shares})
    body = proto.SerializeToString(deterministic=True)
    return XdsResource.make(RUNTIME_TYPE_URL, LIMITS_LAYER, body)


def own_limits(
    resource: XdsResource, instance: str, previous: XdsResource | None = None
) -> XdsResource:
    """Return the runtime resource for one data plane.

    ``previous``: its resource so far. A data plane without a share keeps the one that it had, for
    example while a restarted control plane does not know its use.
    """
    layer, before = _layer(resource), _layer(previous)
    if _SHARES not in layer:
        return resource
    shares = layer.pop(_SHARES)
    own = shares.get(instance, {})
    for cluster, total in layer[_TOTALS].items():
        key = _key(cluster)
        if cluster in own:
            layer[key] = own[cluster]
        elif cluster in before.get(_TOTALS, {}):
            layer[key] = min(before[key], total)
        else:
            layer[key] = shares[""][cluster]
    proto = rtds_pb2.Runtime(name=resource.name)
    proto.layer.update(layer)
    return msgspec.structs.replace(resource, body=proto.SerializeToString(deterministic=True))


def shared_totals(resource: XdsResource | None) -> Mapping[str, int]:
    """Return the limits in a runtime resource that data planes share, by Envoy cluster."""
    return {name: int(total) for name, total in _layer(resource).get(_TOTALS, {}).items()}


def own_limit(resource: XdsResource, cluster: str) -> int:
    """Return the limit of an Envoy cluster in the runtime resource of a data plane."""
    return int(_layer(resource)[_key(cluster)])


def _layer(resource: XdsResource | None) -> dict[str, Any]:
    if resource is None:
        return {}
    return json_format.MessageToDict(rtds_pb2.Runtime.FromString(resource.body).layer)


def _key(cluster: str) -> str:
    return f"circuit_breakers.{cluster}.default.max_requests"
