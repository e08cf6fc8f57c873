"""Retries: a chain of named locations, each of which is tried when the one before it failed.

NGINX's own ``proxy_next_upstream`` never asks one endpoint twice, knows few status codes and no
pause; the chain has none of these limits. Matching stays where it is: this is the answers' path.
NGINX follows ten redirections of a request: one leads to the route, one or two to each attempt.
"""

from __future__ import annotations

from collections.abc import Sequence

from gatehouse.compiler.backends.nginx import names
from gatehouse.compiler.backends.nginx.directives import Directive, Node, block, simple
from gatehouse.compiler.backends.nginx.quoting import InvalidValueError
from gatehouse.compiler.backends.nginx.route_context import Body, Context
from gatehouse.compiler.backends.nginx.traffic_settings import time
from gatehouse.compiler.ir import http as ir

MOST_PAUSED = 4
"""Attempts with a pause before each."""

FAILURES = (502, 504)
"""What NGINX answers when a connection failed or took too long."""


def attempts(
    context: Context,
    route: ir.Route,
    backend: ir.Backend,
    module: str,
    retry: ir.Retry | None,
    inner: Sequence[Node],
    sent: Directive,
) -> Body:
    """Give the inside of the location of the first attempt, and those of the others."""
    if retry is None:
        return Body((*inner, sent))
    _check(context, retry)
    codes = [str(code) for code in sorted({*retry.codes, *FAILURES})]
    destinations = [
        names.route(context.scope, f"{route.name}/{backend.cluster}/retry", number + 1)
        for number in range(retry.attempts)
    ]
    # NGINX's own retries would multiply ours.
    once = simple(f"{module}_next_upstream", "off")
    inner = [node for node in inner if not _is(node, once.name)]

    # A mirror in every attempt would copy the request again, so only the first one has it.
    repeated = [node for node in inner if not _is(node, "mirror")]
    locations: list[Directive] = []

    def attempt(nodes: Sequence[Node], onward: str | None) -> tuple[Node, ...]:
        if onward is None:
            return (*nodes, once, sent)
        if retry.backoff:
            pause = names.delayed_location(onward)
            locations.append(_paused(pause, retry.backoff, onward))
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
        raise InvalidValueError(
            "a pause between attempts (retry.backoff) needs an NGINX with http_auth_request_module"
        )
    if retry.backoff and retry.attempts > MOST_PAUSED:
        raise InvalidValueError(
            f"retry.attempts: NGINX makes at most {MOST_PAUSED} with a pause (retry.backoff)"
        )


_REFUSED = block("location", ("=", names.REFUSED), (simple("internal"), simple("return", "401")))


def _paused(name: str, seconds: float, onward: str) -> Directive:
    """Give a location that leads on after a while.

    NGINX waits before it says 401 (``auth_delay``); nothing else of it waits without a worker.
    """
    inner = (
        simple("auth_delay", time(seconds)),
        simple("auth_request", names.REFUSED),
        simple("error_page", "401", "=", onward),
    )
    return block("location", (name,), inner)


def _is(node: Node, name: str) -> bool:
    return isinstance(node, Directive) and node.name == name
