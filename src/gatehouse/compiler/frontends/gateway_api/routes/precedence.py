"""Precedence of matches, as of HTTPRouteRule.matches in Gateway API. No I/O."""

from __future__ import annotations

from gatehouse.apis import routes
from gatehouse.apis.meta import Meta

Rank = tuple[int, int, bool, int, int, str, str, str, int, int]
"""Sort key; lower values match first."""

_KINDS = {"Exact": 0, "RegularExpression": 1, "PathPrefix": 2}
_CALL_KINDS = {"Exact": 0, "PathPrefix": 1, "RegularExpression": 2}
_EVERY_CALL = 4


def call_rank(match: routes.RouteMatch, meta: Meta, rule: int, number: int) -> Rank:
    """Return the precedence of a gRPC match: longer service, longer method, more headers.

    The path of a service is a prefix, and that of a method of any service a regular expression. A
    match without service and method comes after all others (GRPCRouteRule.matches).
    """
    every_call = (match.path.type, match.path.value) == ("PathPrefix", "/")
    kind = _EVERY_CALL if every_call else _CALL_KINDS.get(match.path.type, 3)
    return (kind, *rank(match, meta, rule, number)[1:])


def rank(match: routes.RouteMatch, meta: Meta, rule: int, number: int) -> Rank:
    """Return the precedence of a match within its virtual host.

    Exact path, then regular expressions, longest first (unspecified by Gateway API; as other
    implementations), then longest prefix; method; more headers; more query parameters; oldest
    route; first namespace and name; first rule; first match.
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
