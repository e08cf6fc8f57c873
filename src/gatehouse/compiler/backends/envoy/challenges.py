"""``WWW-Authenticate`` challenges of routes, with the realm of their authentication.

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
_REPLACEMENT, _ADDITION = "value", "added"
"""Keys of challenges in place of the one of Envoy's filter, and of those without one."""

_UNAUTHORIZED = 401


def reply() -> manager_pb2.ResponseMapper:
    """Return the change of local replies that sets the challenge."""
    mapper = manager_pb2.ResponseMapper()
    comparison = mapper.filter.status_code_filter.comparison
    comparison.op = accesslog_pb2.ComparisonFilter.EQ
    comparison.value.default_value = _UNAUTHORIZED
    comparison.value.runtime_key = "gh.none"
    action = base_pb2.HeaderValueOption
    for key, append_action in (
        (_REPLACEMENT, action.OVERWRITE_IF_EXISTS),
        (_ADDITION, action.ADD_IF_ABSENT),
    ):
        value = f"%METADATA(ROUTE:{_METADATA}:{key})%"
        header = base_pb2.HeaderValue(key="www-authenticate", value=value)
        mapper.headers_to_add.add(header=header, append_action=append_action)
    return mapper


def challenge(authentication: ir.Authentication) -> components.Route:
    """Return the challenge as metadata of a route. Raises InvalidValueError."""
    match authentication:
        case ir.Basic(realm):
            return _with_realm("Basic", realm)
        case ir.Jwt(realm):
            return _with_realm("Bearer", realm)
        case ir.ApiKeys():
            return _with_metadata(_ADDITION, ir.API_KEY_CHALLENGE)
        case _:
            return components.Route()


def _with_realm(scheme: str, realm: str) -> components.Route:
    quoted = re.sub(r'(["\\])', r"\\\1", quoting.check_text(realm, "realm"))
    return _with_metadata(_REPLACEMENT, f'{scheme} realm="{quoted}"')


def _with_metadata(key: str, value: str) -> components.Route:
    proto = components.Route()
    proto.metadata.filter_metadata[_METADATA].update({key: value})
    return proto
