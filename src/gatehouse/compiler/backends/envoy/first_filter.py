"""The first filter of every chain: checks of upgrades, and repetition of safe requests.

It also runs for exact hostnames, which disable the filter that selects scopes. A request that it
does not concern costs one look at a header and one at the method.
"""

from __future__ import annotations

from envoy.config.core.v3 import base_pb2, extension_pb2
from envoy.extensions.common.matching.v3 import extension_matcher_pb2
from envoy.extensions.filters.http.lua.v3 import lua_pb2

from gatehouse.compiler.backends.envoy import filter_matchers, retries
from gatehouse.compiler.backends.envoy.protobufs import packed
from gatehouse.compiler.backends.upgrades import TUNNELS

FIRST_FILTER = "gh.first"

_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")

_SCRIPT = """
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

function envoy_on_request(handle)
  local headers = handle:headers()
  local upgrade = string.lower(headers:get("upgrade") or "")
  if not TUNNELS[upgrade] or handle:streamInfo():protocol() == "HTTP/1.0" then
    -- Envoy accepts a list with a protocol in it, of which the backend may choose another one.
    handle:respond({[":status"] = "403"}, "")
  elseif not remove_named_fields(headers) then
    -- Envoy's own response to other requests that name these.
    handle:respond({[":status"] = "400"}, "")
  end
end
"""
"""The table ``TUNNELS`` has the protocols in lower case."""


def first_filter() -> extension_matcher_pb2.ExtensionWithMatcher:
    """Return the filter.

    It rejects all protocols but those that reach backends. A backend that closes an idle connection
    may do so while a request is on its way: a safe request is sent again (RFC 9110, 9.2.2).
    """
    tunnels = ", ".join(f'["{protocol.lower()}"] = true' for protocol in TUNNELS)
    script = f"local TUNNELS = {{ {tunnels} }}\n{_SCRIPT}"
    check = lua_pb2.Lua(default_source_code=base_pb2.DataSource(inline_string=script))
    named = extension_pb2.TypedExtensionConfig(name="upgrades", typed_config=packed(check))
    again = retries.repeating()
    return filter_matchers.run_for_requests("upgrade", (named, again), _SAFE_METHODS, (again,))
