"""Which match is tried first: the order of HTTPRouteRule.matches in the Gateway API. Pure."""

from __future__ import annotations

from gatehouse.apis import routes
from gatehouse.apis.meta import Meta

Rank = tuple[int, int, bool, int, int, str, str, str, int, int]
"""Sorts ascending; the first is tried first."""

_KINDS = {"Exact": 0, "PathPrefix": 1, "RegularExpression": 2}
_EVERY_CALL = 4


def call_rank(match: routes.RouteMatch, meta: Meta, rule: int, number: int) -> Rank:
    """Give the place of a gRPC match: more of the service, then of the method, then headers.

    What names neither goes behind everything that does, regular expressions as well
    (GRPCRouteRule.matches).
    """
    found = rank(match, meta, rule, number)
    if (match.path.type, match.path.value) == ("PathPrefix", "/"):
        return (_EVERY_CALL, *found[1:])
    return found


def rank(match: routes.RouteMatch, meta: Meta, rule: int, number: int) -> Rank:
    """Give the place of a match among all of its virtual host.

    Exact path, then longest prefix, then (our choice, the specification leaves it open) regular
    expressions, longest first; method; more headers; more query parameters; then the oldest route,
    the first by namespace and name, the first rule, the first match.
    """
    value = match.path.value
    length = len(value.rstrip("/")) if match.path.type == "PathPrefix" else len(value)
    return (
        _KINDS.get(match.path.type, 3),
        -length,
        not match.method,
        -len({item.name.lower() for item in match.headers}),
        -len({item.name for item in match.query_params}),
        meta.creation_timestamp,
        meta.namespace,
        meta.name,
        rule,
        number,
    )
