"""Checks of all requests to the hostnames of a listener, before a route is chosen (GEP-5224).

Filters of every chain, which do nothing until a virtual host configures them: the first one asks
the server. The second one copies the headers of its response, and makes Envoy choose the route
again. The listener stays the same, because no filter changes the Host header.
"""

from __future__ import annotations

from envoy.config.core.v3 import base_pb2
from envoy.config.route.v3 import route_components_pb2 as components
from envoy.extensions.filters.http.lua.v3 import lua_pb2
from xds.type.matcher.v3 import matcher_pb2

from gatehouse.compiler.backends.envoy import extensions, external_auth, filter_matchers
from gatehouse.compiler.ir.authentication import ExternalAuth

CHECK_FILTER = "gh.listener.check"
ROUTE_FILTER = "gh.listener.route"

_CHOOSE_ROUTE = """
function envoy_on_request(handle)
  handle:clearRouteCache()
end
"""


def apply_check(host: components.VirtualHost, auth: ExternalAuth) -> None:
    """Check the requests to a virtual host. Raises InvalidValueError."""
    lua = lua_pb2.Lua(default_source_code=base_pb2.DataSource(inline_string=_CHOOSE_ROUTE))
    choose = extensions.extension("envoy.filters.http.lua", lua)
    copies = [external_auth.copying_filter(auth)] if auth.response_headers else []
    for place, filters in (
        (CHECK_FILTER, [external_auth.check_filter(auth)]),
        (ROUTE_FILTER, [*copies, choose]),
    ):
        own = matcher_pb2.Matcher(on_no_match=filter_matchers.run_filters(filters))
        host.typed_per_filter_config[place].CopyFrom(filter_matchers.per_route(own))
