"""Kube-apiservers as clusters: few connections, frequent health checks, limits per flow schema.

Requests of a schema that limits concurrency use a copy of the cluster, since Envoy counts per
cluster only. Every copy has its own connections: with ``n`` such schemas in use, up to ``(1 + n) x
servers x workers`` of HTTP/2, regardless of the number of clients. Requests that may leave HTTP
(``Upgrade``) use copies with HTTP/1.1, one connection each.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

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
"""Metadata key, of servers and routes, for the sets of servers that policies name."""

_INTERVAL, _EDGE_INTERVAL, _IDLE_INTERVAL = 5.0, 1.0, 30.0
"""Seconds between health checks: normally, after a change, and of a copy without traffic."""

_CHECK_TIMEOUT = 5.0
_UNHEALTHY, _HEALTHY = 2, 2
"""Health check timeout in seconds; unanswered checks until a server is unhealthy; successful checks
until it is healthy again. A server that answers not ready is unhealthy at once."""

_CONNECT_FAILURES = 5
"""Consecutive connection failures until a server is ejected."""

_PING, _PONG = 15.0, 10.0
"""HTTP/2 keepalive: seconds without traffic until a ping, and until the connection is closed."""

_STREAM_WINDOW, _CONNECTION_WINDOW = 1 << 20, 1 << 26
_HTTP = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"


class Copy:
    """One of the Envoy clusters for the servers of a cluster."""

    def __init__(self, schema: str, max_requests: int | None, *, upgrades: bool) -> None:
        self.schema = schema
        self.max_requests = max_requests
        self.upgrades = upgrades


def copies(cluster: ir.ApiCluster) -> Iterator[Copy]:
    """Return the copies that a cluster needs: without limit, and for each schema with a limit."""
    limits: list[tuple[str, int | None]] = [("", None)]
    limits += [
        (schema.name, schema.limit.max)
        for schema in cluster.schemas
        if isinstance(schema.limit, ir.InFlight)
    ]
    for schema, max_requests in limits:
        yield Copy(schema, max_requests, upgrades=False)
        yield Copy(schema, max_requests, upgrades=True)


def resources(cluster: ir.ApiCluster, token: str) -> Iterator[Resource]:
    """Return clusters and endpoints. ``token``: bearer token for the servers; empty: none."""
    servers = reachable(cluster)
    named = any(_is_name(server.host) for server in servers)
    hosts = [_host(cluster, server) for server in servers]
    for copy in copies(cluster):
        proto = _cluster(cluster, copy, token)
        locality = components.LocalityLbEndpoints(lb_endpoints=hosts)
        endpoints = [locality] if hosts else []
        if named:
            proto.type = cluster_pb2.Cluster.STRICT_DNS
            proto.ClearField("eds_cluster_config")
            proto.respect_dns_ttl = True
            proto.dns_lookup_family = cluster_pb2.Cluster.ALL
            proto.load_assignment.CopyFrom(
                endpoint_pb2.ClusterLoadAssignment(cluster_name=proto.name, endpoints=endpoints)
            )
        else:
            yield clusters.assignment(proto.name, endpoints)
        origins = (cluster.origin,)
        yield Resource.make(
            CLUSTER, proto.name, written(proto), origins=origins, secret=bool(token)
        )


def prefix(cluster: ir.ApiCluster) -> str:
    """Return the path prefix of the servers."""
    return cluster.servers[0].path if cluster.servers else ""


def reachable(cluster: ir.ApiCluster) -> list[ir.Server]:
    """Return the usable servers: Envoy rewrites a path before it selects a server."""
    return [each for each in cluster.servers if each.path == prefix(cluster)]


def unsupported(cluster: ir.ApiCluster) -> list[str]:
    """Return the servers that Envoy does not support."""
    other = [server.name for server in cluster.servers if server.path != prefix(cluster)]
    return [f"servers: {name}: path must be the same as that of the first server" for name in other]


def _is_name(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return True
    return False


def _host(cluster: ir.ApiCluster, server: ir.Server) -> components.LbEndpoint:
    host = quoting.hostname(server.host) if _is_name(server.host) else server.host
    proto = components.LbEndpoint(
        endpoint=components.Endpoint(address=address(host, server.port), hostname=host)
    )
    subsets = {
        policy_metadata.subset(each) for each in cluster.policies if server.name in each.servers
    }
    if subsets:
        proto.metadata.filter_metadata["envoy.lb"].update({SUBSET: sorted(subsets)})
    return proto


def _cluster(cluster: ir.ApiCluster, copy: Copy, token: str) -> cluster_pb2.Cluster:
    proto = clusters.base(names.servers(cluster.name, copy.schema, upgrades=copy.upgrades))
    # Watches last for hours: a server that recovers must get its share of them.
    proto.lb_policy = cluster_pb2.Cluster.LEAST_REQUEST
    proto.lb_subset_config.CopyFrom(_subsets())
    proto.common_lb_config.healthy_panic_threshold.value = 0
    proto.ignore_health_on_host_removal = True
    proto.track_cluster_stats.per_endpoint_stats = True
    proto.health_checks.append(_health(cluster, copy, token))
    if not copy.upgrades:
        # The end of a command closes its connection, so that only checks decide about these
        # servers.
        proto.outlier_detection.CopyFrom(_ejection())
    proto.upstream_connection_options.tcp_keepalive.keepalive_time.value = 30
    if copy.max_requests is not None:
        thresholds = proto.circuit_breakers.thresholds[0]
        thresholds.CopyFrom(_limited(thresholds, copy.max_requests))
    if cluster.tls is not None:
        proto.transport_socket.CopyFrom(_tls(cluster, cluster.tls, copy))
    proto.typed_extension_protocol_options[_HTTP].CopyFrom(packed(_http(cluster, copy)))
    return proto


def _is_first(copy: Copy) -> bool:
    """Return whether this is the copy that always exists and decides about the servers' health."""
    return copy.schema == "" and not copy.upgrades


