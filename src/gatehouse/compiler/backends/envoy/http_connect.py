"""Ports that select a cluster by the destination in an HTTP CONNECT request.

The destination is the header of Gardener's node proxies, or the target of a request without that
header. It is the end of the name of a scope (:mod:`scoped_routes`), so that a client selects only
among the destinations of its port. All other requests are rejected with 404.
"""

from __future__ import annotations

import msgspec
from envoy.config.common.mutation_rules.v3 import mutation_rules_pb2
from envoy.config.core.v3 import protocol_pb2
from envoy.config.listener.v3 import listener_pb2
from envoy.config.rbac.v3 import rbac_pb2
from envoy.config.route.v3 import route_components_pb2, route_pb2, scoped_route_pb2
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2 as filter_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import (
    http_connection_manager_pb2 as manager_pb2,
)

from gatehouse.compiler.backends.envoy import (
    client_ip,
    connection_log,
    connection_manager,
    dynamic_clusters,
    extensions,
    headers,
    log_entries,
    names,
    quoting,
)
from gatehouse.compiler.backends.envoy.log_entries import ListenerLog
from gatehouse.compiler.backends.envoy.protobufs import packed, truth, wrap_number, written
from gatehouse.compiler.backends.fragments import Fragment, entry_fragment, failed_fragment
from gatehouse.compiler.backends.source import GatewaySource, gateway_configuration
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir.access_log import object_rule_text
from gatehouse.dataplane.xds.resources import SCOPE_TYPE_URL, XdsResource
from gatehouse.incremental.grouping import presence
from gatehouse.incremental.query import Ask
from gatehouse.incremental.table import Table

HEAD_TIMEOUT_SECONDS = 5.0
"""Timeout in seconds of the head of a request, and of a connection without request."""

HEAD_KB = 8
MAX_HEADERS = 32
"""Maximum size in KiB, and maximum number of header fields, of the head of a request."""

_RBAC = "envoy.filters.http.rbac"
_UPGRADE = "CONNECT"
_Manager = manager_pb2.HttpConnectionManager

_PortName = tuple[int, str]
"""A port, and the name of a destination."""


def connect_destinations(
    ask: Ask, gateway: GatewaySource
) -> Table[_PortName, ir.ConnectDestination]:
    """Return the destinations of all ports."""
    ports = gateway_configuration(ask, gateway).http_connect_listeners
    by_port = {port.port: port.destinations for port in ports}
    return ask.by_name(by_port, lambda port, destination: (port, destination.name))


def connect_clusters(ask: Ask, gateway: GatewaySource) -> Table[str, bool]:
    """Return the names of the clusters of all destinations."""
    return ask.group_by(
        ask(connect_destinations, gateway), lambda _, destination: [destination.cluster], presence
    )


def connect_scopes(ask: Ask, gateway: GatewaySource) -> Table[_PortName, Fragment[XdsResource]]:
    """Return the scopes of all destinations."""
    return ask.map_keys(_scope, connect_destinations, gateway, failed_fragment)


def _scope(ask: Ask, _gateway: GatewaySource, key: _PortName) -> Fragment[XdsResource] | None:
    port, _ = key

    def resources(destination: ir.ConnectDestination) -> list[XdsResource]:
        return [_resource(port, destination)]

    return entry_fragment(ask, connect_destinations, _gateway, key, resources)


