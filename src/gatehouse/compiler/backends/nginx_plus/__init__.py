"""The back end for NGINX Plus: upstream sets become what its API calls servers. Pure.

An unchanged upstream, and an unchanged server of a changed one, is the same object as before, so
that the transport need not look at it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gatehouse.compiler.ir import load_balancing as ir
from gatehouse.dataplane import upstream_name
from gatehouse.dataplane.nginx_plus import DesiredUpstreams, Server, Upstream

__all__ = ["Renderer"]


class Renderer:
    """Renders one load balancer, again and again."""

    def __init__(self) -> None:
        self._last: Mapping[upstream_name.UpstreamName, tuple[ir.UpstreamSet | None, Upstream]] = {}

    def render(self, balancer: ir.LoadBalancer) -> DesiredUpstreams:
        """Give what every host of the load balancer is to hold."""
        made: dict[upstream_name.UpstreamName, tuple[ir.UpstreamSet | None, Upstream]] = {}
        for name, each in _asked(balancer).items():
            source, before = self._last.get(name, (None, None))
            if before is not None and each is source:
                made[name] = (each, before)
            else:
                made[name] = (each, _upstream(name, each, before))
        self._last = made
        return DesiredUpstreams(
            {name: upstream for name, (_, upstream) in made.items()},
            drain=balancer.drain,
            resync=balancer.resync,
            timeout=balancer.timeout,
        )


def _asked(balancer: ir.LoadBalancer) -> Mapping[upstream_name.UpstreamName, ir.UpstreamSet | None]:
    """Give all upstreams that are ours; None for one that is to be empty."""
    return {
        **dict.fromkeys(balancer.released_upstreams),
        **{each.name: each for each in balancer.upstreams},
    }


def _upstream(
    name: upstream_name.UpstreamName, asked: ir.UpstreamSet | None, before: Upstream | None
) -> Upstream:
    if asked is None:
        return Upstream(name, ())
    shared = _parameters(asked.parameters)
    known = before.by_address if before is not None else dict[str, Server]()
    servers = []
    for each in asked.servers:
        # The stream context has no word for draining; ``down`` keeps the connections there are.
        leaving: dict[str, Any] = (
            {"drain" if name.context == "http" else "down": True} if each.draining else {}
        )
        server = Server(each.address, **shared, **leaving)
        same = known.get(each.address)
        servers.append(same if same == server else server)
    return Upstream(name, servers)


def _parameters(asked: ir.Parameters) -> Mapping[str, Any]:
    found = {name: getattr(asked, name) for name in asked.__struct_fields__}
    return {name: value for name, value in found.items() if value is not None}
