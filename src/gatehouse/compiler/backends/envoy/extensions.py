"""Extensions of Envoy: messages with the name of an extension and its packed configuration."""

from __future__ import annotations

from collections.abc import Iterable

from envoy.config.common.mutation_rules.v3 import mutation_rules_pb2
from envoy.config.core.v3 import extension_pb2
from envoy.config.listener.v3 import listener_components_pb2 as components
from envoy.extensions.filters.http.header_mutation.v3 import header_mutation_pb2
from envoy.extensions.filters.http.router.v3 import router_pb2
from envoy.extensions.filters.http.upstream_codec.v3 import upstream_codec_pb2
from envoy.extensions.filters.listener.proxy_protocol.v3 import proxy_protocol_pb2
from envoy.extensions.filters.listener.tls_inspector.v3 import tls_inspector_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import (
    http_connection_manager_pb2 as manager_pb2,
)
from envoy.extensions.http.early_header_mutation.header_mutation.v3 import (
    header_mutation_pb2 as early_pb2,
)
from google.protobuf.message import Message

from gatehouse.compiler.backends.envoy.protobufs import packed


def extension(name: str, config: Message) -> extension_pb2.TypedExtensionConfig:
    """Return an extension in the message that most places have."""
    return extension_pb2.TypedExtensionConfig(name=name, typed_config=packed(config))


def http_filter(name: str, config: Message, *, disabled: bool = False) -> manager_pb2.HttpFilter:
    """Return a filter of requests. ``disabled``: routes enable it."""
    return manager_pb2.HttpFilter(name=name, typed_config=packed(config), disabled=disabled)


def network_filter(name: str, config: Message) -> components.Filter:
    """Return a filter of connections."""
    return components.Filter(name=name, typed_config=packed(config))


def listener_filter(name: str, config: Message) -> components.ListenerFilter:
    """Return a filter of a listener, which runs before a filter chain is chosen."""
    return components.ListenerFilter(name=name, typed_config=packed(config))


def http_connections(manager: manager_pb2.HttpConnectionManager) -> components.Filter:
    """Return the filter that reads requests from connections."""
    return network_filter("envoy.filters.network.http_connection_manager", manager)


def router_filter(config: router_pb2.Router | None = None) -> manager_pb2.HttpFilter:
    """Return the last filter of requests. By default it adds no headers of Envoy."""
    config = router_pb2.Router(suppress_envoy_headers=True) if config is None else config
    return http_filter("envoy.filters.http.router", config)


def upstream_codec() -> manager_pb2.HttpFilter:
    """Return the last filter of attempts at endpoints."""
    return http_filter("envoy.filters.http.upstream_codec", upstream_codec_pb2.UpstreamCodec())


def tls_inspector() -> components.ListenerFilter:
    """Return the filter that reads the SNI."""
    return listener_filter("envoy.filters.listener.tls_inspector", tls_inspector_pb2.TlsInspector())


def proxy_header() -> components.ListenerFilter:
    """Return the filter that reads a PROXY protocol header."""
    return listener_filter(
        "envoy.filters.listener.proxy_protocol", proxy_protocol_pb2.ProxyProtocol()
    )


def arrival_mutations(
    mutations: Iterable[mutation_rules_pb2.HeaderMutation],
) -> extension_pb2.TypedExtensionConfig:
    """Return changes of request headers before the route is chosen."""
    return extension(
        "envoy.http.early_header_mutation.header_mutation",
        early_pb2.HeaderMutation(mutations=mutations),
    )


def request_mutations(
    mutations: Iterable[mutation_rules_pb2.HeaderMutation],
) -> header_mutation_pb2.HeaderMutation:
    """Return the configuration of a filter that changes request headers."""
    return header_mutation_pb2.HeaderMutation(
        mutations=header_mutation_pb2.Mutations(request_mutations=mutations)
    )
