"""Retries and session persistence of a rule, from their object's form to the IR's. Pure."""

from __future__ import annotations

import hashlib
import re
from typing import Literal

from gatehouse.apis import routes
from gatehouse.compiler.frontends.gateway_api import header_names
from gatehouse.compiler.frontends.gateway_api.routes import durations
from gatehouse.compiler.ir import http as ir

MOST_ATTEMPTS = 8
"""After the first; back ends chain attempts, and none takes any number of them."""

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


def troubles(rule: routes.RouteRule, where: str) -> list[str]:
    """Say what cannot be served."""
    messages = []
    if rule.retry is not None:
        if (rule.retry.attempts or 0) > MOST_ATTEMPTS:
            messages.append(f"{where}.retry.attempts: at most {MOST_ATTEMPTS} are made")
        if rule.retry.backoff and durations.seconds(rule.retry.backoff) is None:
            messages.append(f"{where}.retry.backoff: {rule.retry.backoff!r} is no duration")
    if rule.session_persistence is not None:
        why = _name_problem(rule.session_persistence)
        messages += [f"{where}.sessionPersistence.sessionName: {why}"] if why else []
    return messages


def _name_problem(session: routes.SessionPersistence) -> str:
    """Return why a session's name cannot be used, or an empty text."""
    if session.session_name and not _TOKEN.fullmatch(session.session_name):
        return "is no name of a cookie"
    return header_names.problem(session.session_name) if session.type == "Header" else ""


def retry(asked: routes.Retry | None) -> ir.Retry | None:
    """Give the IR's form; one attempt where no number is given."""
    if asked is None:
        return None
    attempts = 1 if asked.attempts is None else asked.attempts
    if attempts < 1:
        return None
    backoff = durations.seconds(asked.backoff) if asked.backoff else None
    return ir.Retry(attempts, tuple(sorted(set(asked.codes))), backoff or 0.0)


def persistence(asked: routes.SessionPersistence | None, place: str) -> ir.Persistence | None:
    """Give the IR's form; a session without a name gets one that follows from its place."""
    if asked is None:
        return None
    kind: Literal["cookie", "header"] = "header" if asked.type == "Header" else "cookie"
    name = asked.session_name or f"gh-{hashlib.sha256(place.encode()).hexdigest()[:12]}"
    lifetime = 0
    if kind == "cookie" and asked.cookie_config.lifetime_type == "Permanent":
        lifetime = int(durations.seconds(asked.absolute_timeout) or 0)
    return ir.Persistence(kind, name, lifetime)
