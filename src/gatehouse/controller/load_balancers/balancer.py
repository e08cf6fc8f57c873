"""State of one load balancer, and which upstreams it owns. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from gatehouse.compiler.backends import nginx_plus
from gatehouse.compiler.frontends import external_load_balancer as front
from gatehouse.compiler.ir.load_balancing import Machines
from gatehouse.dataplane.delivery import HostReport
from gatehouse.dataplane.nginx_plus import DesiredUpstreams
from gatehouse.dataplane.upstream_name import UpstreamName
from gatehouse.incremental.query import Key

RELEASED: Key = ()
"""In place of the Service of an owned upstream that no Service claims."""


class Balancer(msgspec.Struct):
    """State of a load balancer."""

    key: Key
    """Key of the object that requests it."""
    compiled: front.CompiledLoadBalancer
    owned: Mapping[UpstreamName, Key]
    """Owned upstreams, each with its Service or :data:`RELEASED`."""
    desired: DesiredUpstreams | None = None
    """Desired upstreams of its hosts. None if they stay unchanged or hosts are machines."""
    served: str = ""
    """Desired version of machines; empty if there are none or none has connected."""
    reports: dict[str, HostReport] = {}
    """Newest report by host, also of removed hosts."""
    generated: nginx_plus.GeneratedUpstreams | None = None
    """Last result of the back end."""

    @property
    def name(self) -> str:
        """Return the name used in messages and by the transport."""
        return front.source_name(self.key)

    @property
    def version(self) -> str:
        """Return the desired version of its hosts; empty if they stay unchanged."""
        return self.desired.version if self.desired else self.served

    def ordered(self) -> list[HostReport]:
        """Return a report for each host, in the order of the hosts."""
        hosts = self.compiled.balancer.hosts if self.compiled.balancer else ()
        return [self.reports.get(host.place) or HostReport(host.place) for host in hosts]

    def update(self, compiled: front.CompiledLoadBalancer) -> None:
        """Replace the compiled state and update the owned upstreams."""
        previous, current = self.compiled.balancer, compiled.balancer
        if isinstance(previous, Machines) and isinstance(current, Machines):
            compiled = msgspec.structs.replace(
                compiled, balancer=merge_last_known(previous, current)
            )
        self.compiled = compiled
        if compiled.balancer is not None:
            desired = frozenset(upstream.name for upstream in compiled.balancer.upstreams)
            for host, report in self.reports.items():
                # An upstream that is desired again may only be reported empty by a later report.
                if report.empty & desired:
                    empty = report.empty - desired
                    self.reports[host] = msgspec.structs.replace(report, empty=empty)
        self.owned = next_owned_upstreams(self.owned, compiled, self.ordered())


def merge_last_known(previous: Machines, current: Machines) -> Machines:
    """Return the machines to serve now, with previous endpoints of retained upstreams."""
    last_known = {
        cluster.name: cluster for cluster in previous.gateway.clusters if cluster.endpoints
    }
    retained = last_known.keys() & set(current.retained_upstreams)
    clusters = tuple(
        last_known[cluster.name] if cluster.name in retained and not cluster.endpoints else cluster
        for cluster in current.gateway.clusters
    )
    if clusters == current.gateway.clusters:
        return current
    gateway = msgspec.structs.replace(current.gateway, clusters=clusters)
    if gateway == previous.gateway:
        gateway = previous.gateway
    return msgspec.structs.replace(current, gateway=gateway)


def next_owned_upstreams(
    owned: Mapping[UpstreamName, Key],
    compiled: front.CompiledLoadBalancer,
    reports: Sequence[HostReport],
) -> Mapping[UpstreamName, Key]:
    """Return the owned upstreams: the desired ones, and those not yet empty on all hosts.

    The latter are :data:`RELEASED`: their Service has no precedence if it claims them again.
    """
    balancer = compiled.balancer
    if balancer is None:
        return owned
    services = dict(compiled.claimed)
    result = {
        **owned,
        **{upstream.name: services[upstream.name] for upstream in balancer.upstreams},
        **dict.fromkeys(balancer.released_upstreams, RELEASED),
    }
    for name in compiled.forgotten:
        result.pop(name, None)
    for name in balancer.released_upstreams:
        if reports and all(name in report.empty for report in reports):
            result.pop(name, None)
    return owned if result == owned else result
