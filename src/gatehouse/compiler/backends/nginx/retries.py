"""Retries: named locations, of which NGINX chooses one after each attempt that failed.

NGINX's own ``proxy_next_upstream`` never tries one endpoint twice, supports few status codes and
has no back-off; these locations have none of these limits. Matching is not affected: only error
responses take this path. NGINX permits ten internal redirects of a request: one leads to the route,
one or two to each attempt.

With a timeout of the request, no attempt or pause begins after it, and each wait of an attempt is
no longer than what was left of it. NGINX has no variables in timeouts, so that there is a location
for each eighth of the timeout that may be left
(:mod:`gatehouse.compiler.backends.nginx.retry_selection`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from gatehouse.compiler.backends.failures import InvalidValueError
from gatehouse.compiler.backends.nginx import access_log, names, quoting, rate_limits
from gatehouse.compiler.backends.nginx.directives import (
    Directive,
    DirectiveNode,
    block,
    simple_directive,
)
from gatehouse.compiler.backends.nginx.retry_selection import FAILURES, RetrySelection
from gatehouse.compiler.backends.nginx.route_context import (
    NginxRouteContext,
    RoutePiece,
    definitions,
)
from gatehouse.compiler.backends.nginx.traffic_settings import format_time
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.access_log import LocalReason
from gatehouse.compiler.ir.settings import RateLimits
from gatehouse.compiler.ir.unsupported import UnsupportedSetting
from gatehouse.dataplane.origin import NO_ORIGIN

MAX_RETRIES_WITH_BACKOFF = 4
"""Maximum number of retries with back-off."""
MAX_RETRIES_WITHOUT_BACKOFF = 8
"""Maximum number of other retries."""

_NEEDS_AUTH_REQUEST = "requires an NGINX with http_auth_request_module"

_CLIENT_CLOSED = 499
"""Status code for which NGINX has no ``error_page``."""


def attempts(
    context: NginxRouteContext,
    route: ir.Route,
    backend: ir.Backend,
    module: str,
    action: ir.Forward,
    retry: ir.Retry,
    sent: Directive,
    inner: Sequence[DirectiveNode],
) -> RoutePiece:
    """Return the content of the location of the first attempt, and the locations of the others.

    Raises InvalidValueError.
    """
    if retry.backoff and not context.capabilities.auth_request:
        if retry.origin == NO_ORIGIN:
            raise InvalidValueError(f"retry.backoff: {_NEEDS_AUTH_REQUEST}")
        retry = _without_pause(retry)
    name = names.route(context.scope, f"{route.name}/{backend}/retry")
    count = _served_attempts(context, retry)
    selection = _selection(name, action, retry, count, route.settings.rates)
    attempt = _Attempt(module, selection, sent)
    # Only the first attempt copies the request and rewrites its path: both last.
    repeated = [node for node in inner if not (_is(node, "mirror") or _is(node, "rewrite"))]
    pauses = (_delayed(*pause, selection.onward) for pause in selection.pauses.items())
    fixed = (
        *((_REFUSED,) if retry.backoff else ()),
        *pauses,
        *attempt.locations(repeated),
        *attempt.failures(repeated),
    )
    return RoutePiece(
        content=attempt.content(inner, selection.after_failure),
        fixed=fixed,
        needs=definitions(selection.maps()),
    )


def _selection(
    prefix: str, action: ir.Forward, retry: ir.Retry, count: int, rates: RateLimits
) -> RetrySelection:
    codes = tuple(sorted({*retry.codes} - {_CLIENT_CLOSED}))
    limit_status = rate_limits.rejection_status(rates)
    return RetrySelection(
        prefix,
        action.request_timeout,
        action.backend_timeout if action.request_timeout else 0.0,
        count,
        retry.backoff,
        codes,
        limit_status if limit_status in (*codes, *FAILURES) else 0,
    )


class _Attempt(msgspec.Struct, frozen=True):
    """Common parts of all attempts of a route."""

    module: str
    selection: RetrySelection
    sent: Directive

    def content(self, nodes: Sequence[DirectiveNode], onward: str) -> tuple[DirectiveNode, ...]:
        """Return the content of a location. ``onward``: the next attempt; empty for the last."""
        codes = self.selection.codes
        # NGINX's own retries would multiply these.
        once = simple_directive(f"{self.module}_next_upstream", "off")
        caught = (
            *((simple_directive(f"{self.module}_intercept_errors", "on"),) if codes else ()),
            simple_directive("error_page", *map(str, sorted({*codes, *FAILURES})), "=", onward),
        )
        return (*nodes, once, *(caught if onward else ()), self.sent)

    def locations(self, nodes: Sequence[DirectiveNode]) -> Iterator[Directive]:
        """Yield the locations of the retries."""
        for phase in self.selection.phases:
            following = self.selection.after_failure if phase == "more" else ""
            for left in self.selection.steps:
                limited = self.selection.limited(nodes, self.module, left)
                ended = (*self._own(nodes), *_TIMED_OUT)
                content = self.content(limited, following) if left else ended
                yield block("location", (self.selection.location(phase, left),), content)

    def failures(self, nodes: Sequence[DirectiveNode]) -> Iterator[Directive]:
        """Yield the locations of requests that are not sent again."""
        for status in self.selection.failures:
            content = (*self._own(nodes), simple_directive("return", str(status)))
            yield block("location", (self.selection.failure(status),), content)

    def _own(self, nodes: Sequence[DirectiveNode]) -> Iterator[DirectiveNode]:
        """Yield the directives that have an effect on a response of NGINX itself."""
        for node in nodes:
            if not isinstance(node, Directive) or not node.name.startswith(f"{self.module}_"):
                yield node


def unsupported_retry(context: NginxRouteContext, route: ir.Route) -> list[UnsupportedSetting]:
    """Return the settings of a retry that NGINX does not serve.

    The author of a policy is not that of the route, which must not fail because of it.
    """
    retry = route.action.retry if isinstance(route.action, ir.Forward) else None
    if retry is None or not retry.attempts:
        return []
    findings = []
    if retry.backoff and not context.capabilities.auth_request and retry.origin != NO_ORIGIN:
        findings.append(_unserved(retry, "backoff", _NEEDS_AUTH_REQUEST))
        retry = _without_pause(retry)
    served = _served_attempts(context, retry)
    if served < retry.attempts:
        condition = " with retry.backoff" if retry.backoff else ""
        why = f"NGINX supports at most {served}{condition}"
        findings.append(_unserved(retry, "attempts", why))
    if _CLIENT_CLOSED in retry.codes:
        why = f"NGINX does not retry after status {_CLIENT_CLOSED}"
        findings.append(_unserved(retry, "codes", why))
    return findings


def _served_attempts(context: NginxRouteContext, retry: ir.Retry) -> int:
    limit = MAX_RETRIES_WITH_BACKOFF if retry.backoff else MAX_RETRIES_WITHOUT_BACKOFF
    if context.is_checked:
        # The check of the listener is a redirect, too, and those of the route may be two.
        limit -= 1 if retry.backoff else 2
    return min(retry.attempts, limit)


def _without_pause(retry: ir.Retry) -> ir.Retry:
    return msgspec.structs.replace(retry, backoff=0.0)


def _unserved(retry: ir.Retry, field: str, why: str) -> UnsupportedSetting:
    """Return a field of the rule, or of the policy that sets its retries."""
    if retry.origin == NO_ORIGIN:
        return UnsupportedSetting(NO_ORIGIN, f"retry.{field}: {why}")
    return UnsupportedSetting(retry.origin.field(field), why)


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
