"""Request mirroring: responses to copies are discarded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from envoy.config.route.v3 import route_components_pb2 as components
from envoy.type.v3 import percent_pb2

from gatehouse.compiler.ir import http as ir

_WHOLE = 1_000_000


def mirror_policies(
    targets: Iterable[ir.Mirror], clusters: Mapping[str, ir.Cluster]
) -> list[components.RouteAction.RequestMirrorPolicy]:
    """Return the mirror policies of a route; mirrors without a cluster are skipped."""
    policies = []
    for mirror in targets:
        share = round(mirror.numerator * _WHOLE / mirror.denominator)
        if mirror.cluster not in clusters or share <= 0:
            continue
        policy = components.RouteAction.RequestMirrorPolicy(
            cluster=mirror.cluster, disable_shadow_host_suffix_append=True
        )
        if share < _WHOLE:
            fraction = policy.runtime_fraction.default_value
            fraction.numerator = share
            fraction.denominator = percent_pb2.FractionalPercent.MILLION
        policies.append(policy)
    return policies
