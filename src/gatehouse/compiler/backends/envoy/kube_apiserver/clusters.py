"""Kube-apiservers as clusters: few connections, frequent health checks, limits per flow schema.

Requests of a schema that limits concurrency use a copy of the cluster, since Envoy counts per
cluster only. Every copy has its own connections: with ``n`` such schemas in use, up to ``(1 + n) x
servers x workers`` of HTTP/2, regardless of the number of clients. Requests that may leave HTTP
(``Upgrade``) use copies with HTTP/1.1, one connection each.
"""

from __future__ import annotations

from collections.abc import Iterator

from envoy.config.cluster.v3 import circuit_breaker_pb2, cluster_pb2, outlier_detection_pb2
from envoy.config.core.v3 import base_pb2, health_check_pb2, protocol_pb2
from envoy.config.endpoint.v3 import endpoint_components_pb2 as components
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.extensions.filters.http.header_mutation.v3 import header_mutation_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import (
    http_connection_manager_pb2 as manager_pb2,
)
from envoy.extensions.transport_sockets.tls.v3 import common_pb2, tls_pb2
from envoy.extensions.upstreams.http.v3 import http_protocol_options_pb2 as http_pb2
from envoy.type.matcher.v3 import string_pb2
from envoy.type.v3 import range_pb2

from gatehouse.compiler.backends.envoy import clusters, extensions, headers, names, quoting, secrets
from gatehouse.compiler.backends.envoy.kube_apiserver import policy_metadata
from gatehouse.compiler.backends.envoy.protobufs import (
    build_socket_address,
    packed,
    truth,
    wrap_number,
    written,
)
from gatehouse.compiler.ir import kube_apiserver as ir
from gatehouse.dataplane.xds.resources import CLUSTER_TYPE_URL, XdsResource
from gatehouse.dataplane.xds.runtime_limits import SharedLimit
from kube_base.types import ip_addresses

SUBSET = "subset"
"""Metadata key, of servers and routes, for the sets of servers that policies name."""

AUTHORIZATION = "authorization"
"""Header with the token, and its metadata key of endpoints."""

OF_ENDPOINT = f"%UPSTREAM_METADATA({names.SCRIPT}:{AUTHORIZATION})%"
"""Value of the header, in Envoy's format."""

_INTERVAL_SECONDS, _EDGE_INTERVAL_SECONDS, _IDLE_INTERVAL_SECONDS = 5.0, 1.0, 30.0
"""Seconds between health checks: normally, after a change, and of a copy without traffic."""

_CHECK_TIMEOUT_SECONDS = 5.0
_UNHEALTHY, _HEALTHY = 2, 2
"""Health check timeout in seconds; unanswered checks until a server is unhealthy; successful checks
until it is healthy again. A server that answers not ready is unhealthy at once."""

_CONNECT_FAILURES = 5
"""Consecutive connection failures until a server is ejected."""

_PING, _PONG = 15.0, 10.0
"""HTTP/2 keepalive: seconds without traffic until a ping, and until the connection is closed."""

_STREAM_WINDOW, _CONNECTION_WINDOW = 1 << 20, 1 << 26


class Copy:
    """One of the Envoy clusters for the servers of a cluster."""

    def __init__(self, schema: ir.FlowSchema | None, *, upgrades: bool) -> None:
        """``schema``: limits requests in flight; None: no limit."""
        limit = schema.limit if schema is not None else None
        self.schema = schema.name if schema is not None else ""
        self.max_requests = limit.max if isinstance(limit, ir.InFlight) else None
        self.divided = schema.divided if schema is not None else None
        self.upgrades = upgrades

    def name(self, cluster: ir.ApiCluster) -> str:
        """Return the name of the Envoy cluster."""
        return names.servers_cluster_name(cluster.name, self.schema, upgrades=self.upgrades)


def copies(cluster: ir.ApiCluster) -> Iterator[Copy]:
    """Return the copies that a cluster needs: without limit, and for each schema with a limit."""
    limited = (schema for schema in cluster.schemas if isinstance(schema.limit, ir.InFlight))
    for schema in (None, *limited):
        yield Copy(schema, upgrades=False)
        yield Copy(schema, upgrades=True)


def runtime_limits(cluster: ir.ApiCluster) -> dict[str, int]:
    """Return the limits of requests in flight by Envoy cluster."""
    return {
        copy.name(cluster): copy.max_requests
        for copy in copies(cluster)
        if copy.max_requests is not None
    }


def shared_limits(cluster: ir.ApiCluster) -> dict[str, SharedLimit]:
    """Return the limits that data planes share by Envoy cluster."""
    return {
        copy.name(cluster): SharedLimit(
            copy.divided.total, copy.divided.initial, dict(copy.divided.shares)
        )
        for copy in copies(cluster)
        if copy.divided is not None
    }


