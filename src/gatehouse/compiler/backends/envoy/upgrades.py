"""Filter in every chain that checks requests for another protocol. It does not run for others."""

from __future__ import annotations

from envoy.config.core.v3 import base_pb2, extension_pb2
from envoy.extensions.common.matching.v3 import extension_matcher_pb2
from envoy.extensions.filters.http.lua.v3 import lua_pb2

from gatehouse.compiler.backends.envoy import filter_matchers
from gatehouse.compiler.backends.envoy.protobufs import packed
from gatehouse.compiler.backends.upgrades import TUNNELS

UPGRADES = "gh.upgrades"

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


def upgrades_filter() -> extension_matcher_pb2.ExtensionWithMatcher:
    """Return the filter that rejects all protocols but those that reach backends."""
    tunnels = ", ".join(f'["{protocol.lower()}"] = true' for protocol in TUNNELS)
    script = f"local TUNNELS = {{ {tunnels} }}\n{_SCRIPT}"
    check = lua_pb2.Lua(default_source_code=base_pb2.DataSource(inline_string=script))
    named = extension_pb2.TypedExtensionConfig(name=UPGRADES, typed_config=packed(check))
    return filter_matchers.run_with_header("upgrade", named)
