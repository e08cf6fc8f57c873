"""Keys of clients: Envoy's ``api_key_auth`` checks them, and a script removes them.

The filter itself could remove them, but it would send the rest of the query decoded: line ends in
it would become part of the request.
"""

from __future__ import annotations

from envoy.config.core.v3 import extension_pb2
from envoy.extensions.filters.http.api_key_auth.v3 import api_key_auth_pb2

from gatehouse.compiler.backends.envoy import extensions, quoting, request_script
from gatehouse.compiler.backends.envoy.route_context import EnvoyPiece, EnvoyRouteContext
from gatehouse.compiler.backends.failures import InvalidValueError
from gatehouse.compiler.ir import http
from gatehouse.compiler.ir.authentication import ApiKeys
from gatehouse.compiler.ir.gateway import ApiKeyFile

KEYS_PART = "keys"

_PARTS = {"header": "headers", "query": "params", "cookie": "cookies"}
"""Names in the script, by kind of source."""

REMOVE_KEYS = """
local function decoded(text)
  return (string.gsub(text, "%%(%x%x)", function(code) return string.char(tonumber(code, 16)) end))
end

local function has(names, name)
  for _, each in ipairs(names) do if each == name then return true end end
  return false
end

local function without_params(path, names)
  local start, query = string.match(path, "^([^?]*)%?(.*)$")
  if not query then return path end
  local rest = {}
  for part in string.gmatch(query .. "&", "([^&]*)&") do
    if not has(names, decoded(string.match(part, "^[^=]*"))) then table.insert(rest, part) end
  end
  return #rest > 0 and start .. "?" .. table.concat(rest, "&") or start
end

local function remove_cookies(headers, names)
  local rest = {}
  for index = 0, headers:getNumValues("cookie") - 1 do
    for part in string.gmatch(headers:getAtIndex("cookie", index) .. ";", "([^;]*);") do
      local cookie = string.match(part, "^%s*(.-)%s*$")
      if cookie ~= "" and not has(names, string.match(cookie, "^([^=]-)%s*=") or cookie) then
        table.insert(rest, cookie)
      end
    end
  end
  headers:remove("cookie")
  if #rest > 0 then headers:add("cookie", table.concat(rest, "; ")) end
end

return function(handle, names)
  local headers, params, cookies = handle:headers(), names.params, names.cookies
  for _, name in ipairs(names.headers or {}) do headers:remove(name) end
  if params then headers:replace(":path", without_params(headers:get(":path"), params)) end
  if cookies then remove_cookies(headers, cookies) end
end
"""
"""Part of the script of :mod:`request_script`: it removes the keys of a route."""


def check_of_keys(context: EnvoyRouteContext, keys: ApiKeys) -> extension_pb2.TypedExtensionConfig:
    """Return the filter that serves only requests with a key. Raises InvalidValueError."""
    file = context.secrets.get(keys.keys)
    if not isinstance(file, ApiKeyFile):
        raise InvalidValueError("no client has a key", keys.origin)
    proto = api_key_auth_pb2.ApiKeyAuth()
    for client, key in file.clients:
        proto.credentials.add(key=quoting.check_text(key), client=quoting.check_text(client))
    for source in keys.sources:
        proto.key_sources.add(**{source.kind: quoting.check_text(source.name)})
    if keys.client_header:
        proto.forwarding.header = quoting.changed_header(keys.client_header)
    return extensions.extension("envoy.filters.http.api_key_auth", proto)


def route_keys(_context: EnvoyRouteContext, route: http.Route) -> EnvoyPiece | None:
    """Return the filter's configuration for a route: the names of what backends do not get."""
    keys = route.authentication
    if not isinstance(keys, ApiKeys) or not isinstance(route.action, http.Forward):
        return None
    removed = {part: [*keys.removed(kind)] for kind, part in _PARTS.items() if keys.removed(kind)}
    if not removed:
        return None
    return request_script.script_piece(KEYS_PART, removed)
