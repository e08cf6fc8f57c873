"""Kube-apiservers as clusters: few connections, watched closely, counted where a schema says so.

Requests of a schema that limits how many are under way go to a copy of the cluster, since Envoy
counts by cluster alone. Every copy has connections of its own: with ``n`` such schemas in use, up
to ``(1 + n) x servers x workers`` of HTTP/2, however many clients there are. Requests that may
leave HTTP (``Upgrade``) go to copies that speak HTTP/1.1, one connection for each.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Any

from envoy.config.cluster.v3 import circuit_breaker_pb2, cluster_pb2, outlier_detection_pb2
from envoy.config.core.v3 import base_pb2, health_check_pb2, protocol_pb2
from envoy.config.endpoint.v3 import endpoint_components_pb2 as components
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.extensions.transport_sockets.tls.v3 import common_pb2, tls_pb2
from envoy.extensions.upstreams.http.v3 import http_protocol_options_pb2 as http_pb2
from envoy.type.matcher.v3 import string_pb2
from envoy.type.v3 import range_pb2

from gatehouse.compiler.backends.envoy import clusters, headers, names, quoting, secrets
from gatehouse.compiler.backends.envoy.kube_apiserver import policy_metadata
from gatehouse.compiler.backends.envoy.protobufs import address, number, packed, truth, written
from gatehouse.compiler.ir import kube_apiserver as ir
from gatehouse.dataplane.xds.resources import CLUSTER, Resource

SUBSET = "subset"
"""The key, in the metadata of servers and routes, of the sets of servers that policies name."""

_EVERY, _AGAIN, _IDLE = 5.0, 1.0, 30.0
"""Seconds between health checks; after a change; and of a copy that nobody uses."""

_PATIENCE = 5.0
_OUT, _BACK = 2, 2
"""So many silent checks until a server is out, so many good ones until it is back. A server that
says that it is not ready is out at once."""

_LOST = 5
"""So many failures in a row until a server is out that cannot be connected to."""

_PING, _PONG = 15.0, 10.0
"""Seconds without traffic until a connection is asked, and until it is given up."""

_STREAM_WINDOW, _CONNECTION_WINDOW = 1 << 20, 1 << 26
_HTTP = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"


class Copy:
    """One of the clusters that stand for a cluster's servers."""

    def __init__(self, schema: str, most: int | None, *, upgrades: bool) -> None:
        self.schema = schema
        self.most = most
        self.upgrades = upgrades


def copies(cluster: ir.ApiCluster) -> Iterator[Copy]:
    """Give the clusters that a cluster needs: without limit, and for each that counts."""
    limits: list[tuple[str, int | None]] = [("", None)]
    limits += [
        (each.name, each.limit.max)
        for each in cluster.schemas
        if isinstance(each.limit, ir.InFlight)
    ]
    for schema, most in limits:
        yield Copy(schema, most, upgrades=False)
        yield Copy(schema, most, upgrades=True)


def resources(cluster: ir.ApiCluster, token: str) -> Iterator[Resource]:
    """Give clusters and endpoints. ``token``: what the gateway shows to servers; empty for none."""
    servers = reachable(cluster)
    named = any(_is_name(each.host) for each in servers)
    hosts = [_host(cluster, each) for each in servers]
    for copy in copies(cluster):
        made = _cluster(cluster, copy, token)
        locality = components.LocalityLbEndpoints(lb_endpoints=hosts)
        endpoints = [locality] if hosts else []
        if named:
            made.type = cluster_pb2.Cluster.STRICT_DNS
            made.ClearField("eds_cluster_config")
            made.respect_dns_ttl = True
            made.dns_lookup_family = cluster_pb2.Cluster.ALL
            made.load_assignment.CopyFrom(
                endpoint_pb2.ClusterLoadAssignment(cluster_name=made.name, endpoints=endpoints)
            )
        else:
            yield clusters.assignment(made.name, endpoints)
        about = (names.api(cluster.name),)
        yield Resource.make(CLUSTER, made.name, written(made), origins=about, secret=bool(token))


