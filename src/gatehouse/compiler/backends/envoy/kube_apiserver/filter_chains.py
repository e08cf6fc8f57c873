"""A port in front of kube-apiservers: one filter chain per cluster, selected by SNI.

A chain depends only on its cluster's hostnames and number of certificates: the connections of a
changed chain are closed.
"""

from __future__ import annotations

from collections.abc import Iterable

from envoy.config.common.mutation_rules.v3 import mutation_rules_pb2
from envoy.config.core.v3 import address_pb2, base_pb2, extension_pb2, protocol_pb2
from envoy.config.listener.v3 import listener_components_pb2 as components
from envoy.config.listener.v3 import listener_pb2
from envoy.extensions.filters.http.lua.v3 import lua_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import (
    http_connection_manager_pb2 as manager_pb2,
)
from envoy.type.matcher.v3 import string_pb2

from gatehouse.compiler.backends.envoy import (
    client_ip,
    connection_manager,
    extensions,
    headers,
    names,
    quoting,
    secrets,
    shared_limits,
)
from gatehouse.compiler.backends.envoy.kube_apiserver import (
    access_log,
    flow_control,
    local_replies,
    script,
    stats,
)
from gatehouse.compiler.backends.envoy.protobufs import (
    build_socket_address,
    truth,
    wrap_number,
    written,
)
from gatehouse.compiler.backends.upgrades import TUNNELS
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import kube_apiserver as ir
from gatehouse.compiler.ir.settings import DataPlaneSettings
from gatehouse.dataplane.origin import port_origin
from gatehouse.dataplane.xds.resources import LISTENER_TYPE_URL, XdsResource

_Manager = manager_pb2.HttpConnectionManager
_Mutation = mutation_rules_pb2.HeaderMutation

_CONNECTION = "%CONNECTION_ID%"
"""Passed to the script with the scope, in a header that it reads anyway: it caches certificates by
connection. Otherwise Envoy would calculate a certificate's digest for each request."""

_STREAMS = 1000
_PING, _PONG = 60.0, 20.0
"""HTTP/2 keepalive: seconds without traffic until a ping, and until the connection is closed."""

_STREAM_WINDOW, _CONNECTION_WINDOW = 1 << 18, 1 << 22


def build_listener(
    api_listener: ir.ApiListener,
    chains: Iterable[components.FilterChain],
    gateway: ir_gateway.GatewayConfiguration,
) -> XdsResource:
    """Build the listener of a port from its chains."""
    proto = listener_pb2.Listener(
        name=names.listener_name(api_listener.port, "tcp"),
        address=_address(api_listener.port, gateway),
        filter_chains=chains,
    )
    if api_listener.certificates:
        proto.default_filter_chain.CopyFrom(_unknown(api_listener, gateway.settings))
    client_ip.admit(proto, gateway.settings)
    proto.listener_filters.extend(client_ip.listener_filters(gateway.settings))
    proto.listener_filters.append(extensions.tls_inspector())
    origins = (port_origin(gateway.name, api_listener.port),)
    return XdsResource.make(LISTENER_TYPE_URL, proto.name, written(proto), origins=origins)


def _address(port: int, gateway: ir_gateway.GatewayConfiguration) -> address_pb2.Address:
    if gateway.bind_address:
        return build_socket_address(gateway.bind_address, port)
    if not gateway.settings.ipv6:
        return build_socket_address("0.0.0.0", port)  # noqa: S104
    return build_socket_address("::", port, ipv4_too=gateway.settings.ipv4)


def server_certificates(listener: ir.ApiListener, cluster: ir.ApiCluster) -> tuple[str, ...]:
    """Return the names of the server certificates of a cluster."""
    return cluster.certificates or listener.certificates


def cluster_chain(
    api_listener: ir.ApiListener, cluster: ir.ApiCluster, edge: DataPlaneSettings
) -> components.FilterChain:
    """Build the chain of a cluster."""
    name = names.api_chain(api_listener.port, cluster.name)
    scope = quoting.escape_percent(
        names.scope_header_value(names.api_scope(api_listener.port, cluster.name))
    )
    manager = _manager(
        names.stats_element(f"kube_{api_listener.port}_{quoting.check_text(cluster.name)}"),
        f"{scope}:{_CONNECTION}",
        edge,
    )
    manager.local_reply_config.CopyFrom(local_replies.cluster_replies())
    manager.access_log.append(access_log.log())
    manager.access_log.extend(stats.loggers(cluster.name))
    manager.access_log_options.access_log_flush_interval.CopyFrom(
        quoting.duration_of(stats.STATS_PERIOD_SECONDS)
    )
    manager.http_filters.extend(_filters(api_listener))
    return components.FilterChain(
        name=name,
        filter_chain_match=components.FilterChainMatch(
            server_names=sorted(map(quoting.check_hostname, cluster.hosts)),
            transport_protocol="tls",
        ),
        filters=[_http(manager)],
        transport_socket=secrets.downstream_tls(
            _certificate_names(name, len(server_certificates(api_listener, cluster))),
            "h2", "http/1.1",
            clients=names.api_clients(api_listener.port, cluster.name), required=False,
            tls=api_listener.tls,
        ),
    )  # fmt: skip


