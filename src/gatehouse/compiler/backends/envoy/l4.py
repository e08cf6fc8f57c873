"""L4 listeners: TCP, UDP, and TLS by SNI, with passthrough or termination."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from envoy.config.accesslog.v3 import accesslog_pb2
from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.endpoint.v3 import endpoint_components_pb2 as components
from envoy.config.listener.v3 import listener_components_pb2
from envoy.extensions.filters.udp.udp_proxy.v3 import route_pb2, udp_proxy_pb2
from xds.core.v3 import extension_pb2

from gatehouse.compiler.backends.envoy import clusters, dynamic_clusters, extensions, names, quoting
from gatehouse.compiler.backends.envoy.protobufs import packed, wrap_number, written
from gatehouse.compiler.backends.failures import InvalidValueError
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir import http
from gatehouse.dataplane.xds.resources import CLUSTER_TYPE_URL, XdsResource

_UDP_IDLE = 30.0

_Clusters = Mapping[str, http.Cluster]


def forward_filter(
    prefix: str,
    host: ir.L4Host,
    *,
    unlimited: bool,
    logs: Iterable[accesslog_pb2.AccessLog] = (),
) -> listener_components_pb2.Filter:
    """Return the filter that forwards connections."""
    proto = dynamic_clusters.forward_tcp(prefix, unlimited=unlimited)
    proto.access_log.extend(logs)
    shares = [(backend.cluster, backend.weight) for backend in host.backends]
    if host.rejected or not shares:
        shares.append((names.BROKEN, max(1, host.rejected)))
    if len(shares) > 1:
        for name, weight in shares:
            proto.weighted_clusters.clusters.add(name=name, weight=weight)
    else:
        proto.cluster = shares[0][0]
    return extensions.network_filter("envoy.filters.network.tcp_proxy", proto)


def datagrams(
    port: int, host: ir.L4Host, logs: Iterable[accesslog_pb2.AccessLog] = ()
) -> listener_components_pb2.ListenerFilter:
    """Return the listener filter that forwards datagrams."""
    route = packed(route_pb2.Route(cluster=_of_datagrams(port, host)))
    proto = udp_proxy_pb2.UdpProxyConfig(
        stat_prefix=f"udp_{port}", idle_timeout=quoting.duration_of(_UDP_IDLE)
    )
    proto.access_log.extend(logs)
    proto.matcher.on_no_match.action.CopyFrom(
        extension_pb2.TypedExtensionConfig(name="route", typed_config=route)
    )
    return extensions.listener_filter("envoy.filters.udp_listener.udp_proxy", proto)


def mixed(port: int, host: ir.L4Host, clusters_by_name: _Clusters) -> list[XdsResource]:
    """Return the cluster of all backends of a UDP port, since Envoy's UDP proxy has no weights."""
    if not _is_mixed(host):
        return []
    name = _of_datagrams(port, host)
    proto = clusters.base(name)
    proto.common_lb_config.locality_weighted_lb_config.CopyFrom(
        cluster_pb2.Cluster.CommonLbConfig.LocalityWeightedLbConfig()
    )
    proto.lb_policy = cluster_pb2.Cluster.RANDOM
    localities, dropped_weight = [], host.rejected
    for index, share in enumerate(host.backends):
        cluster = clusters_by_name[share.cluster]
        if cluster.resolution is not None:
            raise InvalidValueError(
                "weighted backends of UDPRoutes must not be ExternalName Services with Envoy"
            )
        if not cluster.endpoints:
            dropped_weight += share.weight
            continue
        locality = components.LocalityLbEndpoints(
            lb_endpoints=clusters.lb_endpoints(cluster.endpoints),
            load_balancing_weight=wrap_number(share.weight),
        )
        locality.locality.sub_zone = str(index)
        localities.append(locality)
    dropped = dropped_weight / (host.rejected + sum(share.weight for share in host.backends))
    return [
        XdsResource.make(CLUSTER_TYPE_URL, name, written(proto)),
        clusters.assignment(name, localities, dropped),
    ]


def _is_mixed(host: ir.L4Host) -> bool:
    return len(host.backends) > 1 or bool(host.backends and host.rejected)


def _of_datagrams(port: int, host: ir.L4Host) -> str:
    if _is_mixed(host):
        return f"udp-{port}"
    return host.backends[0].cluster if host.backends else names.BROKEN
