"""``WWW-Authenticate`` challenges with the realm of an AuthenticationFilter.

Envoy's filters use the URL as realm. Every connection manager edits Envoy's local replies alike,
with a value from the metadata of the route.
"""

from __future__ import annotations

import re

from envoy.config.accesslog.v3 import accesslog_pb2
from envoy.config.core.v3 import base_pb2
from envoy.config.route.v3 import route_components_pb2 as components
from envoy.extensions.filters.network.http_connection_manager.v3 import (
    http_connection_manager_pb2 as manager_pb2,
)

from gatehouse.compiler.backends.envoy import quoting
from gatehouse.compiler.ir import authentication as ir

_METADATA = "gh.challenge"
_UNAUTHORIZED = 401


def reply() -> manager_pb2.ResponseMapper:
    """Return the change of local replies that sets the challenge."""
    mapper = manager_pb2.ResponseMapper()
    comparison = mapper.filter.status_code_filter.comparison
    comparison.op = accesslog_pb2.ComparisonFilter.EQ
    comparison.value.default_value = _UNAUTHORIZED
    comparison.value.runtime_key = "gh.none"
    mapper.headers_to_add.append(
        base_pb2.HeaderValueOption(
            header=base_pb2.HeaderValue(
                key="www-authenticate", value=f"%METADATA(ROUTE:{_METADATA}:value)%"
            ),
            append_action=base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS,
        )
    )
    return mapper


def challenge(authentication: ir.Authentication) -> components.Route:
    """Return the challenge as metadata of a route. Raises InvalidValueError."""
    proto = components.Route()
    match authentication:
        case ir.Basic(realm):
            scheme = "Basic"
        case ir.Jwt(realm):
            scheme = "Bearer"
        case _:
            return proto
    quoted = re.sub(r'(["\\])', r"\\\1", quoting.check_text(realm, "realm"))
    value = f'{scheme} realm="{quoted}"'
    proto.metadata.filter_metadata[_METADATA].update({"value": value})
    return proto
