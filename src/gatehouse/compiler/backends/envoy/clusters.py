"""Clusters: protocol, TLS and settings of backends. Endpoints are separate resources."""

from __future__ import annotations

from collections.abc import Iterable

from envoy.config.cluster.v3 import circuit_breaker_pb2, cluster_pb2
from envoy.config.core.v3 import address_pb2, base_pb2, protocol_pb2
from envoy.config.endpoint.v3 import endpoint_components_pb2 as components
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.extensions.transport_sockets.tls.v3 import common_pb2, tls_pb2
from envoy.extensions.upstreams.http.v3 import http_protocol_options_pb2 as http_pb2
from envoy.type.matcher.v3 import string_pb2
from envoy.type.v3 import percent_pb2

from gatehouse.compiler.backends.envoy import (
    dynamic_clusters,
    endpoint_pickers,
    external_names,
    health_checks,
    load_balancing,
    log_entries,
    names,
    quoting,
    retries,
    secrets,
)
from gatehouse.compiler.backends.envoy.capabilities import EnvoyCapabilities
from gatehouse.compiler.backends.envoy.protobufs import (
    ads,
    build_socket_address,
    packed,
    wrap_number,
    written,
)
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.access_log import LocalReason, object_text
from gatehouse.compiler.ir.settings import MAX_CHECKED_ENDPOINTS
from gatehouse.dataplane.origin import NO_ORIGIN
from gatehouse.dataplane.xds.resources import CLUSTER_TYPE_URL, ENDPOINTS_TYPE_URL, XdsResource

CONNECT_TIMEOUT_SECONDS = 5.0
"""Timeout of a connection attempt in seconds."""

IDLE_TIMEOUT_SECONDS = 60.0
"""Idle timeout of connections in seconds. Backends close idle connections after about as long."""

MAX_RESPONSE_HEADERS = 1000
"""Maximum number of headers of a response, the same as of a request."""

RESPONSE_HEADERS_KB = 64
"""Maximum size in KiB of all headers of a response; the same as for NGINX."""

HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
"""Key of the HTTP options of a cluster."""

_UNLIMITED = 2**32 - 1
_Options = http_pb2.HttpProtocolOptions


def build_cluster(
    source: ir.Cluster,
    capabilities: EnvoyCapabilities,
    name: str = "",
    route: str = "",
) -> XdsResource:
    """Build a cluster, under another name if ``name`` is given.

    ``route``: the rule that only this cluster serves, for the access log.
    """
    proto = base(name or source.name)
    if source.resolution is not None:
        external_names.set_name_resolution(proto, source.resolution, source.endpoints)
    if source.picker is not None:
        proto.load_balancing_policy.CopyFrom(endpoint_pickers.picked_endpoints())
    else:
        proto.lb_policy = load_balancing.endpoint_policy(source.settings)
    health_checks.set_active_checks(proto, source)
    if source.is_picker:
        endpoint_pickers.check_connections(proto)
    if source.tls is not None:
        proto.transport_socket.CopyFrom(_tls(source, source.tls, capabilities))
    load_balancing.set_limits(proto.circuit_breakers, source.settings)
    health_checks.set_passive_checks(proto, source.settings.passive_checks)
    if source.protocol not in ("tcp", "udp"):
        retries.set_budget(proto.circuit_breakers.thresholds[0], source.settings.retry_budget)
        proto.typed_extension_protocol_options[HTTP_OPTIONS].CopyFrom(packed(_http(source)))
    if source.protocol == "tcp":
        dynamic_clusters.set_tcp_keepalive(proto)
    log_entries.add_log_metadata(proto.metadata, route=route, backend=object_text(source.origin))
    origins = (source.origin,) if source.origin != NO_ORIGIN else ()
    return XdsResource.make(CLUSTER_TYPE_URL, proto.name, written(proto), origins=origins)


def build_closed_cluster(name: str, route: str) -> XdsResource:
    """Build a cluster without endpoints, which stands for a rule without valid backend.

    ``route``: the rule, for the access log.
    """
    proto = cluster_pb2.Cluster(name=name, type=cluster_pb2.Cluster.STATIC)
    reason = str(LocalReason.INVALID_ROUTE)
    log_entries.add_log_metadata(proto.metadata, route=route, reason=reason)
    if "." in name:
        proto.alt_stat_name = names.stats_element(name)
    return XdsResource.make(CLUSTER_TYPE_URL, name, written(proto))


def base(name: str) -> cluster_pb2.Cluster:
    """Return a cluster with the settings that all clusters have in common."""
    proto = cluster_pb2.Cluster(
        name=name,
        type=cluster_pb2.Cluster.EDS,
        eds_cluster_config=cluster_pb2.Cluster.EdsClusterConfig(eds_config=ads()),
        connect_timeout=quoting.duration_of(CONNECT_TIMEOUT_SECONDS),
    )
    if "." in name:
        proto.alt_stat_name = names.stats_element(name)
    # By default Envoy answers 503 from the 1,025th concurrent request on.
    unlimited = wrap_number(_UNLIMITED)
    proto.circuit_breakers.thresholds.append(
        circuit_breaker_pb2.CircuitBreakers.Thresholds(
            max_connections=unlimited,
            max_pending_requests=unlimited,
            max_requests=unlimited,
            max_retries=unlimited,
        )
    )
    return proto


