"""L4 listeners: TCP, UDP, and TLS by SNI, with passthrough or termination."""

from __future__ import annotations

from collections.abc import Mapping

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


def forward(
    prefix: str, host: ir.L4Host, clusters_by_name: Clusters, *, unlimited: bool
) -> listener_components_pb2.Filter:
    """Return the filter that forwards connections; those of a share without a cluster are
    closed."""
    proto = dynamic_clusters.forward(prefix, unlimited=unlimited)
    shares = [
        (_target(each, clusters_by_name), each.weight) for each in host.backends if each.weight > 0
    ]
    if len(shares) > 1:
        for name, weight in shares:
            proto.weighted_clusters.clusters.add(name=name, weight=weight)
    else:
        proto.cluster = shares[0][0] if shares else names.BROKEN
    return listener_components_pb2.Filter(
        name="envoy.filters.network.tcp_proxy", typed_config=packed(proto)
    )


def datagrams(
    port: int, host: ir.L4Host, clusters_by_name: Clusters
) -> listener_components_pb2.ListenerFilter:
    """Return the listener filter that forwards datagrams."""
    route = packed(route_pb2.Route(cluster=_of_datagrams(port, host, clusters_by_name)))
    proto = udp_proxy_pb2.UdpProxyConfig(
        stat_prefix=f"udp_{port}", idle_timeout=quoting.seconds(UDP_IDLE)
    )
    proto.matcher.on_no_match.action.CopyFrom(
        extension_pb2.TypedExtensionConfig(name="route", typed_config=route)
    )
    return listener_components_pb2.ListenerFilter(
        name="envoy.filters.udp_listener.udp_proxy", typed_config=packed(proto)
    )


def mixed(port: int, host: ir.L4Host, clusters_by_name: Clusters) -> list[Resource]:
    """Return the cluster of all backends of a UDP port, since Envoy's UDP proxy has no weights."""
    shares = _shares(host)
    if len(shares) < 2:
        return []
    name = _of_datagrams(port, host, clusters_by_name)
    proto = clusters.base(name)
    proto.common_lb_config.locality_weighted_lb_config.CopyFrom(
        cluster_pb2.Cluster.CommonLbConfig.LocalityWeightedLbConfig()
    )
    proto.lb_policy = cluster_pb2.Cluster.RANDOM
    localities, dropped_weight = [], 0
    for index, share in enumerate(shares):
        cluster = clusters_by_name.get(share.cluster)
        if cluster is None or not cluster.endpoints:
            dropped_weight += share.weight
            continue
        locality = components.LocalityLbEndpoints(
            lb_endpoints=clusters.lb_endpoints(cluster.endpoints),
            load_balancing_weight=number(share.weight),
        )
        locality.locality.sub_zone = str(index)
        localities.append(locality)
    dropped = dropped_weight / sum(share.weight for share in shares)
    return [
        Resource.make(CLUSTER, name, written(proto)),
        clusters.assignment(name, localities, dropped),
    ]


def _shares(host: ir.L4Host) -> list[ir.L4Backend]:
    return [each for each in host.backends if each.weight > 0]


def _of_datagrams(port: int, host: ir.L4Host, clusters_by_name: Clusters) -> str:
    shares = _shares(host)
    if len(shares) > 1:
        return f"udp-{port}"
    return _target(shares[0], clusters_by_name) if shares else names.BROKEN


def _target(backend: ir.L4Backend, clusters_by_name: Clusters) -> str:
    return backend.cluster if backend.cluster in clusters_by_name else names.BROKEN