def prefix(cluster: ir.ApiCluster) -> str:
    """Give what stands before every path at the servers."""
    return cluster.servers[0].path if cluster.servers else ""


def reachable(cluster: ir.ApiCluster) -> list[ir.Server]:
    """Give the servers that Envoy can send to: a path is rewritten before a server is picked."""
    return [each for each in cluster.servers if each.path == prefix(cluster)]


def unsupported(cluster: ir.ApiCluster) -> list[str]:
    """Say what of a cluster's servers Envoy leaves out."""
    left = [each.name for each in cluster.servers if each.path != prefix(cluster)]
    return [f"servers: {name} has another path than the first server" for name in left]


def _is_name(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return True
    return False


def _host(cluster: ir.ApiCluster, server: ir.Server) -> Any:
    host = quoting.hostname(server.host) if _is_name(server.host) else server.host
    made = components.LbEndpoint(
        endpoint=components.Endpoint(address=address(host, server.port), hostname=host)
    )
    subsets = {
        policy_metadata.subset(each) for each in cluster.policies if server.name in each.servers
    }
    if subsets:
        made.metadata.filter_metadata["envoy.lb"].update({SUBSET: sorted(subsets)})
    return made


def _cluster(cluster: ir.ApiCluster, copy: Copy, token: str) -> Any:
    made = clusters.base(names.servers(cluster.name, copy.schema, upgrades=copy.upgrades))
    # Watches stay where they are for hours: a server that comes back is to get its share of them.
    made.lb_policy = cluster_pb2.Cluster.LEAST_REQUEST
    made.lb_subset_config.CopyFrom(_subsets())
    made.common_lb_config.healthy_panic_threshold.value = 0
    made.ignore_health_on_host_removal = True
    made.track_cluster_stats.per_endpoint_stats = True
    made.health_checks.append(_health(cluster, copy, token))
    if not copy.upgrades:
        # A command that ends is a connection that is lost; checks alone speak for these servers.
        made.outlier_detection.CopyFrom(_ejection())
    made.upstream_connection_options.tcp_keepalive.keepalive_time.value = 30
    if copy.most is not None:
        thresholds = made.circuit_breakers.thresholds[0]
        thresholds.CopyFrom(_limited(thresholds, copy.most))
    if cluster.tls is not None:
        made.transport_socket.CopyFrom(_tls(cluster, cluster.tls, copy))
    made.typed_extension_protocol_options[_HTTP].CopyFrom(packed(_http(cluster, copy)))
    return made


def _is_first(copy: Copy) -> bool:
    """Whether this is the copy that there always is, and that speaks for the servers' health."""
    return copy.schema == "" and not copy.upgrades


def _limited(thresholds: Any, most: int) -> Any:
    made = circuit_breaker_pb2.CircuitBreakers.Thresholds()
    made.CopyFrom(thresholds)
    made.max_requests.value = most
    return made


def _subsets() -> Any:
    """Choose among the servers of a policy, or among all where a route names no set."""
    config = cluster_pb2.Cluster.LbSubsetConfig
    made = config(fallback_policy=config.ANY_ENDPOINT, list_as_any=True)
    made.subset_selectors.add(keys=[SUBSET], fallback_policy=config.LbSubsetSelector.NO_FALLBACK)
    return made


def _health(cluster: ir.ApiCluster, copy: Copy, token: str) -> Any:
    seconds = quoting.seconds
    made = health_check_pb2.HealthCheck(
        timeout=seconds(_PATIENCE),
        interval=seconds(_EVERY),
        interval_jitter=seconds(0.5),
        unhealthy_edge_interval=seconds(_AGAIN),
        healthy_edge_interval=seconds(_AGAIN),
        # One cluster of each server is always watched; its copies once they are in use.
        no_traffic_interval=seconds(_EVERY if _is_first(copy) else _IDLE),
        unhealthy_threshold=number(_OUT),
        healthy_threshold=number(_BACK),
    )
    probe = made.http_health_check
    probe.path = quoting.path(prefix(cluster)) + "/readyz"
    probe.host = quoting.text(cluster.name)
    probe.expected_statuses.append(range_pb2.Int64Range(start=200, end=201))
    if token:
        probe.request_headers_to_add.append(_bearer(token))
    # Every server speaks HTTP/1.1; which of them speak HTTP/2 is not known yet.
    made.tls_options.alpn_protocols.append("http/1.1")
    return made


def _bearer(token: str) -> base_pb2.HeaderValueOption:
    made: base_pb2.HeaderValueOption = headers.option("authorization", bearer(token))
    return made


def bearer(token: str) -> str:
    """Write a token where Envoy reads a format."""
    return f"Bearer {quoting.literal(token)}"


def _ejection() -> Any:
    """Leave a server out that cannot be connected to, until a check finds it.

    Envoy takes each request that a server gives up for such a failure, too: a log that was cut, a
    list that took too long. Of those there are never so many without one good request between.
    The last server stays whatever becomes of connections: nobody else could answer, and a gateway
    that is busy with thousands of handshakes is late itself. Checks alone take that one out.
    """
    return outlier_detection_pb2.OutlierDetection(
        split_external_local_origin_errors=True,
        consecutive_local_origin_failure=number(_LOST),
        enforcing_consecutive_local_origin_failure=number(100),
        enforcing_local_origin_success_rate=number(0),
        enforcing_consecutive_5xx=number(0),
        enforcing_consecutive_gateway_failure=number(0),
        enforcing_success_rate=number(0),
        max_ejection_percent=number(99),
        always_eject_one_host=truth(False),
        interval=quoting.seconds(1.0),
        base_ejection_time=quoting.seconds(_EVERY),
        max_ejection_time=quoting.seconds(2 * _EVERY),
        successful_active_health_check_uneject_host=truth(True),
    )


def _http(cluster: ir.ApiCluster, copy: Copy) -> Any:
    made = http_pb2.HttpProtocolOptions()
    if cluster.tls is None or copy.upgrades:
        # Without TLS a kube-apiserver speaks HTTP/1.1 alone.
        made.explicit_http_config.http_protocol_options.CopyFrom(
            protocol_pb2.Http1ProtocolOptions()
        )
        return made
    options = protocol_pb2.Http2ProtocolOptions(
        # Of a new connection Envoy takes this for what the server allows, until it says less.
        max_concurrent_streams=number(cluster.streams),
        initial_stream_window_size=number(_STREAM_WINDOW),
        initial_connection_window_size=number(_CONNECTION_WINDOW),
    )
    options.connection_keepalive.interval.CopyFrom(quoting.seconds(_PING))
    options.connection_keepalive.timeout.CopyFrom(quoting.seconds(_PONG))
    # HTTP/2 with whoever speaks it: not all servers do, nor all that may stand before them.
    made.auto_config.http2_protocol_options.CopyFrom(options)
    made.auto_config.http_protocol_options.CopyFrom(protocol_pb2.Http1ProtocolOptions())
    return made


def _tls(cluster: ir.ApiCluster, wanted: ir.UpstreamTls, copy: Copy) -> Any:
    base = names.servers(cluster.name)
    shown = [names.backend_certificate(base)] if wanted.certificate else []
    common = secrets.common(shown, *(() if copy.upgrades else ("h2",)), "http/1.1")
    if wanted.trust:
        combined = common.combined_validation_context
        combined.default_validation_context.match_typed_subject_alt_names.append(
            _subject(wanted.server_name)
        )
        combined.validation_context_sds_secret_config.CopyFrom(
            secrets.secret_config(names.backend_trust(base))
        )
    made = tls_pb2.UpstreamTlsContext(
        common_tls_context=common,
        # A resumed session would go on as whom an old certificate showed.
        max_session_keys=number(0),
    )
    if _is_name(wanted.server_name):
        made.sni = quoting.server_name(wanted.server_name)
    return secrets.socket(made)


def _subject(name: str) -> Any:
    kinds = common_pb2.SubjectAltNameMatcher
    return kinds(
        san_type=kinds.DNS if _is_name(name) else kinds.IP_ADDRESS,
        matcher=string_pb2.StringMatcher(exact=quoting.text(name)),
    )
