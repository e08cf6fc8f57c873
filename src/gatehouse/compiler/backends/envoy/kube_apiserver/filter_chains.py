"""A port in front of kube-apiservers: a chain for each cluster, chosen by the name asked for.

A chain depends on its cluster's names and on how many certificates are shown, on nothing else:
with a chain its connections end.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from envoy.config.common.mutation_rules.v3 import mutation_rules_pb2
from envoy.config.core.v3 import base_pb2, extension_pb2, protocol_pb2
from envoy.config.listener.v3 import listener_components_pb2 as components
from envoy.config.listener.v3 import listener_pb2
from envoy.extensions.filters.http.lua.v3 import lua_pb2
from envoy.extensions.filters.http.router.v3 import router_pb2
from envoy.extensions.filters.listener.tls_inspector.v3 import tls_inspector_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import (
    http_connection_manager_pb2 as manager_pb2,
)
from envoy.extensions.http.early_header_mutation.header_mutation.v3 import (
    header_mutation_pb2 as early_pb2,
)
from envoy.type.matcher.v3 import string_pb2

from gatehouse.compiler.backends.envoy import (
    client_ip,
    connection_manager,
    headers,
    names,
    quoting,
    secrets,
)
from gatehouse.compiler.backends.envoy.kube_apiserver import (
    access_log,
    flow_control,
    local_replies,
    script,
    stats,
)
from gatehouse.compiler.backends.envoy.protobufs import address, number, packed, truth, written
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import kube_apiserver as ir
from gatehouse.compiler.ir.settings import DataPlaneSettings
from gatehouse.dataplane.xds.resources import LISTENER, Resource

_Manager = manager_pb2.HttpConnectionManager
_Mutation = mutation_rules_pb2.HeaderMutation

_CONNECTION = "%CONNECTION_ID%"
"""Said to the script with the scope, in a header that it reads anyway: by the connection it knows
a certificate again. Whoever asks for a certificate's digest has Envoy calculate it each time."""

_STREAMS = 1000
_PING, _PONG = 60.0, 20.0
"""Seconds without traffic until a client is asked, and until its connection is given up."""

_STREAM_WINDOW, _CONNECTION_WINDOW = 1 << 18, 1 << 22


def listener(asked: ir.ApiListener, chains: Iterable[Any], gateway: ir_gateway.Gateway) -> Resource:
    """Give the listener of a port, from chains that were made apart."""
    made = listener_pb2.Listener(
        name=names.listener(asked.port, "tcp"),
        address=_address(asked.port, gateway),
        filter_chains=chains,
    )
    if asked.certificates:
        made.default_filter_chain.CopyFrom(_unknown(asked, gateway.edge))
    client_ip.admit(made, gateway.edge)
    made.listener_filters.extend(client_ip.listener_filters(gateway.edge))
    made.listener_filters.append(
        components.ListenerFilter(
            name="envoy.filters.listener.tls_inspector",
            typed_config=packed(tls_inspector_pb2.TlsInspector()),
        )
    )
    return Resource.make(LISTENER, made.name, written(made))


def _address(port: int, gateway: ir_gateway.Gateway) -> Any:
    if gateway.bind_address:
        return address(gateway.bind_address, port)
    if not gateway.edge.ipv6:
        return address("0.0.0.0", port)  # noqa: S104
    return address("::", port, ipv4_too=gateway.edge.ipv4)


def certificates(asked: ir.ApiListener, cluster: ir.ApiCluster) -> tuple[str, ...]:
    """Give the names of the certificates that a cluster's clients are shown."""
    return cluster.certificates or asked.certificates


def of_cluster(asked: ir.ApiListener, cluster: ir.ApiCluster, edge: DataPlaneSettings) -> Any:
    """Give the chain of a cluster."""
    name = names.api_chain(asked.port, cluster.name)
    said = quoting.literal(names.scope_header_value(names.api_scope(asked.port, cluster.name)))
    manager = _manager(
        f"kube_{asked.port}_{quoting.text(cluster.name)}", f"{said}:{_CONNECTION}", edge
    )
    manager.local_reply_config.CopyFrom(local_replies.of_cluster())
    manager.access_log.append(access_log.log())
    manager.access_log.extend(stats.loggers(cluster.name))
    manager.access_log_options.access_log_flush_interval.CopyFrom(quoting.seconds(stats.PERIOD))
    manager.http_filters.extend(_filters(asked))
    return components.FilterChain(
        name=name,
        filter_chain_match=components.FilterChainMatch(
            server_names=sorted(map(quoting.hostname, cluster.hosts)), transport_protocol="tls"
        ),
        filters=[_http(manager)],
        transport_socket=secrets.server(
            _shown(name, len(certificates(asked, cluster))), "h2", "http/1.1",
            clients=names.api_clients(asked.port, cluster.name), required=False,
        ),
    )  # fmt: skip


