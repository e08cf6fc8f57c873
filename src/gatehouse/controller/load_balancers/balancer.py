"""One load balancer as it is now, and which upstreams are its own. Pure."""

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


class Balancer(msgspec.Struct):
    """What is known of a load balancer."""

    key: Key
    """Of what asks for it."""
    compiled: front.Compiled
    owned: Mapping[UpstreamName, Key]
    """The upstreams that are ours, each with the Service that asked last."""
    holdings: DesiredUpstreams | None = None
    """What its hosts are to hold; None: they are left as they are, or are ours in whole."""
    served: str = ""
    """The version that machines are to serve; empty: there are none, or none has connected."""
    reports: dict[str, HostReport] = {}
    """By host; also of those that it has no more."""
    renderer: nginx_plus.Renderer = msgspec.field(default_factory=nginx_plus.Renderer)

    @property
    def name(self) -> str:
        """For people and for the transport."""
        return front.name_of(self.key)

    @property
    def version(self) -> str:
        """Of what its hosts are to hold; empty: they are left as they are."""
        return self.holdings.version if self.holdings else self.served

    def ordered(self) -> list[HostReport]:
        """Give a report for each host, in the order of the hosts."""
        hosts = self.compiled.balancer.hosts if self.compiled.balancer else ()
        return [self.reports.get(host.place) or HostReport(host.place) for host in hosts]

    def take(self, compiled: front.Compiled) -> None:
        """Take in what was compiled, and what of it is ours from now on."""
        before, now = self.compiled.balancer, compiled.balancer
        if isinstance(before, Machines) and isinstance(now, Machines):
            compiled = msgspec.structs.replace(compiled, balancer=merge_last_known(before, now))
        self.compiled = compiled
        if compiled.balancer is not None:
            wanted = frozenset(each.name for each in compiled.balancer.upstreams)
            for host, report in self.reports.items():
                # What is wanted again is not empty for long: only a later report may say so.
                if report.empty & wanted:
                    kept = report.empty - wanted
                    self.reports[host] = msgspec.structs.replace(report, empty=kept)
        self.owned = next_owned_upstreams(self.owned, compiled, self.ordered())


def merge_last_known(before: Machines, now: Machines) -> Machines:
    """Give what machines are to serve now, with what stays as it was last."""
    last = {each.name: each for each in before.gateway.clusters if each.endpoints}
    kept = last.keys() & set(now.retained_upstreams)
    clusters = tuple(
        last[each.name] if each.name in kept and not each.endpoints else each
        for each in now.gateway.clusters
    )
    if clusters == now.gateway.clusters:
        return now
    gateway = msgspec.structs.replace(now.gateway, clusters=clusters)
    if gateway == before.gateway:
        gateway = before.gateway
    return msgspec.structs.replace(now, gateway=gateway)


def next_owned_upstreams(
    owned: Mapping[UpstreamName, Key], compiled: front.Compiled, reports: Sequence[HostReport]
) -> Mapping[UpstreamName, Key]:
    """Give the upstreams that are ours now: what is wanted, and what is not emptied everywhere."""
    asked = compiled.balancer
    if asked is None:
        return owned
    services = dict(compiled.claimed)
    found = {**owned, **{each.name: services[each.name] for each in asked.upstreams}}
    for name in compiled.forgotten:
        found.pop(name, None)
    for name in asked.released_upstreams:
        if reports and all(name in report.empty for report in reports):
            found.pop(name, None)
    return owned if found == owned else found
