"""GRPCRoute rules as HTTPRoute rules: a call is a POST to ``/service/method``. No I/O."""

from __future__ import annotations

import re

from gatehouse.apis import routes

_NAME = r"[A-Za-z0-9_.]+"


def as_http(rule: routes.GrpcRule) -> routes.RouteRule:
    """Return the HTTPRoute rule that matches the same calls in the same order."""
    return routes.RouteRule(
        matches=tuple(_match(match) for match in rule.matches),
        filters=rule.filters,
        backend_refs=rule.backend_refs,
        session_persistence=rule.session_persistence,
    )


def _match(match: routes.GrpcMatch) -> routes.RouteMatch:
    return routes.RouteMatch(path=_path(match.method), headers=match.headers)


def _path(method: routes.GrpcMethodMatch) -> routes.PathMatchSpec:
    """Return the path match of a method match.

    The order of such paths is also that of gRPC matches: exact, then longer service, then longer
    method.
    """
    if method.type == "RegularExpression":
        service, name = method.service or _NAME, method.method or _NAME
        return routes.PathMatchSpec("RegularExpression", f"/(?:{service})/(?:{name})")
    if method.service and method.method:
        return routes.PathMatchSpec("Exact", f"/{method.service}/{method.method}")
    if method.service:
        return routes.PathMatchSpec("PathPrefix", f"/{method.service}")
    if method.method:
        return routes.PathMatchSpec("RegularExpression", f"/{_NAME}/{re.escape(method.method)}")
    return routes.PathMatchSpec()
