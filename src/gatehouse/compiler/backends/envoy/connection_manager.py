"""The HTTP connection manager, and the filters that are in every chain.

Nothing here depends on a route: a changed connection manager closes its connections. Filters are
never disabled by default, because Envoy decides that by the first virtual host that it finds, and
that of a wildcard is found later (:mod:`scoped_routes`). Each filter does nothing until its route
configures it.
"""

from __future__ import annotations

import math

from envoy.config.common.mutation_rules.v3 import mutation_rules_pb2
from envoy.config.core.v3 import base_pb2, extension_pb2, protocol_pb2
from envoy.extensions.filters.http.header_mutation.v3 import header_mutation_pb2
from envoy.extensions.filters.http.lua.v3 import lua_pb2
from envoy.extensions.filters.http.stateful_session.v3 import stateful_session_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import (
    http_connection_manager_pb2 as manager_pb2,
)

from gatehouse.compiler.backends.envoy import (
    api_keys,
    challenges,
    claim_headers,
    client_headers,
    client_ip,
    compression,
    endpoint_pickers,
    extensions,
    external_auth,
    filter_matchers,
    headers,
    listener_checks,
    names,
    quoting,
    request_counts,
    request_log,
    request_script,
    retries,
    route_filters,
    session_persistence,
    traces,
)
from gatehouse.compiler.backends.envoy.log_entries import ListenerLog
from gatehouse.compiler.backends.envoy.protobufs import ads, truth, wrap_number
from gatehouse.compiler.backends.upgrades import STREAM_IDLE_SECONDS, TUNNELS
from gatehouse.compiler.ir.settings import DataPlaneSettings

_Mutation = mutation_rules_pb2.HeaderMutation
_Manager = manager_pb2.HttpConnectionManager

HEADERS_KB = 256
"""Default maximum size in KiB of all headers of a request; the same as for NGINX."""

_CLAIMS_OF_CLIENTS = ("forwarded", "http2-settings")
"""Headers that only proxies may send to backends, and that Envoy would pass on."""

_INTERNAL = (
    names.SCOPE_HEADER,
    retries.RETRY_HEADER,
    traces.SAMPLE_HEADER,
    *client_headers.COPIES,
    *_CLAIMS_OF_CLIENTS,
)
"""Headers that backends do not get."""

_SCRIPT_PARTS = {
    claim_headers.CLAIMS_PART: claim_headers.SET_CLAIMS,
    api_keys.KEYS_PART: api_keys.REMOVE_KEYS,
}

_LOOKUP_SCRIPT = """
-- Remove the fields that Connection names. Envoy leaves them in requests with an upgrade.
local function remove_named_fields(headers)
  for name in string.gmatch(string.lower(headers:get("connection") or ""), "[^%s,]+") do
    if name == "host" or string.find(name, "^:") or string.find(name, "^x%-forwarded%-")
      or string.find(name, "^x%-gh%-") then
      return false
    end
    if name ~= "upgrade" then headers:remove(name) end
  end
  headers:replace("connection", "upgrade")
  return true
end

-- Return the status of the response to an upgrade that does not reach backends.
local function refusal(handle, headers, upgrade)
  if not TUNNELS[string.lower(upgrade)] or handle:streamInfo():protocol() == "HTTP/1.0" then
    -- Envoy accepts a list with a protocol in it, of which the backend may choose another one.
    return "403"
  end
  -- Envoy's own response to other requests that name these.
  if not remove_named_fields(headers) then return "400" end
end

local function select_scope(handle, headers)
  local asked = headers:get("x-gh-scope") or ""
  local lower = string.lower(asked)
  -- Of a request with Upgrade, the scope is the second value, after one of a single byte.
  if string.sub(lower, 2, 2) == "," then lower = string.sub(lower, 3) end
  if lower ~= asked then
    headers:replace("x-gh-scope", lower)
    handle:clearRouteCache()
    handle:metadata()
    if handle:virtualHost():metadata():get("own") then return end
  end
  headers:replace("x-gh-scope", (string.match(lower, "^[^/]*/[^/]*/") or "") .. "*")
  handle:clearRouteCache()
end

function envoy_on_request(handle)
  local headers = handle:headers()
  if string.find(headers:get(":authority") or "", ",", 1, true) then
    -- Envoy joins several Host headers, which are an error (RFC 9112, 3.2).
    handle:respond({[":status"] = "400"}, "")
    return
  end
  -- Routes do not match the fields that Connection names.
  local upgrade = headers:get("upgrade")
  local status = upgrade and refusal(handle, headers, upgrade)
  select_scope(handle, headers)
  if status then
    -- Finds the route, for the access log.
    handle:metadata()
    handle:respond({[":status"] = status}, "")
  end
end
"""
"""Selection of the scope. The table ``TUNNELS`` has the protocols of upgrades in lower case."""


