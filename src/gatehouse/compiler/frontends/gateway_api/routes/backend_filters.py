"""Filters of a backendRef: which a backend may have, and which then hold for its whole rule."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gatehouse.apis import routes
from gatehouse.compiler.frontends.gateway_api.compiled_filters import Filters
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.inputs import GatewayObject
from gatehouse.compiler.frontends.gateway_api.routes.filters import compile_filters
from gatehouse.compiler.ir import http as ir
from gatehouse.incremental.query import Ask

_ALONE = ("answer", "rewrite", "mirrors", "cors", "clusters", "notes")
"""Filters that a backend may have if it is the only one of its rule."""

_AMONG_OTHERS = ("request_headers", "response_headers", "findings")
"""Filters that any backend may have."""


def with_only_backend(
    ask: Ask,
    at: GatewayObject,
    rule: routes.RouteRule,
    where: str,
    listener: tuple[int, str],
    of_rule: Filters,
) -> tuple[ir.Action | None, Filters, tuple[Finding, ...]]:
    """Add the filters of the only backend of a rule, which has some, to those of the rule.

    They "should be executed if and only if the request is being forwarded to the backend"
    (HTTPBackendRef.filters), which here is every request. Return also the response in place of the
    backend's, if there is one, and findings.
    """
    place = f"{where}.backendRefs[0]"
    own = compile_filters(ask, at, rule.backend_refs[0].filters, place, listener)
    merged = of_rule.merge(msgspec.structs.replace(_part(own, _ALONE), answer=None))
    if merged is None:
        message = f"{place}.filters: the rule has a filter of the same type"
        return None, of_rule, (Finding(Reason.UNSUPPORTED_VALUE, message),)
    return own.answer, merged, ()


def unsupported_on_backend(compiled_filters: Filters, backends: int) -> str:
    """Return why the filters of one of ``backends`` backends are not supported; empty if they
    are."""
    if compiled_filters == _part(compiled_filters, _AMONG_OTHERS):
        return ""
    if compiled_filters != _part(compiled_filters, (*_AMONG_OTHERS, *_ALONE)):
        return "ExternalAuth and ExtensionRef are not supported for backends"
    if backends > 1:
        return "only header modifiers are supported for one of several backends"
    return ""


def _part(compiled_filters: Filters, fields: Iterable[str]) -> Filters:
    return Filters(**{field: getattr(compiled_filters, field) for field in fields})