def cluster_resources(
    cluster: ir.ApiCluster, token: str, *, runtime: bool
) -> Iterator[XdsResource]:
    """Return clusters and endpoints.

    Envoy counts requests in flight by cluster, and a changed cluster starts with 0. So the clusters
    depend neither on ``token`` (bearer token for the servers; empty: none), which is metadata of
    the endpoints, nor on the limits, if Envoy reads those from its runtime (``runtime``). Servers
    by DNS name are part of the cluster, with their token.
    """
    servers = reachable(cluster)
    named = any(_is_name(server.host) for server in servers)
    hosts = [_host(cluster, server, token) for server in servers]
    for copy in copies(cluster):
        proto = _cluster(cluster, copy, bool(token), runtime=runtime)
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
            yield clusters.assignment(proto.name, endpoints, secret=bool(token))
        yield XdsResource.make(
            CLUSTER_TYPE_URL, proto.name, written(proto),
            origins=(cluster.origin,), secret=bool(token) and named,
        )  # fmt: skip


def prefix(cluster: ir.ApiCluster) -> str:
    """Return the path prefix of the servers."""
    return cluster.servers[0].path if cluster.servers else ""


def reachable(cluster: ir.ApiCluster) -> list[ir.KubeApiServer]:
    """Return the servers that have the path of the first one.

    Envoy adds the path to a request before it selects a server, so all servers need the same path.
    """
    return [server for server in cluster.servers if server.path == prefix(cluster)]


def unsupported_servers(cluster: ir.ApiCluster) -> list[str]:
    """Return the servers that Envoy does not support."""
    other = [server.name for server in cluster.servers if server.path != prefix(cluster)]
    return [f"servers: {name}: path must be the same as that of the first server" for name in other]


def _is_name(host: str) -> bool:
    try:
        ip_addresses.ip_address(host)
    except ValueError:
        return True
    return False


def _host(cluster: ir.ApiCluster, server: ir.KubeApiServer, token: str) -> components.LbEndpoint:
    host = quoting.check_hostname(server.host) if _is_name(server.host) else server.host
    proto = components.LbEndpoint(
        endpoint=components.Endpoint(address=build_socket_address(host, server.port), hostname=host)
    )
    subsets = {
        policy_metadata.subset(policy)
        for policy in cluster.policies
        if server.name in policy.servers
    }
    if subsets:
        proto.metadata.filter_metadata["envoy.lb"].update({SUBSET: sorted(subsets)})
    if token:
        value = quoting.limited(
            f"Bearer {token}", quoting.MAX_HEADER_BYTES, "the value of the header authorization"
        )
        proto.metadata.filter_metadata[names.SCRIPT].update({AUTHORIZATION: value})
    return proto


def _cluster(
    cluster: ir.ApiCluster, copy: Copy, with_token: bool, *, runtime: bool
) -> cluster_pb2.Cluster:
    proto = clusters.base(copy.name(cluster))
    # Watches last for hours: a server that recovers must get its share of them.
    proto.lb_policy = cluster_pb2.Cluster.LEAST_REQUEST
    proto.lb_subset_config.CopyFrom(_subsets())
    proto.common_lb_config.healthy_panic_threshold.value = 0
    proto.ignore_health_on_host_removal = True
    proto.track_cluster_stats.per_endpoint_stats = True
    proto.health_checks.append(_health(cluster, copy, with_token))
    if not copy.upgrades:
        # The end of a command closes its connection, so that only checks decide about these
        # servers.
        proto.outlier_detection.CopyFrom(_ejection())
    proto.upstream_connection_options.tcp_keepalive.keepalive_time.value = 30
    if copy.max_requests is not None:
        thresholds = proto.circuit_breakers.thresholds[0]
        # Until Envoy has its runtime, no request passes.
        thresholds.CopyFrom(_limited(thresholds, 0 if runtime else copy.max_requests))
    if cluster.tls is not None:
        proto.transport_socket.CopyFrom(_tls(cluster, cluster.tls, copy))
    proto.typed_extension_protocol_options[clusters.HTTP_OPTIONS].CopyFrom(
        packed(_http(cluster, copy, with_token))
    )
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


def _health(cluster: ir.ApiCluster, copy: Copy, with_token: bool) -> health_check_pb2.HealthCheck:
    seconds = quoting.duration_of
    proto = health_check_pb2.HealthCheck(
        timeout=seconds(_CHECK_TIMEOUT_SECONDS),
        interval=seconds(_INTERVAL_SECONDS),
        interval_jitter=seconds(0.5),
        unhealthy_edge_interval=seconds(_EDGE_INTERVAL_SECONDS),
        healthy_edge_interval=seconds(_EDGE_INTERVAL_SECONDS),
        # One cluster of each server is always checked; its copies only while in use.
        no_traffic_interval=seconds(
            _INTERVAL_SECONDS if _is_first(copy) else _IDLE_INTERVAL_SECONDS
        ),
        unhealthy_threshold=wrap_number(_UNHEALTHY),
        healthy_threshold=wrap_number(_HEALTHY),
    )
    probe = proto.http_health_check
    probe.path = quoting.path(prefix(cluster)) + "/readyz"
    probe.host = quoting.check_text(cluster.name)
    probe.expected_statuses.append(range_pb2.Int64Range(start=200, end=201))
    if with_token:
        probe.request_headers_to_add.append(_bearer())
    # Every server supports HTTP/1.1; HTTP/2 is not known before.
    proto.tls_options.alpn_protocols.append("http/1.1")
    return proto


