"""Filters of a route, in places that every filter chain has (Envoy's ``composite``).

So listeners do not depend on routes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from envoy.config.core.v3 import extension_pb2
from envoy.config.route.v3 import route_components_pb2 as components
from xds.type.matcher.v3 import matcher_pb2

from gatehouse.compiler.backends.envoy import filter_matchers
from gatehouse.compiler.backends.envoy.route_context import EnvoyPiece
from gatehouse.compiler.backends.envoy.shared_limits import SHARED_LIMIT_FILTER
from gatehouse.compiler.backends.route_features import Phase
from gatehouse.compiler.ir import http as ir

LIMITS_FILTER = "gh.limits"
"""Place of limits that wait for the rate limit service; Gateways without it lack the place."""

AUTHORIZATION_FILTER = "gh.authorization"
GUARD_FILTER = "gh.guard"

_WAITING = frozenset(
    {"envoy.filters.http.ext_authz", "envoy.filters.http.ext_proc", SHARED_LIMIT_FILTER}
)
"""Filters that wait for a response. Envoy skips the others of their list."""


def place_filters(proto: components.Route, pieces: Iterable[tuple[Phase, EnvoyPiece]]) -> None:
    """Write the filters of the features of a route.

    Responses pass filters in the opposite direction. So the filters that change responses are the
    first ones, and change those of the checks, too.
    """
    of_responses: list[extension_pb2.TypedExtensionConfig] = []
    limits: list[extension_pb2.TypedExtensionConfig] = []
    first: list[extension_pb2.TypedExtensionConfig] = []
    second: list[extension_pb2.TypedExtensionConfig] = []
    idempotent: list[extension_pb2.TypedExtensionConfig] = []
    asks_server = False
    for phase, piece in pieces:
        asks_server |= phase is Phase.AUTHORIZATION
        if piece.filters:
            place = first if phase is Phase.AUTHORIZATION else second
            place = limits if phase < Phase.AUTHORIZATION else place
            place = of_responses if phase is Phase.RESPONSE else place
            place += piece.filters
        idempotent += piece.idempotent
    if limits and limits[-1].name in _WAITING:
        _run(proto, LIMITS_FILTER, [*of_responses, *limits])
    else:
        first = [*of_responses, *limits, *first]
    if asks_server:
        _run(proto, AUTHORIZATION_FILTER, first)
        _run(proto, GUARD_FILTER, second, idempotent)
    else:
        # Filters that count requests are in the other place.
        _run(proto, AUTHORIZATION_FILTER, (), idempotent)
        _run(proto, GUARD_FILTER, [*first, *second])


def _run(
    proto: components.Route,
    place: str,
    filters: Sequence[extension_pb2.TypedExtensionConfig],
    idempotent: Sequence[extension_pb2.TypedExtensionConfig] = (),
) -> None:
    """Run filters of a route in the place of a filter of every chain."""
    if not filters and not idempotent:
        return
    if any(config.name in _WAITING for config in filters[:-1]):
        raise ValueError(f"Envoy would skip filters of {place} after one that waits")
    if idempotent:
        own = filter_matchers.for_methods(ir.IDEMPOTENT_METHODS, idempotent, filters)
    else:
        own = matcher_pb2.Matcher(on_no_match=filter_matchers.run_filters(filters))
    proto.typed_per_filter_config[place].CopyFrom(filter_matchers.per_route(own))
