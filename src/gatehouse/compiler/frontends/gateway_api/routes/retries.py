"""Translation of a rule's retries and session persistence to IR. No I/O."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Literal

from gatehouse.apis import routes
from gatehouse.compiler.frontends.gateway_api import header_names
from gatehouse.compiler.frontends.gateway_api.routes import durations
from gatehouse.compiler.ir import http as ir
from gatehouse.dataplane.origin import NO_ORIGIN, Origin

MAX_RETRIES = 100
"""Maximum number of retries of a request. Each is traffic that no client has sent."""


_COOKIE_PATH = re.compile(r"/[!-:<-~]*")


def retry_problems(rule: routes.RouteRule, where: str) -> list[str]:
    """Return the problems of a rule's retry and session persistence."""
    messages = []
    if rule.retry is not None:
        if (rule.retry.attempts or 0) > MAX_RETRIES:
            messages.append(f"{where}.retry.attempts: must not be more than {MAX_RETRIES}")
        if rule.retry.backoff and durations.parse_duration(rule.retry.backoff) is None:
            messages.append(f"{where}.retry.backoff: {rule.retry.backoff!r} must be a duration")
    if rule.session_persistence is not None:
        place = f"{where}.sessionPersistence"
        messages += [f"{place}.{problem}" for problem in session_problems(rule.session_persistence)]
    return messages


def session_problems(session: routes.SessionPersistence) -> Iterator[str]:
    """Yield each invalid field of a session, with the reason."""
    field = (
        "sessionName" if session.name == session.session_name else f"{session.type.lower()}.name"
    )
    if session.name and not header_names.is_token(session.name):
        yield f"{field}: must be a valid cookie or header name"
    elif session.type == "Header" and (why := _header_problem(session.name)):
        yield f"{field}: {why}"
    if session.type != "Header" and not _COOKIE_PATH.fullmatch(session.own_cookie.path):
        yield f"cookie.path: {session.own_cookie.path!r} must be a path without semicolon"
    if session.absolute_timeout and durations.parse_duration(session.absolute_timeout) is None:
        yield f"absoluteTimeout: {session.absolute_timeout!r} must be a duration"


def _header_problem(name: str) -> str:
    return header_names.request_problem("add", name) if name else ""


def retry(spec: routes.RetrySpec | None) -> ir.Retry | None:
    """Return a retry as IR; one attempt if no number is set. None: the rule sets none.

    "An explicit zero value MUST disable retries." (HTTPRouteRetry.attempts)
    """
    if spec is None:
        return None
    attempts = 1 if spec.attempts is None else max(spec.attempts, 0)
    backoff = durations.parse_duration(spec.backoff) if spec.backoff else None
    return ir.Retry(attempts, tuple(sorted(set(spec.codes))), backoff or 0.0)


def persistence(
    spec: routes.SessionPersistence, place: str, origin: Origin = NO_ORIGIN
) -> ir.Persistence:
    """Return the session persistence of the rule at ``place`` as IR.

    Without a name, the name is derived from ``place``. ``origin``: the policy that sets it for
    several rules, whose cookies differ, because rules must not share sessions (GEP-1619).
    """
    kind: Literal["cookie", "header"] = "header" if spec.type == "Header" else "cookie"
    digest = hashlib.sha256(place.encode()).hexdigest()[:12]
    name = spec.name or f"gh-{digest}"
    if spec.name and kind == "cookie" and origin != NO_ORIGIN:
        name = f"{spec.name}-{digest}"
    timeout = durations.parse_duration(spec.absolute_timeout) or 0.0
    if kind == "header":
        return ir.Persistence(kind, name, absolute_timeout=timeout, origin=origin)
    path = spec.own_cookie.path
    if spec.own_cookie.lifetime_type == "Permanent":
        # The client ends the session.
        return ir.Persistence(kind, name, int(timeout), path, origin=origin)
    return ir.Persistence(kind, name, 0, path, timeout, origin)
