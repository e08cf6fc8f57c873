"""Internal endpoints: the reviewer's socket and cluster, and the rate limit service."""

from __future__ import annotations

import ipaddress

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.core.v3 import address_pb2, protocol_pb2
from envoy.config.endpoint.v3 import endpoint_components_pb2 as components
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.config.listener.v3 import listener_components_pb2, listener_pb2
from envoy.extensions.filters.http.router.v3 import router_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import (
    http_connection_manager_pb2 as manager_pb2,
)
from envoy.extensions.upstreams.http.v3 import http_protocol_options_pb2 as http_pb2

from gatehouse.compiler.backends.envoy import clusters, connection_manager, names, quoting
from gatehouse.compiler.backends.envoy.kube_apiserver import filter_chains
from gatehouse.compiler.backends.envoy.protobufs import address, packed, truth, written
from gatehouse.compiler.backends.failures import InvalidValueError
from gatehouse.dataplane.xds import sidecar_configs
from gatehouse.dataplane.xds.resources import CLUSTER, LISTENER, Resource

_REMOVED_HEADERS = ("impersonate-", "x-remote-", "x-envoy-")
"""Prefixes of headers that the reviewer must not send."""

_HTTP = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"


def listener() -> Resource:
    """Build the listener of the reviewer's socket. The header ``Host`` names the cluster."""
    manager = manager_pb2.HttpConnectionManager(
        stat_prefix="upstream_socket",
        codec_type=manager_pb2.HttpConnectionManager.HTTP1,
        scoped_routes=connection_manager.scopes(),
        early_header_mutation_extensions=[
            filter_chains.arrival(names.upstream_scope("") + "%REQ(:AUTHORITY)%", *_REMOVED_HEADERS)
        ],
        generate_request_id=truth(False),
        normalize_path=truth(False),
    )
    manager.http_filters.add(
        name="envoy.filters.http.router",
        typed_config=packed(router_pb2.Router(suppress_envoy_headers=True)),
    )
    proto = listener_pb2.Listener(name="upstream.sock", address=_pipe(names.UPSTREAM_SOCKET))
    proto.address.pipe.mode = 0o600
    proto.filter_chains.add(
        filters=[
            listener_components_pb2.Filter(
                name="envoy.filters.network.http_connection_manager", typed_config=packed(manager)
            )
        ]
    )
    return Resource.make(LISTENER, proto.name, written(proto))


def reviewer() -> Resource:
    """Build the cluster of the reviewer."""
    proto = _static(names.REVIEWER, _pipe(names.REVIEWER_SOCKET))
    return Resource.make(CLUSTER, proto.name, written(proto))


def sidecar_config() -> Resource:
    """Return the resource that makes the agent run a reviewer; its configuration is empty."""
    return sidecar_configs.resource(names.REVIEWER_SIDECAR, "kubernetes", names.REVIEWER_FILES)


def counter(endpoint: str) -> Resource:
    """Build the cluster of the rate limit service at ``host:port``. Raises InvalidValueError."""
    host, _, port = endpoint.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    try:
        socket_address = address(host, int(port))
    except ValueError as error:
        raise InvalidValueError("address of the rate limit service must be host:port") from error
    proto = _static(names.counter(endpoint), socket_address)
    try:
        ipaddress.ip_address(host)
    except ValueError:
        quoting.hostname(host)
        proto.type = cluster_pb2.Cluster.STRICT_DNS
    options = http_pb2.HttpProtocolOptions()
    options.explicit_http_config.http2_protocol_options.CopyFrom(
        protocol_pb2.Http2ProtocolOptions()
    )
    proto.typed_extension_protocol_options[_HTTP].CopyFrom(packed(options))
    return Resource.make(CLUSTER, proto.name, written(proto))


def _pipe(path: str) -> address_pb2.Address:
    return address_pb2.Address(pipe=address_pb2.Pipe(path=path))


def _static(name: str, socket_address: address_pb2.Address) -> cluster_pb2.Cluster:
    proto = clusters.base(name)
    proto.ClearField("eds_cluster_config")
    proto.type = cluster_pb2.Cluster.STATIC
    endpoint = components.LbEndpoint(endpoint=components.Endpoint(address=socket_address))
    proto.load_assignment.CopyFrom(
        endpoint_pb2.ClusterLoadAssignment(
            cluster_name=name,
            endpoints=[components.LocalityLbEndpoints(lb_endpoints=[endpoint])],
        )
    )
    return proto
