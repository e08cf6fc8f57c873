"""Headers with claims of signed tokens for backends, in the same format as NGINX.

The filter that checks tokens could set them, but it writes lists in base64 and treats dots in a
claim's name as path separators. One script serves all routes and does nothing for routes that do
not configure it.
"""

from __future__ import annotations

from envoy.config.core.v3 import base_pb2
from envoy.config.route.v3 import route_components_pb2 as components
from envoy.extensions.filters.http.lua.v3 import lua_pb2

from gatehouse.compiler.backends.envoy import quoting
from gatehouse.compiler.backends.envoy.protobufs import packed, truth
from gatehouse.compiler.backends.envoy.route_context import EnvoyPiece, EnvoyRouteContext
from gatehouse.compiler.ir import http
from gatehouse.compiler.ir.authentication import Jwt

CLAIMS_FILTER = "gh.claims"

JWT_METADATA = "envoy.filters.http.jwt_authn"
PAYLOAD = "payload"
"""Metadata key of the claims of a verified token."""

_NAME = "claims"

_SCRIPT = """
local function json(v)
  if type(v) == "number" then
    return v == math.floor(v) and math.abs(v) < 1e15 and string.format("%d", v) or tostring(v)
  elseif type(v) == "string" then
    return '"' .. string.gsub(v, '[%c"\\\\]', function(c)
      return string.format("\\\\u%04x", string.byte(c))
    end) .. '"'
  elseif type(v) ~= "table" then
    return tostring(v)
  end
  local parts = {}
  if #v > 0 or next(v) == nil then
    for _, each in ipairs(v) do table.insert(parts, json(each)) end
    return "[" .. table.concat(parts, ",") .. "]"
  end
  for key, each in pairs(v) do table.insert(parts, json(key) .. ":" .. json(each)) end
  table.sort(parts)
  return "{" .. table.concat(parts, ",") .. "}"
end

local function text_of(v)
  if v == nil then return "" end
  local parts = {}
  for _, each in ipairs(type(v) == "table" and (#v > 0 or next(v) == nil) and v or {v}) do
    table.insert(parts, type(each) == "string" and each or json(each))
  end
  return (string.gsub(table.concat(parts, ","), "%c+", " "))
end

function envoy_on_request(handle)
  local headers, wanted = handle:headers(), handle:filterContext():get("headers")
  for header, _ in pairs(wanted) do headers:remove(header) end
  local found = handle:streamInfo():dynamicMetadata():get("METADATA")
  local payload = found and found["PAYLOAD"] or {}
  for header, claim in pairs(wanted) do
    local value = text_of(payload[claim])
    if value ~= "" then headers:replace(header, value) end
  end
end
""".replace("METADATA", JWT_METADATA).replace("PAYLOAD", PAYLOAD)


def claims_filter() -> lua_pb2.Lua:
    """Return the filter, which does nothing until a route configures it."""
    return lua_pb2.Lua(
        source_codes={_NAME: base_pb2.DataSource(inline_string=_SCRIPT)},
        # A route that matches the claim must not follow: its own checks would be skipped.
        clear_route_cache=truth(False),
    )


def route_claims(_context: EnvoyRouteContext, route: http.Route) -> EnvoyPiece | None:
    """Return the filter's configuration for a route: names of claims by header.

    Raises InvalidValueError.
    """
    if not isinstance(route.authentication, Jwt):
        return None
    claims = {
        quoting.changed_header(claim.header): quoting.check_text(claim.name)
        for rule in route.authentication.authorization.requirements
        for claim in rule.claims
        if claim.header
    }
    if not claims:
        return None
    config, fields = lua_pb2.LuaPerRoute(name=_NAME), components.Route()
    config.filter_context.update({"headers": claims})
    fields.typed_per_filter_config[CLAIMS_FILTER].CopyFrom(packed(config))
    return EnvoyPiece(fields=fields)
