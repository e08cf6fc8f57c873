"""The rate limit service: its cluster, the filter that asks it, and descriptors of limits.

A descriptor contains the whole limit, so that the service needs no configuration: the entries
``cluster`` and ``schema`` name it, ``rate``, ``per`` (second or minute) and ``burst`` are its token
bucket. Each value of a further entry has a bucket of its own: ``key`` or ``remote_address``, and
``size``, which tells requests with long headers from others.
"""

from __future__ import annotations

from collections.abc import Mapping

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.core.v3 import config_source_pb2, grpc_service_pb2, protocol_pb2
from envoy.config.route.v3 import route_components_pb2 as components
from envoy.extensions.filters.http.ratelimit.v3 import rate_limit_pb2
from envoy.extensions.rate_limit_descriptors.expr.v3 import expr_pb2
from envoy.extensions.upstreams.http.v3 import http_protocol_options_pb2 as http_pb2

from gatehouse.compiler.backends.envoy import clusters, extensions, names, quoting
from gatehouse.compiler.backends.envoy.protobufs import build_socket_address, packed, written
from gatehouse.compiler.backends.failures import InvalidValueError
from gatehouse.dataplane.xds.resources import CLUSTER_TYPE_URL, XdsResource
from kube_base.runtime.time_limits import scaled
from kube_base.types import ip_addresses

SHARED_LIMIT_FILTER = "envoy.filters.http.ratelimit"

RATE_LIMIT_TIMEOUT_SECONDS = scaled(0.3)
"""Timeout of the rate limit service in seconds; after it, only the limit of one data plane
applies."""

SIZE_ENTRY = "size"
KEY_ENTRY = "key"
"""Entry whose value is that of an attribute of the request."""

MAX_RULES = 16
"""Maximum number of limits of a route."""

MAX_KEYED_BYTES = 32 << 10
"""Size of the headers of a request from which on the values of attributes are not sent. Else a
client could make messages longer than the service reads, and its requests would pass."""


def shared_filter(counter: str) -> rate_limit_pb2.RateLimit:
    """Return the filter that calls the rate limit service, for routes that have its descriptors."""
    proto = rate_limit_pb2.RateLimit(
        domain="gatehouse",
        timeout=quoting.duration_of(RATE_LIMIT_TIMEOUT_SECONDS),
        disable_x_envoy_ratelimited_header=True,
    )
    service = proto.rate_limit_service
    service.grpc_service.CopyFrom(
        grpc_service_pb2.GrpcService(
            envoy_grpc=grpc_service_pb2.GrpcService.EnvoyGrpc(
                cluster_name=names.rate_limit_cluster_name(counter)
            ),
            timeout=quoting.duration_of(RATE_LIMIT_TIMEOUT_SECONDS),
        )
    )
    service.transport_api_version = config_source_pb2.V3
    return proto


def descriptor(entries: Mapping[str, str]) -> components.RateLimit:
    """Return the descriptor with constant entries."""
    proto = components.RateLimit()
    for key, value in entries.items():
        proto.actions.add().generic_key.CopyFrom(
            components.RateLimit.Action.GenericKey(
                descriptor_key=key, descriptor_value=quoting.escape_percent(value)
            )
        )
    return proto


def bounded(keyed: components.RateLimit, entries: Mapping[str, str]) -> list[components.RateLimit]:
    """Return a descriptor with attributes for short requests, and one for all long requests."""
    size = f"request.total_size < {MAX_KEYED_BYTES}"
    result = [keyed, descriptor(entries)]
    for proto, is_short, value in zip(result, ("true", "false"), ("short", "long"), strict=True):
        # An error, for the other kind of requests, prevents that the descriptor is sent.
        expression = expr_pb2.Descriptor(
            descriptor_key=SIZE_ENTRY, text=f"{{{is_short}: '{value}'}}[{size}]"
        )
        proto.actions.add().extension.CopyFrom(
            extensions.extension("envoy.rate_limit_descriptors.expr", expression)
        )
    return result


def rate_limit_cluster(endpoint: str) -> XdsResource:
    """Build the cluster of the rate limit service at ``host:port``. Raises InvalidValueError."""
    host, _, port = endpoint.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    try:
        socket_address = build_socket_address(host, int(port))
    except ValueError as error:
        raise InvalidValueError("address of the rate limit service must be host:port") from error
    proto = clusters.static_cluster(names.rate_limit_cluster_name(endpoint), socket_address)
    try:
        ip_addresses.ip_address(host)
    except ValueError:
        quoting.check_hostname(host)
        proto.type = cluster_pb2.Cluster.STRICT_DNS
    options = http_pb2.HttpProtocolOptions()
    options.explicit_http_config.http2_protocol_options.CopyFrom(
        protocol_pb2.Http2ProtocolOptions()
    )
    proto.typed_extension_protocol_options[clusters.HTTP_OPTIONS].CopyFrom(packed(options))
    return XdsResource.make(CLUSTER_TYPE_URL, proto.name, written(proto))