def _resource(port: int, destination: ir.ConnectDestination) -> XdsResource:
    name = quoting.check_text(names.by_connect(port) + destination.name)
    route = route_components_pb2.Route(
        match=route_components_pb2.RouteMatch(
            connect_matcher=route_components_pb2.RouteMatch.ConnectMatcher()
        )
    )
    route.route.cluster = destination.cluster
    log_entries.add_log_metadata(route.metadata, route=object_rule_text(destination.origin))
    route.route.timeout.seconds = 0
    route.route.idle_timeout.CopyFrom(quoting.duration_of(dynamic_clusters.IDLE))
    route.route.max_stream_duration.max_stream_duration.CopyFrom(
        quoting.duration_of(dynamic_clusters.MAX_CONNECTION_SECONDS)
    )
    upgrade = route.route.upgrade_configs.add(upgrade_type=_UPGRADE)
    upgrade.connect_config.SetInParent()
    if destination.sources:
        route.typed_per_filter_config[_RBAC].CopyFrom(packed(_restriction(destination.sources)))
    proto = scoped_route_pb2.ScopedRouteConfiguration(
        name=name,
        route_configuration=route_pb2.RouteConfiguration(name=name, validate_clusters=truth(False)),
    )
    proto.route_configuration.virtual_hosts.add(name="-", domains=["*"], routes=[route])
    proto.key.fragments.add(string_key=name)
    return XdsResource.make(SCOPE_TYPE_URL, name, written(proto), origins=(destination.origin,))


def _restriction(sources: tuple[str, ...]) -> filter_pb2.RBACPerRoute:
    principals = [rbac_pb2.Principal(remote_ip=client_ip.network(source)) for source in sources]
    proto = filter_pb2.RBACPerRoute()
    proto.rbac.rules.policies["sources"].CopyFrom(
        rbac_pb2.Policy(permissions=[rbac_pb2.Permission(any=True)], principals=principals)
    )
    return proto


class HttpConnectInputs(msgspec.Struct, frozen=True):
    """Inputs of the listener of an HTTP CONNECT port."""

    proxies: tuple[str, ...]


def fill_connect(
    proto: listener_pb2.Listener, port: int, inputs: HttpConnectInputs, log: ListenerLog | None
) -> None:
    """Write the listener of a port, without filters for the PROXY header of a load balancer.

    ``log``: how the access log names the listener; None: nothing is logged. Raises
    InvalidValueError.
    """
    dynamic_clusters.limit_buffers(proto)
    manager = _manager(port)
    if log:
        proto.access_log.extend(connection_log.logs_of_unmatched(log, {}))
        manager.access_log.extend(connection_log.tunnel_logs(log))
    chain = proto.filter_chains.add(
        name=names.filter_chain_name(port, "connect"),
        filters=[extensions.http_connections(manager)],
    )
    # The address after the PROXY header of a load balancer, if there is one.
    chain.filter_chain_match.source_prefix_ranges.extend(map(client_ip.network, inputs.proxies))


def _manager(port: int) -> manager_pb2.HttpConnectionManager:
    timeout = quoting.duration_of(HEAD_TIMEOUT_SECONDS)
    destination = names.by_connect(port) + connection_log.CONNECT_DESTINATION
    scope = headers.option(names.SCOPE_HEADER, destination)
    mutation = mutation_rules_pb2.HeaderMutation(append=scope)
    return _Manager(
        codec_type=_Manager.HTTP1,
        stat_prefix=f"connect_{port}",
        scoped_routes=connection_manager.scopes(separator=""),
        use_remote_address=truth(True),
        skip_xff_append=True,
        generate_request_id=truth(False),
        max_request_headers_kb=wrap_number(HEAD_KB),
        request_headers_timeout=timeout,
        stream_idle_timeout=quoting.duration_of(dynamic_clusters.IDLE),
        upgrade_configs=[_Manager.UpgradeConfig(upgrade_type=_UPGRADE)],
        common_http_protocol_options=protocol_pb2.HttpProtocolOptions(
            idle_timeout=timeout,
            max_headers_count=wrap_number(MAX_HEADERS),
            headers_with_underscores_action=protocol_pb2.HttpProtocolOptions.REJECT_REQUEST,
        ),
        early_header_mutation_extensions=[extensions.arrival_mutations([mutation])],
        http_filters=[
            extensions.http_filter(_RBAC, filter_pb2.RBAC()),
            extensions.router_filter(),
        ],
    )
