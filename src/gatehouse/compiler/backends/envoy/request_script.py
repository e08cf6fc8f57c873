"""The script that changes requests after their authentication, in a few parts.

All are one filter, because Envoy keeps a Lua state for each such filter of each listener in each
worker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envoy.config.core.v3 import base_pb2
from envoy.config.route.v3 import route_components_pb2 as components
from envoy.extensions.filters.http.lua.v3 import lua_pb2

from gatehouse.compiler.backends.envoy.protobufs import packed, truth
from gatehouse.compiler.backends.envoy.route_context import EnvoyPiece

REQUEST_SCRIPT = "gh.script"
"""Name of the filter."""

_SOURCE = "parts"

_PART = """
changes["NAME"] = (function()
SCRIPT
end)()
"""

_RUN = """
function envoy_on_request(handle)
  local context = handle:filterContext()
  for name, change in pairs(changes) do
    local values = context:get(name)
    if values then change(handle, values) end
  end
end
"""


def request_script(parts: Mapping[str, str]) -> lua_pb2.Lua:
    """Return the filter, which does nothing until a route configures it.

    Each part returns a function of the request's handle and the values that a route gives it.
    """
    changes = (
        _PART.replace("NAME", name).replace("SCRIPT", part.strip()) for name, part in parts.items()
    )
    script = "".join(("local changes = {}\n", *changes, _RUN))
    return lua_pb2.Lua(
        source_codes={_SOURCE: base_pb2.DataSource(inline_string=script)},
        # A route that matches the changed request must not follow: its own checks would be skipped.
        clear_route_cache=truth(False),
    )


def script_piece(part: str, values: Mapping[str, Any]) -> EnvoyPiece:
    """Return the configuration of a part for a route."""
    config, fields = lua_pb2.LuaPerRoute(name=_SOURCE), components.Route()
    config.filter_context.update({part: values})
    fields.typed_per_filter_config[REQUEST_SCRIPT].CopyFrom(packed(config))
    return EnvoyPiece(fields=fields)
