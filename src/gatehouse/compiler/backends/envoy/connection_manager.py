"""The HTTP connection manager, and the filters that are in every chain.

Nothing here depends on a route: a changed connection manager closes its connections. Filters are
never disabled by default, because Envoy decides that by the first virtual host that it finds, and
that of a wildcard is found later (:mod:`scoped_routes`). Each filter does nothing until its route
configures it.
"""

from __future__ import annotations

from envoy.config.common.mutation_rules.v3 import mutation_rules_pb2
from envoy.config.core.v3 import base_pb2, extension_pb2, protocol_pb2
from envoy.extensions.filters.http.header_mutation.v3 import header_mutation_pb2
from envoy.extensions.filters.http.lua.v3 import lua_pb2
from envoy.extensions.filters.http.router.v3 import router_pb2
from envoy.extensions.filters.http.stateful_session.v3 import stateful_session_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import (
    http_connection_manager_pb2 as manager_pb2,
)
from envoy.extensions.http.early_header_mutation.header_mutation.v3 import (
    header_mutation_pb2 as early_pb2,
)
from envoy.type.matcher.v3 import string_pb2
from google.protobuf.message import Message

from gatehouse.compiler.backends.envoy import (
    challenges,
    claim_headers,
    client_ip,
    compression,
    headers,
    names,
    quoting,
    route_filters,
    session_persistence,
)
from gatehouse.compiler.backends.envoy.protobufs import ads, number, packed, truth
from gatehouse.compiler.ir.settings import DataPlaneSettings

_Mutation = mutation_rules_pb2.HeaderMutation
_Manager = manager_pb2.HttpConnectionManager

HEADERS_KB = 256
"""Maximum size in KiB of all headers of a request; the same as for NGINX."""

_LOOKUP_SCRIPT = """
function envoy_on_request(handle)
  local headers = handle:headers()
  local asked = headers:get("x-gh-scope") or ""
  local lower = string.lower(asked)
  if lower ~= asked then
    headers:replace("x-gh-scope", lower)
    handle:clearRouteCache()
    handle:metadata()
    if handle:virtualHost():metadata():get("own") then return end
  end
  headers:replace("x-gh-scope", (string.match(lower, "^[^/]*/[^/]*/") or "") .. "*")
  handle:clearRouteCache()
end
"""


def manager(port: int, listener: str, edge: DataPlaneSettings) -> manager_pb2.HttpConnectionManager:
    """Return the connection manager of a port, or of the hostnames of one listener on it."""
    proto = _Manager(
        codec_type=_Manager.AUTO if edge.http2 else _Manager.HTTP1,
        stat_prefix=f"http_{port}",
        scoped_routes=scopes(),
        http_filters=_filters(port, edge),
        server_header_transformation=_Manager.PASS_THROUGH,
        normalize_path=truth(True),
        merge_slashes=True,
        path_with_escaped_slashes_action=_Manager.UNESCAPE_AND_FORWARD,
        generate_request_id=truth(False),
        preserve_external_request_id=True,
        max_request_headers_kb=number(HEADERS_KB),
        upgrade_configs=[_Manager.UpgradeConfig(upgrade_type="websocket")],
        http_protocol_options=protocol_pb2.Http1ProtocolOptions(accept_http_10=True),
        common_http_protocol_options=protocol_pb2.HttpProtocolOptions(
            headers_with_underscores_action=protocol_pb2.HttpProtocolOptions.DROP_HEADER,
            max_headers_count=number(1000),
        ),
    )
    proto.local_reply_config.CopyFrom(challenges.replies())
    proto.request_headers_timeout.CopyFrom(quoting.seconds(60.0))
    client_ip.apply(proto, edge)
    proto.early_header_mutation_extensions.append(_scope_header(port, listener))
    return proto


def scopes(index: int = 0) -> manager_pb2.ScopedRoutes:
    """Return the scoped routes that select the virtual host by the scope header, without the port.

    ``index``: the number of colon-separated elements before the scope in the header.
    """
    builder = manager_pb2.ScopedRoutes.ScopeKeyBuilder()
    extractor = builder.fragments.add().header_value_extractor
    extractor.name, extractor.element_separator, extractor.index = names.SCOPE_HEADER, ":", index
    return manager_pb2.ScopedRoutes(
        name="scopes",
        scope_key_builder=builder,
        rds_config_source=ads(),
        scoped_rds=manager_pb2.ScopedRds(scoped_rds_config_source=ads()),
    )


def _scope_header(port: int, listener: str) -> extension_pb2.TypedExtensionConfig:
    """Set the scope header, and replace any that a client sent."""
    value = names.scope(port, listener, "%REQ(:AUTHORITY)%")
    mutations = [
        _remove_envoy_headers(),
        _Mutation(append=headers.option(names.SCOPE_HEADER, value)),
    ]
    return extension_pb2.TypedExtensionConfig(
        name="envoy.http.early_header_mutation.header_mutation",
        typed_config=packed(early_pb2.HeaderMutation(mutations=mutations)),
    )


def _remove_envoy_headers() -> mutation_rules_pb2.HeaderMutation:
    """Remove headers that control Envoy: it obeys those of clients in private networks."""
    prefix = string_pb2.StringMatcher(prefix="x-envoy-")
    return _Mutation(remove_on_match=_Mutation.RemoveOnMatch(key_matcher=prefix))


def _filters(port: int, edge: DataPlaneSettings) -> list[manager_pb2.HttpFilter]:
    lookup = lua_pb2.Lua(default_source_code=base_pb2.DataSource(inline_string=_LOOKUP_SCRIPT))
    filters = [_filter(names.SCOPES, lookup)]
    if edge.compression is not None:
        filters.append(_filter("envoy.filters.http.compressor", compression.filter_of(edge)))
    filters += [
        _filter(route_filters.FILTER, route_filters.idle()),
        _filter(claim_headers.FILTER, claim_headers.filter_of()),
        _filter(route_filters.BODY, route_filters.idle()),
        _filter(session_persistence.FILTER, stateful_session_pb2.StatefulSession()),
        _filter("gh.forwarded", _forwarded(port, edge)),
        _filter("envoy.filters.http.router", router_pb2.Router(suppress_envoy_headers=True)),
    ]
    return filters


def _filter(name: str, config: Message) -> manager_pb2.HttpFilter:
    return manager_pb2.HttpFilter(name=name, typed_config=packed(config))


def _forwarded(port: int, edge: DataPlaneSettings) -> header_mutation_pb2.HeaderMutation:
    """Set the default headers for backends; changes by routes come after it."""
    defaults = {
        "x-real-ip": "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%",
        "x-forwarded-host": "%REQ(:AUTHORITY)%",
        "x-forwarded-port": str(port),
    }
    removed = {*edge.removed_headers}
    mutations = [_Mutation(remove=names.SCOPE_HEADER), _remove_envoy_headers()]
    mutations += [
        _Mutation(append=headers.option(name, value))
        for name, value in defaults.items()
        if not removed & {name, "*"}
    ]
    return header_mutation_pb2.HeaderMutation(
        mutations=header_mutation_pb2.Mutations(request_mutations=mutations)
    )