def pipe(path: str) -> address_pb2.Address:
    """Return the address of a socket in the working directory of Envoy."""
    return address_pb2.Address(pipe=address_pb2.Pipe(path=path))


def static_cluster(name: str, address: address_pb2.Address) -> cluster_pb2.Cluster:
    """Return a cluster with one endpoint, which is not a resource of its own."""
    proto = base(name)
    proto.ClearField("eds_cluster_config")
    proto.type = cluster_pb2.Cluster.STATIC
    endpoint = components.LbEndpoint(endpoint=components.Endpoint(address=address))
    proto.load_assignment.CopyFrom(
        endpoint_pb2.ClusterLoadAssignment(
            cluster_name=name,
            endpoints=[components.LocalityLbEndpoints(lb_endpoints=[endpoint])],
        )
    )
    return proto


def set_idle_timeout(proto: cluster_pb2.Cluster, idle: float) -> None:
    """Set the idle timeout in seconds of a cluster's HTTP/1.1 connections."""
    options = _Options()
    options.explicit_http_config.http_protocol_options.CopyFrom(protocol_pb2.Http1ProtocolOptions())
    options.common_http_protocol_options.idle_timeout.CopyFrom(quoting.duration_of(idle))
    proto.typed_extension_protocol_options[HTTP_OPTIONS].CopyFrom(packed(options))


def build_endpoints(source: ir.Cluster, name: str = "") -> tuple[XdsResource, ...]:
    """Build the endpoints of a cluster, under another name if ``name`` is given.

    The cluster itself has those that Envoy resolves.
    """
    if source.resolution is not None:
        return ()
    endpoints = lb_endpoints(source.endpoints)
    if source.settings.active_checks is not None:
        for unchecked in endpoints[MAX_CHECKED_ENDPOINTS:]:
            unchecked.endpoint.health_check_config.disable_active_health_check = True
    locality = components.LocalityLbEndpoints(lb_endpoints=endpoints)
    return (assignment(name or source.name, [locality] if source.endpoints else []),)


def lb_endpoints(endpoints: Iterable[ir.Endpoint]) -> list[components.LbEndpoint]:
    """Return endpoints in Envoy's format."""
    return [
        components.LbEndpoint(
            endpoint=components.Endpoint(
                address=build_socket_address(endpoint.address, endpoint.port)
            )
        )
        for endpoint in endpoints
    ]


def assignment(
    name: str,
    localities: list[components.LocalityLbEndpoints],
    dropped: float = 0.0,
    *,
    secret: bool = False,
) -> XdsResource:
    """Build the endpoints of a name. ``dropped``: the share (0 to 1) of requests to drop.

    ``secret``: their metadata has key material.
    """
    proto = endpoint_pb2.ClusterLoadAssignment(cluster_name=name, endpoints=localities)
    if dropped:
        drop = proto.policy.drop_overloads.add(category="nowhere")
        drop.drop_percentage.numerator = round(dropped * 1_000_000)
        drop.drop_percentage.denominator = percent_pb2.FractionalPercent.MILLION
    return XdsResource.make(ENDPOINTS_TYPE_URL, name, written(proto), secret=secret)


def _http(source: ir.Cluster) -> http_pb2.HttpProtocolOptions:
    proto = _Options()
    if source.protocol == "http":
        proto.explicit_http_config.http_protocol_options.CopyFrom(
            protocol_pb2.Http1ProtocolOptions()
        )
    else:
        proto.explicit_http_config.http2_protocol_options.CopyFrom(
            protocol_pb2.Http2ProtocolOptions()
        )
    settings, common = source.settings, proto.common_http_protocol_options
    common.max_headers_count.CopyFrom(wrap_number(MAX_RESPONSE_HEADERS))
    common.max_response_headers_kb.CopyFrom(wrap_number(RESPONSE_HEADERS_KB))
    common.idle_timeout.CopyFrom(
        quoting.duration_of(IDLE_TIMEOUT_SECONDS if settings.idle is None else settings.idle)
    )
    requests = 1 if settings.connections == 0 else settings.requests
    if requests:
        common.max_requests_per_connection.CopyFrom(wrap_number(requests))
    if settings.lifetime is not None:
        common.max_connection_duration.CopyFrom(quoting.duration_of(settings.lifetime))
    return proto


def _tls(
    source: ir.Cluster, tls: ir.BackendTls, capabilities: EnvoyCapabilities
) -> base_pb2.TransportSocket:
    alpn = {"http": ("http/1.1",), "h2c": ("h2",), "grpc": ("h2",)}.get(source.protocol, ())
    subjects = [_subject(name) for name in _names(tls)]
    common = secrets.cluster_tls(source.name, tls, subjects, capabilities.system_trust, *alpn)
    return secrets.tls_socket(
        tls_pb2.UpstreamTlsContext(
            common_tls_context=common, sni=quoting.server_name(tls.server_name)
        )
    )


def _names(tls: ir.BackendTls) -> tuple[ir.SubjectName, ...]:
    if not tls.verified:
        return ()
    return tls.names or (ir.SubjectName("dns", tls.server_name),)


def _subject(name: ir.SubjectName) -> common_pb2.SubjectAltNameMatcher:
    kinds = common_pb2.SubjectAltNameMatcher
    return kinds(
        san_type=kinds.DNS if name.kind == "dns" else kinds.URI,
        matcher=string_pb2.StringMatcher(exact=quoting.check_text(name.value)),
    )
