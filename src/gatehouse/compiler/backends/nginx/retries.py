"""Retries: a chain of named locations, each tried after the one before it failed.

NGINX's own ``proxy_next_upstream`` never tries one endpoint twice, supports few status codes and
has no back-off; the chain has none of these limits. Matching is not affected: only error responses
take this path. NGINX permits ten internal redirects of a request: one leads to the route, one or
two to each attempt.

With a timeout of the request, an attempt or a pause lasts no longer than until then. NGINX has no
variables in timeouts, so that there is a location for each eighth of the timeout that may be left
(:mod:`gatehouse.compiler.backends.nginx.retry_deadlines`).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gatehouse.compiler.backends.failures import InvalidValueError
from gatehouse.compiler.backends.nginx import access_log, names, quoting
from gatehouse.compiler.backends.nginx.directives import (
    Directive,
    DirectiveNode,
    block,
    simple_directive,
)
from gatehouse.compiler.backends.nginx.retry_deadlines import RetryDeadline
from gatehouse.compiler.backends.nginx.route_context import Body, NginxRouteContext
from gatehouse.compiler.backends.nginx.traffic_settings import format_time
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.access_log import LocalReason
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
    action: ir.Forward,
    inner: Sequence[DirectiveNode],
    sent: Directive,
) -> Body:
    """Return the content of the location of the first attempt, and the locations of the others."""
    retry = action.retry
    if retry is None:
        return Body((*inner, sent))
    if retry.backoff and not context.capabilities.auth_request:
        raise InvalidValueError("retry.backoff: requires an NGINX with http_auth_request_module")
    attempt = _Attempt(module, retry, sent)
    name, served = f"{route.name}/{backend.cluster}/retry", _served_attempts(retry)
    # Only the first attempt copies the request and rewrites its path: both last.
    repeated = [node for node in inner if not (_is(node, "mirror") or _is(node, "rewrite"))]
    fixed: tuple[Directive, ...] = (_REFUSED,) if retry.backoff else ()
    if action.request_timeout:
        prefix = names.route(context.scope, name)
        times = action.request_timeout, action.backend_timeout
        deadline = RetryDeadline(context.scope, prefix, *times, served, retry.backoff)
        fixed += tuple(_until(deadline, attempt, repeated))
        content = attempt.content(inner, deadline.after_failure)
        return Body(content, deadline.maps(), fixed=fixed)
    destinations = [names.route(context.scope, name, number + 1) for number in range(served)]
    onward, locations = attempt.paused(destinations[0], destinations[0])
    for location, next_location in zip(destinations, [*destinations[1:], ""], strict=True):
        following, pause = attempt.paused(next_location, next_location)
        content = attempt.content(repeated, following)
        locations += [*pause, block("location", (location,), content)]
    return Body(attempt.content(inner, onward), locations=tuple(locations), fixed=fixed)


class _Attempt(msgspec.Struct, frozen=True):
    """Common parts of all attempts of a route."""

    module: str
    retry: ir.Retry
    sent: Directive

    def content(self, nodes: Sequence[DirectiveNode], onward: str) -> tuple[DirectiveNode, ...]:
        """Return the content of a location. ``onward``: the next attempt; empty for the last."""
        codes = sorted({*self.retry.codes, *FAILURES} - {_CLIENT_CLOSED})
        # NGINX's own retries would multiply these.
        once = simple_directive(f"{self.module}_next_upstream", "off")
        caught = (
            simple_directive(f"{self.module}_intercept_errors", "on"),
            simple_directive("error_page", *map(str, codes), "=", onward),
        )
        own = (node for node in nodes if not _is(node, once.name))
        return (*own, once, *(caught if onward else ()), self.sent)

    def paused(self, location: str, onward: str) -> tuple[str, list[Directive]]:
        """Return where a failure leads, and the location of the pause before ``onward``, if any."""
        if not self.retry.backoff or not onward:
            return onward, []
        pause = names.delayed_location(location)
        return pause, [_delayed(pause, self.retry.backoff, onward)]


def _until(
    deadline: RetryDeadline, attempt: _Attempt, nodes: Sequence[DirectiveNode]
) -> list[Directive]:
    """Return the locations of the pauses and retries until a timeout of the request."""
    pauses = deadline.pauses.items()
    locations = [_delayed(location, seconds, deadline.onward) for location, seconds in pauses]
    for phase in deadline.phases:
        following = deadline.after_failure if phase == "more" else ""
        for left in deadline.steps:
            limited = deadline.limited(nodes, attempt.module, left)
            content = attempt.content(limited, following) if left else (*nodes, *_TIMED_OUT)
            locations.append(block("location", (deadline.location(phase, left),), content))
    return locations


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


_TIMED_OUT = (
    access_log.reason_variable(LocalReason.TIMEOUT),
    simple_directive("return", "504"),
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
