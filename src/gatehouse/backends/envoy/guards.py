"""What stands before a route's action: limits of bodies and rates, authentication, sessions."""

from __future__ import annotations

from typing import Any

from envoy.config.route.v3 import route_components_pb2 as components

from gatehouse.backends.envoy import sessions
from gatehouse.backends.envoy.quoting import UnwritableError
from gatehouse.backends.envoy.served import Context
from gatehouse.ir import http as ir

_LONGEST = 2**63 - 1


def refusals(route: ir.Route, match: Any) -> list[Any]:
    """Give the routes before a route that refuse what it must not get."""
    size = route.settings.client.body_size
    if not size:
        return []
    made = components.Route(name=route.name)
    made.match.CopyFrom(match)
    longer = made.match.headers.add(name="content-length")
    longer.range_match.start, longer.range_match.end = size + 1, _LONGEST
    made.direct_response.status = 413
    return [made]


def apply(made: Any, context: Context, route: ir.Route) -> None:
    """Write what stands before a route. Raises UnwritableError."""
    if route.authentication is not None:
        raise UnwritableError("authentication is not served by Envoy yet")
    action = route.action
    if isinstance(action, ir.Forward) and action.persistence is not None:
        config = sessions.guard(action.persistence)
        made.typed_per_filter_config[sessions.FILTER].CopyFrom(config)


def missing(route: ir.Route) -> list[str]:
    """Say what of a route's settings Envoy leaves out."""
    return []
