"""Streams: TCP, UDP, and TLS by the name in its handshake, passed through or ended here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.endpoint.v3 import endpoint_components_pb2 as components
from envoy.config.listener.v3 import listener_components_pb2
from envoy.extensions.filters.udp.udp_proxy.v3 import route_pb2, udp_proxy_pb2
from xds.core.v3 import extension_pb2

from gatehouse.compiler.backends.envoy import clusters, dynamic_clusters, names, quoting
from gatehouse.compiler.backends.envoy.protobufs import number, packed, written
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir import http
from gatehouse.dataplane.xds.resources import CLUSTER, Resource

UDP_IDLE = 30.0

Clusters = Mapping[str, http.Cluster]


def forward(prefix: str, host: ir.L4Host, known: Clusters, *, lasting: bool) -> Any:
    """Give the filter that sends connections on; a share that leads nowhere is cut."""
    made = dynamic_clusters.forward(prefix, lasting=lasting)
    shares = [(_target(each, known), each.weight) for each in host.backends if each.weight > 0]
    if len(shares) > 1:
        for name, weight in shares:
            made.weighted_clusters.clusters.add(name=name, weight=weight)
    else:
        made.cluster = shares[0][0] if shares else names.BROKEN
    return listener_components_pb2.Filter(
        name="envoy.filters.network.tcp_proxy", typed_config=packed(made)
    )


def datagrams(port: int, host: ir.L4Host, known: Clusters) -> Any:
    """Give the listener filter that sends datagrams on."""
    route = packed(route_pb2.Route(cluster=_of_datagrams(port, host, known)))
    made = udp_proxy_pb2.UdpProxyConfig(
        stat_prefix=f"udp_{port}", idle_timeout=quoting.seconds(UDP_IDLE)
    )
    made.matcher.on_no_match.action.CopyFrom(
        extension_pb2.TypedExtensionConfig(name="route", typed_config=route)
    )
    return listener_components_pb2.ListenerFilter(
        name="envoy.filters.udp_listener.udp_proxy", typed_config=packed(made)
    )


def mixed(port: int, host: ir.L4Host, known: Clusters) -> list[Resource]:
    """Give the cluster of all backends of a UDP port, which Envoy cannot choose among by weight."""
    shares = _shares(host)
    if len(shares) < 2:
        return []
    name = _of_datagrams(port, host, known)
    made = clusters.base(name)
    made.common_lb_config.locality_weighted_lb_config.CopyFrom(
        cluster_pb2.Cluster.CommonLbConfig.LocalityWeightedLbConfig()
    )
    made.lb_policy = cluster_pb2.Cluster.RANDOM
    localities, lost = [], 0
    for place, share in enumerate(shares):
        found = known.get(share.cluster)
        if found is None or not found.endpoints:
            lost += share.weight
            continue
        locality = components.LocalityLbEndpoints(
            lb_endpoints=clusters.lb_endpoints(found.endpoints),
            load_balancing_weight=number(share.weight),
        )
        locality.locality.sub_zone = str(place)
        localities.append(locality)
    dropped = lost / sum(share.weight for share in shares)
    return [
        Resource.make(CLUSTER, name, written(made)),
        clusters.assignment(name, localities, dropped),
    ]


def _shares(host: ir.L4Host) -> list[ir.L4Backend]:
    return [each for each in host.backends if each.weight > 0]


def _of_datagrams(port: int, host: ir.L4Host, known: Clusters) -> str:
    shares = _shares(host)
    if len(shares) > 1:
        return f"udp-{port}"
    return _target(shares[0], known) if shares else names.BROKEN


def _target(backend: ir.L4Backend, known: Clusters) -> str:
    return backend.cluster if backend.cluster in known else names.BROKEN