def manager(
    port: int,
    edge: DataPlaneSettings,
    log: ListenerLog | None,
    *,
    owner: str,
    counts: bool = False,
    shares_limits: bool = False,
) -> manager_pb2.HttpConnectionManager:
    """Return what the connection managers of a port have in common.

    ``log``: how the access log names the listener; None: nothing is logged. ``owner``: Gateway and
    port, for traces. ``counts``, ``shares_limits``: as those of its ``ListenerPort``.
    """
    slashes = _Manager.UNESCAPE_AND_FORWARD if edge.merge_slashes else _Manager.KEEP_UNCHANGED
    proto = _Manager(
        codec_type=_Manager.AUTO if edge.http2 else _Manager.HTTP1,
        stat_prefix=f"http_{port}",
        scoped_routes=scopes(),
        http_filters=_filters(port, edge, shares_limits=shares_limits),
        server_header_transformation=_Manager.PASS_THROUGH,
        normalize_path=truth(True),
        merge_slashes=edge.merge_slashes,
        strip_trailing_host_dot=True,
        path_with_escaped_slashes_action=slashes,
        generate_request_id=truth(False),
        preserve_external_request_id=True,
        max_request_headers_kb=wrap_number(_headers_kb(edge)),
        upgrade_configs=[_Manager.UpgradeConfig(upgrade_type=protocol) for protocol in TUNNELS],
        http_protocol_options=protocol_pb2.Http1ProtocolOptions(accept_http_10=True),
        common_http_protocol_options=_requests(),
    )
    proto.local_reply_config.mappers.extend([*external_auth.denials(), challenges.reply()])
    proto.request_headers_timeout.CopyFrom(quoting.duration_of(60.0))
    proto.stream_idle_timeout.CopyFrom(quoting.duration_of(STREAM_IDLE_SECONDS))
    client_ip.apply_client_ip(proto, edge)
    if counts:
        proto.access_log.append(request_counts.logger())
    _record(proto, edge, log, owner)
    return proto


def for_listener(
    common: manager_pb2.HttpConnectionManager, port: int, listener: str, edge: DataPlaneSettings
) -> manager_pb2.HttpConnectionManager:
    """Return the connection manager of a port for the hostnames of one listener.

    ``listener``: its hostname; empty: for all hostnames of the port.
    """
    proto = manager_pb2.HttpConnectionManager()
    proto.CopyFrom(common)
    proto.early_header_mutation_extensions.append(_early_headers(port, listener, edge))
    return proto


def _record(
    proto: manager_pb2.HttpConnectionManager,
    edge: DataPlaneSettings,
    log: ListenerLog | None,
    owner: str,
) -> None:
    """Write log entries and spans of requests."""
    if log and edge.access_log is not None:
        traced = edge.traces is not None
        proto.access_log.append(request_log.request_log(log, edge.access_log, traced=traced))
        proto.http_filters.insert(
            0, extensions.http_filter(request_log.FILTER, request_log.recording(log.style))
        )
    if edge.traces is not None:
        traces.apply_tracing(proto, owner, edge.traces)
        proto.http_filters.insert(
            0, extensions.http_filter(traces.RECORDING, traces.context_recording())
        )


def _requests() -> protocol_pb2.HttpProtocolOptions:
    return protocol_pb2.HttpProtocolOptions(
        headers_with_underscores_action=protocol_pb2.HttpProtocolOptions.DROP_HEADER,
        max_headers_count=wrap_number(1000),
    )


def _headers_kb(edge: DataPlaneSettings) -> int:
    return HEADERS_KB if edge.header_bytes is None else math.ceil(edge.header_bytes / 1024)


