"""Translation of a rule's retries and session persistence to IR. No I/O."""

from __future__ import annotations

import hashlib
import re
from typing import Literal

from gatehouse.apis import routes
from gatehouse.compiler.frontends.gateway_api import header_names
from gatehouse.compiler.frontends.gateway_api.routes import durations
from gatehouse.compiler.ir import http as ir

MAX_RETRIES = 8
"""Maximum number of retries: back ends chain attempts, so the number must be bounded."""

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


def problems(rule: routes.RouteRule, where: str) -> list[str]:
    """Return the problems of a rule's retry and session persistence."""
    messages = []
    if rule.retry is not None:
        if (rule.retry.attempts or 0) > MAX_RETRIES:
            messages.append(f"{where}.retry.attempts: must not be more than {MAX_RETRIES}")
        if rule.retry.backoff and durations.seconds(rule.retry.backoff) is None:
            messages.append(f"{where}.retry.backoff: {rule.retry.backoff!r} must be a duration")
    if rule.session_persistence is not None:
        why = _name_problem(rule.session_persistence)
        messages += [f"{where}.sessionPersistence.sessionName: {why}"] if why else []
    return messages


def _name_problem(session: routes.SessionPersistence) -> str:
    """Return why the name of a session is invalid; empty if it is valid."""
    if session.session_name and not _TOKEN.fullmatch(session.session_name):
        return "must be a valid cookie or header name"
    return header_names.problem(session.session_name) if session.type == "Header" else ""


def retry(spec: routes.Retry | None) -> ir.Retry | None:
    """Return a retry as IR; one attempt if no number is set. None for zero attempts."""
    if spec is None:
        return None
    attempts = 1 if spec.attempts is None else spec.attempts
    if attempts < 1:
        return None
    backoff = durations.seconds(spec.backoff) if spec.backoff else None
    return ir.Retry(attempts, tuple(sorted(set(spec.codes))), backoff or 0.0)


def persistence(spec: routes.SessionPersistence | None, place: str) -> ir.Persistence | None:
    """Return a session persistence as IR. Without a name, the name is derived from ``place``."""
    if spec is None:
        return None
    kind: Literal["cookie", "header"] = "header" if spec.type == "Header" else "cookie"
    name = spec.session_name or f"gh-{hashlib.sha256(place.encode()).hexdigest()[:12]}"
    lifetime = 0
    if kind == "cookie" and spec.cookie_config.lifetime_type == "Permanent":
        lifetime = int(durations.seconds(spec.absolute_timeout) or 0)
    return ir.Persistence(kind, name, lifetime)