def _unknown(api_listener: ir.ApiListener, edge: DataPlaneSettings) -> components.FilterChain:
    """Build the chain of unknown hostnames."""
    name = names.api_chain(api_listener.port, "")
    scope = quoting.escape_percent(names.scope_header_value(names.api_scope(api_listener.port, "")))
    manager = _manager(f"kube_{api_listener.port}", scope, edge)
    manager.local_reply_config.CopyFrom(local_replies.unknown_host())
    # The chain is selected once. Clients must reconnect to reach a cluster that is created later.
    manager.common_http_protocol_options.max_requests_per_connection.value = 1
    # Routes of scopes contain configuration of this filter, so that it must exist.
    manager.http_filters.extend(
        [extensions.http_filter(names.SCRIPT, lua_pb2.Lua()), extensions.router_filter()]
    )
    return components.FilterChain(
        name=name,
        filters=[_http(manager)],
        transport_socket=secrets.downstream_tls(
            _certificate_names(name, len(api_listener.certificates)),
            "h2",
            "http/1.1",
            tls=api_listener.tls,
        ),
    )


def _certificate_names(chain: str, count: int) -> list[str]:
    return [names.server_certificate(chain, index) for index in range(count)]


def _http(manager: manager_pb2.HttpConnectionManager) -> components.Filter:
    return extensions.http_connections(manager)


def _manager(prefix: str, scope: str, edge: DataPlaneSettings) -> manager_pb2.HttpConnectionManager:
    proto = _Manager(
        codec_type=_Manager.AUTO,
        stat_prefix=prefix,
        scoped_routes=connection_manager.scopes(names.SCOPE_INDEX),
        early_header_mutation_extensions=[arrival_headers(scope)],
        server_header_transformation=_Manager.PASS_THROUGH,
        # The path that the script parses is sent unchanged: nothing may normalise it.
        normalize_path=truth(False),
        merge_slashes=False,
        path_with_escaped_slashes_action=_Manager.KEEP_UNCHANGED,
        generate_request_id=truth(False),
        preserve_external_request_id=True,
        max_request_headers_kb=wrap_number(connection_manager.HEADERS_KB),
        upgrade_configs=[_Manager.UpgradeConfig(upgrade_type=protocol) for protocol in TUNNELS],
        common_http_protocol_options=protocol_pb2.HttpProtocolOptions(
            headers_with_underscores_action=protocol_pb2.HttpProtocolOptions.DROP_HEADER,
            max_headers_count=wrap_number(1000),
        ),
        http2_protocol_options=_http2(),
        stream_idle_timeout=quoting.duration_of(0),
        request_headers_timeout=quoting.duration_of(60),
    )
    client_ip.apply_client_ip(proto, edge)
    return proto


def _http2() -> protocol_pb2.Http2ProtocolOptions:
    proto = protocol_pb2.Http2ProtocolOptions(
        max_concurrent_streams=wrap_number(_STREAMS),
        initial_stream_window_size=wrap_number(_STREAM_WINDOW),
        initial_connection_window_size=wrap_number(_CONNECTION_WINDOW),
    )
    proto.connection_keepalive.interval.CopyFrom(quoting.duration_of(_PING))
    proto.connection_keepalive.timeout.CopyFrom(quoting.duration_of(_PONG))
    return proto


def arrival_headers(scope: str, *more: str) -> extension_pb2.TypedExtensionConfig:
    """Return the mutation that sets the scope header, and removes any that a client sent.

    ``scope`` may contain Envoy's format. ``more``: prefixes of other headers to remove. The script
    itself removes headers that are not permitted, since it reads all of them anyway.
    """
    mutations = [
        _Mutation(
            remove_on_match=_Mutation.RemoveOnMatch(
                key_matcher=string_pb2.StringMatcher(prefix=prefix)
            )
        )
        for prefix in (names.HEADER_PREFIX, *more)
    ]
    mutations.append(_Mutation(append=headers.option(names.SCOPE_HEADER, scope)))
    return extensions.arrival_mutations(mutations)


def _filters(api_listener: ir.ApiListener) -> list[manager_pb2.HttpFilter]:
    lua = lua_pb2.Lua(
        default_source_code=base_pb2.DataSource(inline_string=script.TEXT),
        # The script clears the route cache itself when a request moves to another scope.
        clear_route_cache=truth(False),
    )
    filters = [
        extensions.http_filter(names.SCRIPT, lua),
        extensions.http_filter(stats.FILTER_STATE_FILTER, stats.idle_filter()),
        # Clusters without such limits do not pay for these: routes on arrival enable them.
        extensions.http_filter(flow_control.BUCKET, flow_control.idle_bucket(), disabled=True),
    ]
    if api_listener.counter:
        shared = shared_limits.shared_filter(api_listener.counter)
        filters.append(
            extensions.http_filter(shared_limits.SHARED_LIMIT_FILTER, shared, disabled=True)
        )
    return [*filters, extensions.router_filter()]