def _unknown(asked: ir.ApiListener, edge: DataPlaneSettings) -> Any:
    """Give the chain of names that no cluster has."""
    name = names.api_chain(asked.port, "")
    said = quoting.literal(names.scope_header_value(names.api_scope(asked.port, "")))
    manager = _manager(f"kube_{asked.port}", said, edge)
    manager.local_reply_config.CopyFrom(local_replies.of_nobody())
    # Scopes of the other kind of chains say what their script does here.
    manager.http_filters.extend([_filter(names.SCRIPT, lua_pb2.Lua()), _router()])
    return components.FilterChain(
        name=name,
        filters=[_http(manager)],
        transport_socket=secrets.server(_shown(name, len(asked.certificates)), "h2", "http/1.1"),
    )


def _shown(chain: str, count: int) -> list[str]:
    return [names.server_certificate(chain, place) for place in range(count)]


def _http(manager: Any) -> Any:
    return components.Filter(
        name="envoy.filters.network.http_connection_manager", typed_config=packed(manager)
    )


def _manager(prefix: str, said: str, edge: DataPlaneSettings) -> Any:
    made = _Manager(
        codec_type=_Manager.AUTO,
        stat_prefix=prefix,
        scoped_routes=connection_manager.scopes(names.SCOPE_PLACE),
        early_header_mutation_extensions=[arrival(said)],
        server_header_transformation=_Manager.PASS_THROUGH,
        # What is understood of a path is what is sent on: nothing here makes it another.
        normalize_path=truth(False),
        merge_slashes=False,
        path_with_escaped_slashes_action=_Manager.KEEP_UNCHANGED,
        generate_request_id=truth(False),
        preserve_external_request_id=True,
        max_request_headers_kb=number(connection_manager.HEADERS_KB),
        upgrade_configs=[
            _Manager.UpgradeConfig(upgrade_type=each) for each in ("websocket", "spdy/3.1")
        ],
        common_http_protocol_options=protocol_pb2.HttpProtocolOptions(
            headers_with_underscores_action=protocol_pb2.HttpProtocolOptions.DROP_HEADER,
            max_headers_count=number(1000),
        ),
        http2_protocol_options=_http2(),
        stream_idle_timeout=quoting.seconds(0),
        request_headers_timeout=quoting.seconds(60),
    )
    client_ip.apply(made, edge)
    return made


def _http2() -> Any:
    made = protocol_pb2.Http2ProtocolOptions(
        max_concurrent_streams=number(_STREAMS),
        initial_stream_window_size=number(_STREAM_WINDOW),
        initial_connection_window_size=number(_CONNECTION_WINDOW),
    )
    made.connection_keepalive.interval.CopyFrom(quoting.seconds(_PING))
    made.connection_keepalive.timeout.CopyFrom(quoting.seconds(_PONG))
    return made


def arrival(scope: str, *more: str) -> Any:
    """Say in which scope a request arrives, whatever a client says of that.

    ``scope`` may hold Envoy's own format. ``more``: how names of headers begin that go as well.
    The script takes those away itself that lead nowhere, since it looks at all of them anyway.
    """
    mutations = [
        _Mutation(
            remove_on_match=_Mutation.RemoveOnMatch(
                key_matcher=string_pb2.StringMatcher(prefix=prefix)
            )
        )
        for prefix in (names.OURS, *more)
    ]
    mutations.append(_Mutation(append=headers.option(names.SCOPE_HEADER, scope)))
    return extension_pb2.TypedExtensionConfig(
        name="envoy.http.early_header_mutation.header_mutation",
        typed_config=packed(early_pb2.HeaderMutation(mutations=mutations)),
    )


def _filters(asked: ir.ApiListener) -> list[Any]:
    understood = lua_pb2.Lua(
        default_source_code=base_pb2.DataSource(inline_string=script.TEXT),
        # It says itself when a request is to go another way.
        clear_route_cache=truth(False),
    )
    found = [
        _filter(names.SCRIPT, understood),
        _filter(stats.FILTER, stats.keeping_nothing()),
        # Clusters without such limits do not pay for these: where requests arrive says who does.
        _filter(flow_control.BUCKET, flow_control.idle_bucket(), disabled=True),
    ]
    if asked.counter:
        shared = flow_control.shared_filter(asked.counter)
        found.append(_filter(flow_control.SHARED, shared, disabled=True))
    return [*found, _router()]


def _router() -> Any:
    return _filter("envoy.filters.http.router", router_pb2.Router(suppress_envoy_headers=True))


def _filter(name: str, config: Any, *, disabled: bool = False) -> Any:
    return manager_pb2.HttpFilter(name=name, typed_config=packed(config), disabled=disabled)