def scopes(index: int = 0, separator: str = ":") -> manager_pb2.ScopedRoutes:
    """Return the scoped routes that select the virtual host by the scope header, without the port.

    ``index``: the number of elements before the scope in the header. ``separator``: the character
    between elements; empty: the header has only one.
    """
    builder = manager_pb2.ScopedRoutes.ScopeKeyBuilder()
    extractor = builder.fragments.add().header_value_extractor
    extractor.name, extractor.index = names.SCOPE_HEADER, index
    extractor.element_separator = separator
    return manager_pb2.ScopedRoutes(
        name="scopes",
        scope_key_builder=builder,
        rds_config_source=ads(),
        scoped_rds=manager_pb2.ScopedRds(scoped_rds_config_source=ads()),
    )


def _early_headers(
    port: int, listener: str, edge: DataPlaneSettings
) -> extension_pb2.TypedExtensionConfig:
    """Set the headers that control Envoy, and remove any that a client sent.

    Envoy looks up the first value of the scope header. For a request with ``Upgrade`` that is a
    byte of its value, which is no scope: so the filter that checks upgrades runs for exact
    hostnames, too, and nothing is added to other requests.
    """
    value = names.scope(port, listener, "%REQ(:AUTHORITY)%")
    mutations = [
        headers.without_prefix(headers.ENVOY_PREFIX),
        headers.without_prefix(names.HEADER_PREFIX),
        *client_headers.copy_mutations(),
        # Envoy believes it if client addresses come from X-Forwarded-For, also of untrusted peers.
        _Mutation(remove="x-forwarded-proto"),
        _Mutation(append=headers.option(names.SCOPE_HEADER, "%REQ(UPGRADE):1%")),
        _Mutation(append=headers.option(names.SCOPE_HEADER, value, append=True)),
    ]
    if edge.traces is not None:
        mutations.append(traces.sample_header())
    return extensions.arrival_mutations(mutations)


def _filters(
    port: int, edge: DataPlaneSettings, *, shares_limits: bool
) -> list[manager_pb2.HttpFilter]:
    tunnels = ", ".join(f'["{protocol.lower()}"] = true' for protocol in TUNNELS)
    script = f"local TUNNELS = {{ {tunnels} }}\n{_LOOKUP_SCRIPT}"
    lookup = lua_pb2.Lua(default_source_code=base_pb2.DataSource(inline_string=script))
    filters = [
        extensions.http_filter("gh.retry", retries.repeat_safe_requests()),
        extensions.http_filter(names.SCOPES, lookup),
    ]
    if edge.compression is not None:
        filters.append(
            extensions.http_filter(
                compression.COMPRESSOR, compression.compression_filter(edge.compression)
            )
        )
    filters += [
        extensions.http_filter(listener_checks.CHECK_FILTER, filter_matchers.idle()),
        extensions.http_filter(listener_checks.ROUTE_FILTER, filter_matchers.idle()),
        *(
            [extensions.http_filter(route_filters.LIMITS_FILTER, filter_matchers.idle())]
            if shares_limits
            else []
        ),
        extensions.http_filter(route_filters.AUTHORIZATION_FILTER, filter_matchers.idle()),
        extensions.http_filter(route_filters.GUARD_FILTER, filter_matchers.idle()),
        extensions.http_filter(
            request_script.REQUEST_SCRIPT, request_script.request_script(_SCRIPT_PARTS)
        ),
        extensions.http_filter(endpoint_pickers.BODY, filter_matchers.idle()),
        extensions.http_filter(
            session_persistence.STATEFUL_SESSION_FILTER, stateful_session_pb2.StatefulSession()
        ),
        extensions.http_filter(endpoint_pickers.FORWARDED, _forwarded(port, edge)),
        extensions.router_filter(traces.router(edge)),
    ]
    return filters


def _forwarded(port: int, edge: DataPlaneSettings) -> header_mutation_pb2.HeaderMutation:
    """Set the default headers for backends; changes by routes come after it."""
    defaults = {
        "x-real-ip": "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%",
        "x-forwarded-host": "%REQ(:AUTHORITY)%",
        "x-forwarded-port": str(port),
    }
    removed = {*edge.removed_headers}
    mutations = [
        headers.without_prefix(headers.ENVOY_PREFIX),
        # The router removes it.
        _Mutation(append=headers.option("x-envoy-retry-on", f"%REQ({retries.RETRY_HEADER})%")),
        *(_Mutation(remove=name) for name in _INTERNAL),
    ]
    mutations += [
        _Mutation(append=headers.option(name, value))
        for name, value in defaults.items()
        if not removed & {name, "*"}
    ]
    return extensions.request_mutations(mutations)
