"""Back end for NGINX Plus: upstream sets to desired upstreams of its API. No I/O.

Unchanged upstreams, and unchanged servers of a changed upstream, keep their object identity, so
that the transport can skip them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gatehouse.compiler.ir import load_balancing as ir
from gatehouse.dataplane import upstream_name
from gatehouse.dataplane.nginx_plus import DesiredUpstreams, PlusServer, Upstream

__all__ = ["GeneratedUpstreams", "generate_upstreams"]


class GeneratedUpstreams(msgspec.Struct, frozen=True):
    """A load balancer with the desired upstreams of every host."""

    balancer: ir.LoadBalancer
    desired: DesiredUpstreams


def generate_upstreams(
    balancer: ir.LoadBalancer, last: GeneratedUpstreams | None = None
) -> GeneratedUpstreams:
    """Return the desired upstreams of a load balancer. ``last``: the previous result for it."""
    sources = _owned_upstreams(last.balancer) if last is not None else {}
    known = last.desired.upstreams if last is not None else {}
    upstreams = {}
    for name, source in _owned_upstreams(balancer).items():
        before = known.get(name)
        if before is None or source is not sources[name]:
            before = _upstream(name, source, before)
        upstreams[name] = before
    desired = DesiredUpstreams(
        upstreams, drain=balancer.drain, resync=balancer.resync, timeout=balancer.timeout
    )
    return GeneratedUpstreams(balancer, desired)


def _owned_upstreams(
    balancer: ir.LoadBalancer,
) -> Mapping[upstream_name.UpstreamName, ir.UpstreamSet | None]:
    """Return all owned upstreams by name; None for one that must become empty."""
    return {
        **dict.fromkeys(balancer.released_upstreams),
        **{upstream.name: upstream for upstream in balancer.upstreams},
    }


def _upstream(
    name: upstream_name.UpstreamName, desired: ir.UpstreamSet | None, before: Upstream | None
) -> Upstream:
    if desired is None:
        return Upstream(name, ())
    shared = _parameters(desired.parameters)
    known = before.by_address if before is not None else dict[str, PlusServer]()
    servers = []
    for source in desired.servers:
        # The stream API has no draining state; ``down`` keeps existing connections.
        state: dict[str, Any] = (
            {"drain" if name.context == "http" else "down": True} if source.draining else {}
        )
        server = PlusServer(source.address, **shared, **state)
        previous = known.get(source.address)
        servers.append(previous if previous == server else server)
    return Upstream(name, servers)


def _parameters(parameters: ir.ServerParameters) -> Mapping[str, Any]:
    values = {name: getattr(parameters, name) for name in parameters.__struct_fields__}
    return {name: value for name, value in values.items() if value is not None}
