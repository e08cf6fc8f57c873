"""Retries: a chain of named locations, each tried after the one before it failed.

NGINX's own ``proxy_next_upstream`` never tries one endpoint twice, supports few status codes and
has no back-off; the chain has none of these limits. Matching is not affected: only error responses
take this path. NGINX permits ten internal redirects of a request: one leads to the route, one or
two to each attempt.
"""

from __future__ import annotations

from collections.abc import Sequence

from gatehouse.compiler.backends.failures import InvalidValueError
from gatehouse.compiler.backends.nginx import names, quoting
from gatehouse.compiler.backends.nginx.directives import (
    Directive,
    DirectiveNode,
    block,
    simple_directive,
)
from gatehouse.compiler.backends.nginx.route_context import Body, NginxRouteContext
from gatehouse.compiler.backends.nginx.traffic_settings import format_time
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.unsupported import UnsupportedSetting
from gatehouse.dataplane.origin import NO_ORIGIN

MAX_RETRIES_WITH_BACKOFF = 4
"""Maximum number of retries with back-off."""
MAX_RETRIES_WITHOUT_BACKOFF = 8
"""Maximum number of other retries."""

_CLIENT_CLOSED = 499
"""Status code for which NGINX has no ``error_page``."""

FAILURES = (502, 504)
"""Status codes of NGINX for a failed connection and a timeout."""


def attempts(
    context: NginxRouteContext,
    route: ir.Route,
    backend: ir.Backend,
    module: str,
    retry: ir.Retry | None,
    inner: Sequence[DirectiveNode],
    sent: Directive,
) -> Body:
    """Return the content of the location of the first attempt, and the locations of the others."""
    if retry is None:
        return Body((*inner, sent))
    if retry.backoff and not context.capabilities.auth_request:
        raise InvalidValueError("retry.backoff: requires an NGINX with http_auth_request_module")
    codes = [str(code) for code in sorted({*retry.codes, *FAILURES} - {_CLIENT_CLOSED})]
    destinations = [
        names.route(context.scope, f"{route.name}/{backend.cluster}/retry", number + 1)
        for number in range(_served_attempts(retry))
    ]
    # NGINX's own retries would multiply these.
    once = simple_directive(f"{module}_next_upstream", "off")
    inner = [node for node in inner if not _is(node, once.name)]

    # Only the first attempt copies the request and rewrites its path: both last.
    repeated = [node for node in inner if not (_is(node, "mirror") or _is(node, "rewrite"))]
    locations: list[Directive] = []

    def attempt(nodes: Sequence[DirectiveNode], onward: str | None) -> tuple[DirectiveNode, ...]:
        if onward is None:
            return (*nodes, once, sent)
        if retry.backoff:
            pause = names.delayed_location(onward)
            locations.append(_delayed(pause, retry.backoff, onward))
            onward = pause
        caught = [
            simple_directive(f"{module}_intercept_errors", "on"),
            simple_directive("error_page", *codes, "=", onward),
        ]
        return (*nodes, once, *caught, sent)

    first = attempt(inner, destinations[0])
    for name, onward in zip(destinations, [*destinations[1:], None], strict=True):
        locations.append(block("location", (name,), attempt(repeated, onward)))
    return Body(first, locations=tuple(locations), fixed=(_REFUSED,) if retry.backoff else ())


def unsupported_retry(retry: ir.Retry) -> list[UnsupportedSetting]:
    """Return the settings of a retry that NGINX does not serve."""
    return [
        *([] if _served_attempts(retry) == retry.attempts else [_too_many(retry)]),
        *([_NOT_CAUGHT] if _CLIENT_CLOSED in retry.codes else []),
    ]


def _served_attempts(retry: ir.Retry) -> int:
    limit = MAX_RETRIES_WITH_BACKOFF if retry.backoff else MAX_RETRIES_WITHOUT_BACKOFF
    return min(retry.attempts, limit)


def _too_many(retry: ir.Retry) -> UnsupportedSetting:
    condition = " with retry.backoff" if retry.backoff else ""
    message = f"retry.attempts: NGINX supports at most {_served_attempts(retry)}{condition}"
    return UnsupportedSetting(NO_ORIGIN, message)


_NOT_CAUGHT = UnsupportedSetting(
    NO_ORIGIN, f"retry.codes: NGINX does not retry after status {_CLIENT_CLOSED}"
)


_REFUSED = block(
    "location",
    ("=", quoting.quote_literal(names.REFUSED)),
    (simple_directive("internal"), simple_directive("return", "401")),
)


def _delayed(name: str, seconds: float, onward: str) -> Directive:
    """Return a location that continues after a delay.

    NGINX waits before it answers 401 (``auth_delay``); nothing else in it waits without blocking a
    worker.
    """
    inner = (
        simple_directive("auth_delay", format_time(seconds)),
        simple_directive("auth_request", quoting.quote_literal(names.REFUSED)),
        simple_directive("error_page", "401", "=", onward),
    )
    return block("location", (name,), inner)


def _is(node: DirectiveNode, name: str) -> bool:
    return isinstance(node, Directive) and node.name == name
