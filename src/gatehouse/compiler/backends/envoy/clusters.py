"""Clusters: how backends are spoken to. Their endpoints are resources of their own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from envoy.config.cluster.v3 import circuit_breaker_pb2, cluster_pb2
from envoy.config.core.v3 import base_pb2, protocol_pb2
from envoy.config.endpoint.v3 import endpoint_components_pb2 as components
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.extensions.transport_sockets.tls.v3 import common_pb2, tls_pb2
from envoy.extensions.upstreams.http.v3 import http_protocol_options_pb2 as http_pb2
from envoy.type.matcher.v3 import string_pb2

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
from gatehouse.dataplane.xds.resources import CLUSTER, ENDPOINTS, Resource

CONNECT_TIMEOUT_SECONDS = 5.0
"""Seconds."""

IDLE_TIMEOUT_SECONDS = 60.0
"""Seconds that a connection is kept without a request: backends end theirs about then."""

_UNLIMITED = 2**32 - 1
_HTTP = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_Options = http_pb2.HttpProtocolOptions


def cluster(found: ir.Cluster, capabilities: Capabilities, name: str = "") -> Resource:
    """Give a cluster, under another name if there is one."""
    made = base(name or found.name)
    made.lb_policy = load_balancing.policy(found.settings)
    if found.tls is not None:
        made.transport_socket.CopyFrom(_tls(found, found.tls, capabilities))
    if found.protocol not in ("tcp", "udp"):
        made.typed_extension_protocol_options[_HTTP].CopyFrom(packed(_http(found)))
    if found.protocol == "tcp":
        dynamic_clusters.set_tcp_keepalive(made)
    return Resource.make(CLUSTER, made.name, written(made))


def base(name: str) -> Any:
    """Give what all clusters have."""
    made = cluster_pb2.Cluster(
        name=name,
        type=cluster_pb2.Cluster.EDS,
        eds_cluster_config=cluster_pb2.Cluster.EdsClusterConfig(eds_config=ads()),
        connect_timeout=quoting.seconds(CONNECT_TIMEOUT_SECONDS),
    )
    # Envoy would answer 503 from the 1,025th request on that is under way.
    unlimited = number(_UNLIMITED)
    made.circuit_breakers.thresholds.append(
        circuit_breaker_pb2.CircuitBreakers.Thresholds(
            max_connections=unlimited,
            max_pending_requests=unlimited,
            max_requests=unlimited,
            max_retries=unlimited,
        )
    )
    return made


def set_idle_timeout(made: Any, idle: float) -> None:
    """Keep a cluster's connections for HTTP/1.1 without a request for so many seconds."""
    options = _Options()
    options.explicit_http_config.http_protocol_options.CopyFrom(protocol_pb2.Http1ProtocolOptions())
    options.common_http_protocol_options.idle_timeout.CopyFrom(quoting.seconds(idle))
    made.typed_extension_protocol_options[_HTTP].CopyFrom(packed(options))


def endpoints(found: ir.Cluster, name: str = "") -> Resource:
    """Give where a cluster answers, under another name if there is one."""
    locality = components.LocalityLbEndpoints(lb_endpoints=lb_endpoints(found.endpoints))
    return assignment(name or found.name, [locality] if found.endpoints else [])


def lb_endpoints(found: Iterable[ir.Endpoint]) -> list[Any]:
    """Give endpoints as hosts."""
    return [
        components.LbEndpoint(
            endpoint=components.Endpoint(address=address(each.address, each.port))
        )
        for each in found
    ]


def assignment(name: str, localities: list[Any], dropped: float = 0.0) -> Resource:
    """Give the endpoints of a name. ``dropped``: the share that goes nowhere."""
    made = endpoint_pb2.ClusterLoadAssignment(cluster_name=name, endpoints=localities)
    if dropped:
        drop = made.policy.drop_overloads.add(category="nowhere")
        drop.drop_percentage.numerator = round(dropped * 1_000_000)
        drop.drop_percentage.denominator = 2
    return Resource.make(ENDPOINTS, name, written(made))


def _http(found: ir.Cluster) -> Any:
    made = _Options()
    if found.protocol == "http":
        made.explicit_http_config.http_protocol_options.CopyFrom(
            protocol_pb2.Http1ProtocolOptions()
        )
    else:
        made.explicit_http_config.http2_protocol_options.CopyFrom(
            protocol_pb2.Http2ProtocolOptions()
        )
    settings, common = found.settings, made.common_http_protocol_options
    common.idle_timeout.CopyFrom(
        quoting.seconds(IDLE_TIMEOUT_SECONDS if settings.idle is None else settings.idle)
    )
    requests = 1 if settings.connections == 0 else settings.requests
    if requests:
        common.max_requests_per_connection.CopyFrom(number(requests))
    if settings.lifetime is not None:
        common.max_connection_duration.CopyFrom(quoting.seconds(settings.lifetime))
    return made


def _tls(found: ir.Cluster, wanted: ir.BackendTls, capabilities: Capabilities) -> Any:
    shown = [names.backend_certificate(found.name)] if wanted.certificate else []
    alpn = {"http": ("http/1.1",), "h2c": ("h2",), "grpc": ("h2",)}.get(found.protocol, ())
    common = secrets.common(shown, *alpn)
    checked = common_pb2.CertificateValidationContext(
        match_typed_subject_alt_names=[_subject(each) for each in _names(wanted)]
    )
    if wanted.trust:
        combined = common.combined_validation_context
        combined.default_validation_context.CopyFrom(checked)
        combined.validation_context_sds_secret_config.CopyFrom(
            secrets.secret_config(names.backend_trust(found.name))
        )
    else:
        checked.trusted_ca.CopyFrom(base_pb2.DataSource(filename=capabilities.system_trust))
        common.validation_context.CopyFrom(checked)
    return secrets.socket(
        tls_pb2.UpstreamTlsContext(
            common_tls_context=common, sni=quoting.server_name(wanted.server_name)
        )
    )


def _names(wanted: ir.BackendTls) -> tuple[ir.SubjectName, ...]:
    return wanted.names or (ir.SubjectName("dns", wanted.server_name),)


def _subject(name: ir.SubjectName) -> Any:
    kinds = common_pb2.SubjectAltNameMatcher
    return kinds(
        san_type=kinds.DNS if name.kind == "dns" else kinds.URI,
        matcher=string_pb2.StringMatcher(exact=quoting.text(name.value)),
    )