def _limited(
    thresholds: circuit_breaker_pb2.CircuitBreakers.Thresholds, max_requests: int
) -> circuit_breaker_pb2.CircuitBreakers.Thresholds:
    proto = circuit_breaker_pb2.CircuitBreakers.Thresholds()
    proto.CopyFrom(thresholds)
    proto.max_requests.value = max_requests
    return proto


def _subsets() -> cluster_pb2.Cluster.LbSubsetConfig:
    """Choose among the servers of a policy, or among all if a route names no set."""
    config = cluster_pb2.Cluster.LbSubsetConfig
    proto = config(fallback_policy=config.ANY_ENDPOINT, list_as_any=True)
    proto.subset_selectors.add(keys=[SUBSET], fallback_policy=config.LbSubsetSelector.NO_FALLBACK)
    return proto


def _health(cluster: ir.ApiCluster, copy: Copy, token: str) -> health_check_pb2.HealthCheck:
    seconds = quoting.seconds
    proto = health_check_pb2.HealthCheck(
        timeout=seconds(_CHECK_TIMEOUT),
        interval=seconds(_INTERVAL),
        interval_jitter=seconds(0.5),
        unhealthy_edge_interval=seconds(_EDGE_INTERVAL),
        healthy_edge_interval=seconds(_EDGE_INTERVAL),
        # One cluster of each server is always checked; its copies only while in use.
        no_traffic_interval=seconds(_INTERVAL if _is_first(copy) else _IDLE_INTERVAL),
        unhealthy_threshold=number(_UNHEALTHY),
        healthy_threshold=number(_HEALTHY),
    )
    probe = proto.http_health_check
    probe.path = quoting.path(prefix(cluster)) + "/readyz"
    probe.host = quoting.text(cluster.name)
    probe.expected_statuses.append(range_pb2.Int64Range(start=200, end=201))
    if token:
        probe.request_headers_to_add.append(_bearer(token))
    # Every server supports HTTP/1.1; HTTP/2 is not known before.
    proto.tls_options.alpn_protocols.append("http/1.1")
    return proto


