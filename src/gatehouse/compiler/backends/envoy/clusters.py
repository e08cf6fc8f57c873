"""Clusters: protocol, TLS and settings of backends. Endpoints are separate resources."""

from __future__ import annotations

from collections.abc import Iterable

from envoy.config.cluster.v3 import circuit_breaker_pb2, cluster_pb2
from envoy.config.core.v3 import base_pb2, protocol_pb2
from envoy.config.endpoint.v3 import endpoint_components_pb2 as components
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.extensions.transport_sockets.tls.v3 import common_pb2, tls_pb2
from envoy.extensions.upstreams.http.v3 import http_protocol_options_pb2 as http_pb2
from envoy.type.matcher.v3 import string_pb2
from envoy.type.v3 import percent_pb2

from gatehouse.compiler.backends.envoy import (
    dynamic_clusters,
    load_balancing,
    names,
    quoting,
    secrets,
)
from gatehouse.compiler.backends.envoy.capabilities import Capabilities
from gatehouse.compiler.backends.envoy.protobufs import address, ads, number, packed, written
from gatehouse.compiler.ir import http as ir
from gatehouse.dataplane.origin import NO_ORIGIN
from gatehouse.dataplane.xds.resources import CLUSTER, ENDPOINTS, Resource

CONNECT_TIMEOUT_SECONDS = 5.0
"""Timeout of a connection attempt in seconds."""

IDLE_TIMEOUT_SECONDS = 60.0
"""Idle timeout of connections in seconds. Backends close idle connections after about as long."""

_UNLIMITED = 2**32 - 1
_HTTP = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_Options = http_pb2.HttpProtocolOptions


def cluster(source: ir.Cluster, capabilities: Capabilities, name: str = "") -> Resource:
    """Build a cluster, under another name if ``name`` is given."""
    proto = base(name or source.name)
    proto.lb_policy = load_balancing.policy(source.settings)
    if source.tls is not None:
        proto.transport_socket.CopyFrom(_tls(source, source.tls, capabilities))
    if source.protocol not in ("tcp", "udp"):
        proto.typed_extension_protocol_options[_HTTP].CopyFrom(packed(_http(source)))
    if source.protocol == "tcp":
        dynamic_clusters.set_tcp_keepalive(proto)
    origins = (source.origin,) if source.origin != NO_ORIGIN else ()
    return Resource.make(CLUSTER, proto.name, written(proto), origins=origins)


def base(name: str) -> cluster_pb2.Cluster:
    """Return a cluster with the settings that all clusters have in common."""
    proto = cluster_pb2.Cluster(
        name=name,
        type=cluster_pb2.Cluster.EDS,
        eds_cluster_config=cluster_pb2.Cluster.EdsClusterConfig(eds_config=ads()),
        connect_timeout=quoting.seconds(CONNECT_TIMEOUT_SECONDS),
    )
    # By default Envoy answers 503 from the 1,025th concurrent request on.
    unlimited = number(_UNLIMITED)
    proto.circuit_breakers.thresholds.append(
        circuit_breaker_pb2.CircuitBreakers.Thresholds(
            max_connections=unlimited,
            max_pending_requests=unlimited,
            max_requests=unlimited,
            max_retries=unlimited,
        )
    )
    return proto


def set_idle_timeout(proto: cluster_pb2.Cluster, idle: float) -> None:
    """Set the idle timeout in seconds of a cluster's HTTP/1.1 connections."""
    options = _Options()
    options.explicit_http_config.http_protocol_options.CopyFrom(protocol_pb2.Http1ProtocolOptions())
    options.common_http_protocol_options.idle_timeout.CopyFrom(quoting.seconds(idle))
    proto.typed_extension_protocol_options[_HTTP].CopyFrom(packed(options))


def endpoints(source: ir.Cluster, name: str = "") -> Resource:
    """Build the endpoints of a cluster, under another name if ``name`` is given."""
    locality = components.LocalityLbEndpoints(lb_endpoints=lb_endpoints(source.endpoints))
    return assignment(name or source.name, [locality] if source.endpoints else [])


def lb_endpoints(endpoints: Iterable[ir.Endpoint]) -> list[components.LbEndpoint]:
    """Return endpoints in Envoy's format."""
    return [
        components.LbEndpoint(
            endpoint=components.Endpoint(address=address(endpoint.address, endpoint.port))
        )
        for endpoint in endpoints
    ]


def assignment(
    name: str, localities: list[components.LocalityLbEndpoints], dropped: float = 0.0
) -> Resource:
    """Build the endpoints of a name. ``dropped``: the share (0 to 1) of requests to drop."""
    proto = endpoint_pb2.ClusterLoadAssignment(cluster_name=name, endpoints=localities)
    if dropped:
        drop = proto.policy.drop_overloads.add(category="nowhere")
        drop.drop_percentage.numerator = round(dropped * 1_000_000)
        drop.drop_percentage.denominator = percent_pb2.FractionalPercent.MILLION
    return Resource.make(ENDPOINTS, name, written(proto))


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
    common.idle_timeout.CopyFrom(
        quoting.seconds(IDLE_TIMEOUT_SECONDS if settings.idle is None else settings.idle)
    )
    requests = 1 if settings.connections == 0 else settings.requests
    if requests:
        common.max_requests_per_connection.CopyFrom(number(requests))
    if settings.lifetime is not None:
        common.max_connection_duration.CopyFrom(quoting.seconds(settings.lifetime))
    return proto


def _tls(
    source: ir.Cluster, tls: ir.BackendTls, capabilities: Capabilities
) -> base_pb2.TransportSocket:
    certificates = [names.backend_certificate(source.name)] if tls.certificate else []
    alpn = {"http": ("http/1.1",), "h2c": ("h2",), "grpc": ("h2",)}.get(source.protocol, ())
    common = secrets.common(certificates, *alpn)
    validation = common_pb2.CertificateValidationContext(
        match_typed_subject_alt_names=[_subject(name) for name in _names(tls)]
    )
    if tls.trust:
        combined = common.combined_validation_context
        combined.default_validation_context.CopyFrom(validation)
        combined.validation_context_sds_secret_config.CopyFrom(
            secrets.secret_config(names.backend_trust(source.name))
        )
    else:
        validation.trusted_ca.CopyFrom(base_pb2.DataSource(filename=capabilities.system_trust))
        common.validation_context.CopyFrom(validation)
    return secrets.socket(
        tls_pb2.UpstreamTlsContext(
            common_tls_context=common, sni=quoting.server_name(tls.server_name)
        )
    )


def _names(tls: ir.BackendTls) -> tuple[ir.SubjectName, ...]:
    return tls.names or (ir.SubjectName("dns", tls.server_name),)


def _subject(name: ir.SubjectName) -> common_pb2.SubjectAltNameMatcher:
    kinds = common_pb2.SubjectAltNameMatcher
    return kinds(
        san_type=kinds.DNS if name.kind == "dns" else kinds.URI,
        matcher=string_pb2.StringMatcher(exact=quoting.text(name.value)),
    )
