"""Filters of a backendRef: which a backend may have, and which then hold for its whole rule."""

from __future__ import annotations

from gatehouse.apis import routes
from gatehouse.compiler.frontends.gateway_api.compiled_filters import Filters
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.inputs import GatewayObject
from gatehouse.compiler.frontends.gateway_api.routes.filters import compile_filters
from gatehouse.compiler.ir import http as ir
from gatehouse.incremental.query import Ask

_AMONG_OTHERS = frozenset({"request_headers", "response_headers"})
"""Fields of a route that filters of any backend may set."""

_ALONE = _AMONG_OTHERS | {"action", "cors"}
"""Fields that filters of the only backend of a rule may set."""

_UNCHANGED = ir.Route()


def with_only_backend(
    ask: Ask,
    at: GatewayObject,
    rule: routes.RouteRule,
    where: str,
    listener: tuple[int, str],
    of_rule: Filters,
) -> tuple[ir.Action | None, Filters, tuple[Finding, ...]]:
    """Add the filters of the only backend of a rule, if it has some, to those of the rule.

    They "should be executed if and only if the request is being forwarded to the backend"
    (HTTPBackendRef.filters), which here is every request. Return also the response in place of the
    backend's, if there is one, and findings.
    """
    if len(rule.backend_refs) != 1 or not rule.backend_refs[0].filters:
        return None, of_rule, ()
    place = f"{where}.backendRefs[0]"
    own = compile_filters(ask, at, rule.backend_refs[0].filters, place, listener)
    action = ir.Forward() if own.answer is not None else own.route.action
    part = ir.Route(action=action, cors=own.route.cors)
    merged = of_rule.merge(Filters(part, clusters=own.clusters, notes=own.notes))
    if merged is None:
        message = f"{place}.filters: the rule has a filter of the same type"
        return None, of_rule, (Finding(Reason.UNSUPPORTED_VALUE, message),)
    return own.answer, merged, ()


def unsupported_on_backend(compiled_filters: Filters, backends: int) -> str:
    """Return why the filters of one of ``backends`` backends are not supported; empty if they
    are."""
    route = compiled_filters.route
    fields = {
        name
        for name in route.__struct_fields__
        if getattr(route, name) != getattr(_UNCHANGED, name)
    }
    if fields <= _AMONG_OTHERS and not compiled_filters.notes:
        return ""
    if not fields <= _ALONE:
        return "ExternalAuth and ExtensionRef are not supported for backends"
    if backends > 1:
        return "only header modifiers are supported for one of several backends"
    return ""