def _bearer(token: str) -> base_pb2.HeaderValueOption:
    proto: base_pb2.HeaderValueOption = headers.option("authorization", bearer(token))
    return proto


def bearer(token: str) -> str:
    """Return the value of the Authorization header, escaped for Envoy's format."""
    return f"Bearer {quoting.literal(token)}"


def _ejection() -> outlier_detection_pb2.OutlierDetection:
    """Eject a server that refuses connections, until a health check succeeds.

    Envoy also counts a request that a server aborts as such a failure: a log that was cut, a list
    that took too long. There are never so many of those without a success in between. The last
    server is never ejected by connection failures: no other could answer, and a gateway that is
    busy with thousands of handshakes is slow itself. Only checks make that one unhealthy.
    """
    return outlier_detection_pb2.OutlierDetection(
        split_external_local_origin_errors=True,
        consecutive_local_origin_failure=number(_CONNECT_FAILURES),
        enforcing_consecutive_local_origin_failure=number(100),
        enforcing_local_origin_success_rate=number(0),
        enforcing_consecutive_5xx=number(0),
        enforcing_consecutive_gateway_failure=number(0),
        enforcing_success_rate=number(0),
        max_ejection_percent=number(99),
        always_eject_one_host=truth(False),
        interval=quoting.seconds(1.0),
        base_ejection_time=quoting.seconds(_INTERVAL),
        max_ejection_time=quoting.seconds(2 * _INTERVAL),
        successful_active_health_check_uneject_host=truth(True),
    )


def _http(cluster: ir.ApiCluster, copy: Copy) -> http_pb2.HttpProtocolOptions:
    proto = http_pb2.HttpProtocolOptions()
    if cluster.tls is None or copy.upgrades:
        # Without TLS a kube-apiserver supports HTTP/1.1 only.
        proto.explicit_http_config.http_protocol_options.CopyFrom(
            protocol_pb2.Http1ProtocolOptions()
        )
        return proto
    options = protocol_pb2.Http2ProtocolOptions(
        # Envoy assumes this limit for a new connection, until the server sends a lower one.
        max_concurrent_streams=number(cluster.streams),
        initial_stream_window_size=number(_STREAM_WINDOW),
        initial_connection_window_size=number(_CONNECTION_WINDOW),
    )
    options.connection_keepalive.interval.CopyFrom(quoting.seconds(_PING))
    options.connection_keepalive.timeout.CopyFrom(quoting.seconds(_PONG))
    # HTTP/2 only by ALPN: not all servers support it, nor all proxies before them.
    proto.auto_config.http2_protocol_options.CopyFrom(options)
    proto.auto_config.http_protocol_options.CopyFrom(protocol_pb2.Http1ProtocolOptions())
    return proto


def _tls(cluster: ir.ApiCluster, tls: ir.UpstreamTls, copy: Copy) -> base_pb2.TransportSocket:
    base = names.servers(cluster.name)
    certificates = [names.backend_certificate(base)] if tls.certificate else []
    common = secrets.common(certificates, *(() if copy.upgrades else ("h2",)), "http/1.1")
    if tls.trust:
        combined = common.combined_validation_context
        combined.default_validation_context.match_typed_subject_alt_names.append(
            _subject(tls.server_name)
        )
        combined.validation_context_sds_secret_config.CopyFrom(
            secrets.secret_config(names.backend_trust(base))
        )
    proto = tls_pb2.UpstreamTlsContext(
        common_tls_context=common,
        # A resumed session would authenticate as the owner of an old certificate.
        max_session_keys=number(0),
    )
    if _is_name(tls.server_name):
        proto.sni = quoting.server_name(tls.server_name)
    return secrets.socket(proto)


def _subject(name: str) -> common_pb2.SubjectAltNameMatcher:
    kinds = common_pb2.SubjectAltNameMatcher
    return kinds(
        san_type=kinds.DNS if _is_name(name) else kinds.IP_ADDRESS,
        matcher=string_pb2.StringMatcher(exact=quoting.text(name)),
    )
