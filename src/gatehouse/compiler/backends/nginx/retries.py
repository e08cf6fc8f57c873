"""Retries: a chain of named locations, each tried after the one before it failed.

NGINX's own ``proxy_next_upstream`` never tries one endpoint twice, supports few status codes and
has no back-off; the chain has none of these limits. Matching is not affected: only error responses
take this path. NGINX permits ten internal redirects of a request: one leads to the route, one or
two to each attempt.
"""

from __future__ import annotations

from collections.abc import Sequence

from gatehouse.compiler.backends.failures import InvalidValueError
from gatehouse.compiler.backends.nginx import names
from gatehouse.compiler.backends.nginx.directives import Directive, Node, block, simple
from gatehouse.compiler.backends.nginx.route_context import Body, Context
from gatehouse.compiler.backends.nginx.traffic_settings import time
from gatehouse.compiler.ir import http as ir

MAX_RETRIES_WITH_BACKOFF = 4
"""Maximum number of retries with back-off."""

FAILURES = (502, 504)
"""Status codes of NGINX for a failed connection and a timeout."""


def attempts(
    context: Context,
    route: ir.Route,
    backend: ir.Backend,
    module: str,
    retry: ir.Retry | None,
    inner: Sequence[Node],
    sent: Directive,
) -> Body:
    """Return the content of the location of the first attempt, and the locations of the others."""
    if retry is None:
        return Body((*inner, sent))
    _check(context, retry)
    codes = [str(code) for code in sorted({*retry.codes, *FAILURES})]
    destinations = [
        names.route(context.scope, f"{route.name}/{backend.cluster}/retry", number + 1)
        for number in range(retry.attempts)
    ]
    # NGINX's own retries would multiply these.
    once = simple(f"{module}_next_upstream", "off")
    inner = [node for node in inner if not _is(node, once.name)]

    # A mirror in every attempt would copy the request again, so that only the first has it.
    repeated = [node for node in inner if not _is(node, "mirror")]
    locations: list[Directive] = []

    def attempt(nodes: Sequence[Node], onward: str | None) -> tuple[Node, ...]:
        if onward is None:
            return (*nodes, once, sent)
        if retry.backoff:
            pause = names.delayed_location(onward)
            locations.append(_delayed(pause, retry.backoff, onward))
            onward = pause
        caught = [
            simple(f"{module}_intercept_errors", "on"),
            simple("error_page", *codes, "=", onward),
        ]
        return (*nodes, once, *caught, sent)

    first = attempt(inner, destinations[0])
    for name, onward in zip(destinations, [*destinations[1:], None], strict=True):
        locations.append(block("location", (name,), attempt(repeated, onward)))
    return Body(first, locations=tuple(locations), fixed=(_REFUSED,) if retry.backoff else ())


def _check(context: Context, retry: ir.Retry) -> None:
    if retry.backoff and not context.capabilities.auth_request:
        raise InvalidValueError("retry.backoff: requires an NGINX with http_auth_request_module")
    if retry.backoff and retry.attempts > MAX_RETRIES_WITH_BACKOFF:
        raise InvalidValueError(
            f"retry.attempts: NGINX supports at most {MAX_RETRIES_WITH_BACKOFF} with retry.backoff"
        )


_REFUSED = block("location", ("=", names.REFUSED), (simple("internal"), simple("return", "401")))


def _delayed(name: str, seconds: float, onward: str) -> Directive:
    """Return a location that continues after a delay.

    NGINX waits before it answers 401 (``auth_delay``); nothing else in it waits without blocking a
    worker.
    """
    inner = (
        simple("auth_delay", time(seconds)),
        simple("auth_request", names.REFUSED),
        simple("error_page", "401", "=", onward),
    )
    return block("location", (name,), inner)


def _is(node: Node, name: str) -> bool:
    return isinstance(node, Directive) and node.name == name
