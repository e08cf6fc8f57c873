"""Internal endpoints: the socket and the cluster of the reviewer."""

from __future__ import annotations

from envoy.config.listener.v3 import listener_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import (
    http_connection_manager_pb2 as manager_pb2,
)

from gatehouse.compiler.backends.envoy import (
    clusters,
    connection_manager,
    extensions,
    names,
)
from gatehouse.compiler.backends.envoy.kube_apiserver import filter_chains
from gatehouse.compiler.backends.envoy.protobufs import truth, written
from gatehouse.dataplane.xds import sidecar_configs
from gatehouse.dataplane.xds.resources import CLUSTER_TYPE_URL, LISTENER_TYPE_URL, XdsResource

_REMOVED_HEADERS = ("impersonate-", "x-remote-", "x-envoy-")
"""Prefixes of headers that the reviewer must not send."""


def reviewer_listener() -> XdsResource:
    """Build the listener of the reviewer's socket. The header ``Host`` names the cluster."""
    manager = manager_pb2.HttpConnectionManager(
        stat_prefix="upstream_socket",
        codec_type=manager_pb2.HttpConnectionManager.HTTP1,
        scoped_routes=connection_manager.scopes(),
        early_header_mutation_extensions=[
            filter_chains.arrival_headers(
                names.upstream_scope("") + "%REQ(:AUTHORITY)%", *_REMOVED_HEADERS
            )
        ],
        generate_request_id=truth(False),
        normalize_path=truth(False),
    )
    manager.http_filters.append(extensions.router_filter())
    proto = listener_pb2.Listener(
        name="upstream.sock", address=clusters.pipe(names.UPSTREAM_SOCKET)
    )
    proto.address.pipe.mode = 0o600
    proto.filter_chains.add(filters=[extensions.http_connections(manager)])
    return XdsResource.make(LISTENER_TYPE_URL, proto.name, written(proto))


def reviewer() -> XdsResource:
    """Build the cluster of the reviewer."""
    proto = clusters.static_cluster(
        names.REVIEWER_CLUSTER, clusters.pipe(names.REVIEWER_SOCKET_NAME)
    )
    return XdsResource.make(CLUSTER_TYPE_URL, proto.name, written(proto))


def sidecar_config() -> XdsResource:
    """Return the resource that makes the agent run a reviewer; its configuration is empty."""
    return sidecar_configs.resource(names.REVIEWER_SIDECAR_NAME, "kubernetes", names.REVIEWER_FILES)
