"""Headers with claims of signed tokens for backends, in the same format as NGINX.

The filter that checks tokens could set them, but it writes lists in base64 and treats dots in a
claim's name as path separators.
"""

from __future__ import annotations

from gatehouse.compiler.backends.envoy import quoting, request_script
from gatehouse.compiler.backends.envoy.route_context import EnvoyPiece, EnvoyRouteContext
from gatehouse.compiler.ir import http
from gatehouse.compiler.ir.authentication import Jwt

JWT_METADATA = "envoy.filters.http.jwt_authn"
PAYLOAD = "payload"
"""Metadata key of the claims of a verified token."""

CLAIMS_PART = "claims"

SET_CLAIMS = """
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

return function(handle, wanted)
  local headers = handle:headers()
  for header, _ in pairs(wanted) do headers:remove(header) end
  local found = handle:streamInfo():dynamicMetadata():get("METADATA")
  local payload = found and found["PAYLOAD"] or {}
  for header, claim in pairs(wanted) do
    local value = text_of(payload[claim])
    if value ~= "" then headers:replace(header, value) end
  end
end
""".replace("METADATA", JWT_METADATA).replace("PAYLOAD", PAYLOAD)
"""Part of the script of :mod:`request_script`: it sets the headers of a route."""


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
    return request_script.script_piece(CLAIMS_PART, claims)