def _bearer() -> base_pb2.HeaderValueOption:
    proto: base_pb2.HeaderValueOption = headers.option(AUTHORIZATION, OF_ENDPOINT)
    return proto


def _ejection() -> outlier_detection_pb2.OutlierDetection:
    """Eject a server that refuses connections, until a health check succeeds.

    Envoy also counts a request that a server aborts as such a failure: a log that was cut, a list
    that took too long. There are never so many of those without a success in between. The last
    server is never ejected by connection failures: no other could answer, and a gateway that is
    busy with thousands of handshakes is slow itself. Only checks make that one unhealthy.
    """
    return outlier_detection_pb2.OutlierDetection(
        split_external_local_origin_errors=True,
        consecutive_local_origin_failure=wrap_number(_CONNECT_FAILURES),
        enforcing_consecutive_local_origin_failure=wrap_number(100),
        enforcing_local_origin_success_rate=wrap_number(0),
        enforcing_consecutive_5xx=wrap_number(0),
        enforcing_consecutive_gateway_failure=wrap_number(0),
        enforcing_success_rate=wrap_number(0),
        max_ejection_percent=wrap_number(99),
        always_eject_one_host=truth(False),
        interval=quoting.duration_of(1.0),
        base_ejection_time=quoting.duration_of(_INTERVAL_SECONDS),
        max_ejection_time=quoting.duration_of(2 * _INTERVAL_SECONDS),
        successful_active_health_check_uneject_host=truth(True),
    )


def _http(cluster: ir.ApiCluster, copy: Copy, with_token: bool) -> http_pb2.HttpProtocolOptions:
    proto = http_pb2.HttpProtocolOptions()
    proto.http_filters.extend(_filters(with_token=with_token))
    if cluster.tls is None or copy.upgrades:
        # Without TLS a kube-apiserver supports HTTP/1.1 only.
        proto.explicit_http_config.http_protocol_options.CopyFrom(
            protocol_pb2.Http1ProtocolOptions()
        )
        return proto
    options = protocol_pb2.Http2ProtocolOptions(
        # Envoy assumes this limit for a new connection, until the server sends a lower one.
        max_concurrent_streams=wrap_number(cluster.streams),
        initial_stream_window_size=wrap_number(_STREAM_WINDOW),
        initial_connection_window_size=wrap_number(_CONNECTION_WINDOW),
    )
    options.connection_keepalive.interval.CopyFrom(quoting.duration_of(_PING))
    options.connection_keepalive.timeout.CopyFrom(quoting.duration_of(_PONG))
    # HTTP/2 only by ALPN: not all servers support it, nor all proxies before them.
    proto.auto_config.http2_protocol_options.CopyFrom(options)
    proto.auto_config.http_protocol_options.CopyFrom(protocol_pb2.Http1ProtocolOptions())
    return proto


def _filters(*, with_token: bool) -> Iterator[manager_pb2.HttpFilter]:
    """Yield the filters between the router and a server.

    Requests get the token of their endpoint. Responses lose the headers that Envoy and the script
    obey: a server passes on those of Pods and extension servers, by which Envoy would take it out
    of service.
    """
    mutation = header_mutation_pb2.HeaderMutation()
    if with_token:
        mutation.mutations.request_mutations.add(append=_bearer())
    mutation.mutations.response_mutations.extend(
        headers.without_prefix(prefix) for prefix in (headers.ENVOY_PREFIX, names.HEADER_PREFIX)
    )
    yield extensions.http_filter("envoy.filters.http.header_mutation", mutation)
    yield extensions.upstream_codec()


def _tls(cluster: ir.ApiCluster, tls: ir.UpstreamTls, copy: Copy) -> base_pb2.TransportSocket:
    base = names.servers_cluster_name(cluster.name)
    certificates = [names.backend_certificate(base)] if tls.certificate else []
    common = secrets.common_tls(certificates, *(() if copy.upgrades else ("h2",)), "http/1.1")
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
        max_session_keys=wrap_number(0),
    )
    if _is_name(tls.server_name):
        proto.sni = quoting.server_name(tls.server_name)
    return secrets.tls_socket(proto)


def _subject(name: str) -> common_pb2.SubjectAltNameMatcher:
    kinds = common_pb2.SubjectAltNameMatcher
    return kinds(
        san_type=kinds.DNS if _is_name(name) else kinds.IP_ADDRESS,
        matcher=string_pb2.StringMatcher(exact=quoting.check_text(name)),
    )
