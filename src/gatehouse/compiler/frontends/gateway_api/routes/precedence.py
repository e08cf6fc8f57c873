"""Precedence of matches, as of HTTPRouteRule.matches in Gateway API. No I/O."""

from __future__ import annotations

from gatehouse.apis import routes
from gatehouse.apis.meta import Meta

Rank = tuple[int, int, bool, int, int, str, str, str, int, int]
"""Sort key; lower values match first."""

_KINDS = {"Exact": 0, "PathPrefix": 1, "RegularExpression": 2}
_EVERY_CALL = 4


def call_rank(match: routes.RouteMatch, meta: Meta, rule: int, number: int) -> Rank:
    """Return the precedence of a gRPC match: longer service, longer method, more headers.

    A match without service and method comes after all others, including regular expressions
    (GRPCRouteRule.matches).
    """
    http_rank = rank(match, meta, rule, number)
    if (match.path.type, match.path.value) == ("PathPrefix", "/"):
        return (_EVERY_CALL, *http_rank[1:])
    return http_rank


def rank(match: routes.RouteMatch, meta: Meta, rule: int, number: int) -> Rank:
    """Return the precedence of a match within its virtual host.

    Exact path, then longest prefix, then regular expressions, longest first (unspecified by Gateway
    API); method; more headers; more query parameters; oldest route; first namespace and name; first
    rule; first match.
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
