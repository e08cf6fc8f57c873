"""Translation of XBackendTrafficPolicy to IR. No I/O.

Its CRD has the same rules for most fields. They are checked again, because an invalid value must
not end the routes of other objects that lead to the Service.
"""

from __future__ import annotations

import re

import msgspec

from gatehouse.apis import backend_traffic as api
from gatehouse.apis import routes
from gatehouse.apis.resource_limits import ResourceLimits
from gatehouse.compiler.frontends.gateway_api.extensions.policy_fields import (
    FieldParser,
    ParsedPolicy,
    origin_of,
)
from gatehouse.compiler.frontends.gateway_api.routes import durations, retries
from gatehouse.compiler.ir.settings import RetryBudget
from gatehouse.dataplane.origin import Origin

TRAFFIC_KIND = "XBackendTrafficPolicy"

SESSION_FIELD, RETRY_FIELD = "sessionPersistence", "retryConstraint"

MAX_RETRY_INTERVAL_SECONDS = 3600.0
MAX_RETRY_COUNT = 1_000_000

MAX_SESSION_NAME_BYTES = 256
MAX_COOKIE_PATH_BYTES = 1024

_HEADER = re.compile(r"[A-Za-z0-9-]+")
"""Names of headers that every proxy reads."""


class BackendTraffic(msgspec.Struct, frozen=True):
    """Traffic to a Service."""

    origin: Origin
    session: routes.SessionPersistence | None = None
    """Session persistence of rules that have none of their own."""
    retry_budget: RetryBudget | None = None


class BackendTrafficSettings(msgspec.Struct, frozen=True):
    """Settings of an XBackendTrafficPolicy. Any two of a Service conflict: a policy without merge
    strategy has the strategy None (GEP-713)."""

    traffic: BackendTraffic


def backend_traffic_policy(
    policy: api.XBackendTrafficPolicy, limits: ResourceLimits
) -> ParsedPolicy:
    """Translate an XBackendTrafficPolicy."""
    parse, spec = FieldParser(limits), policy.spec
    for index, target in enumerate(policy.targets):
        if (target.group, target.kind) != ("", "Service"):
            kind = f"{target.group}/{target.kind}".lstrip("/")
            parse.problems.append(
                f"spec.targetRefs[{index}]: kind {kind} is not supported: must be Service"
            )
    if spec.session_persistence is not None:
        parse.problems += _session_problems(spec.session_persistence)
    budget = _retry_budget(parse, spec.retry_constraint) if spec.retry_constraint else None
    return parse.result(
        BackendTrafficSettings(BackendTraffic(origin_of(policy), spec.session_persistence, budget))
    )


def _retry_budget(parse: FieldParser, constraint: api.RetryConstraintSpec) -> RetryBudget:
    budget, rate = constraint.budget, constraint.min_retry_rate
    field = f"spec.{RETRY_FIELD}"
    if not 0 <= budget.percent <= 100:
        parse.problems.append(f"{field}.budget.percent: must be from 0 to 100")
    if not 1 <= (durations.parse_duration(budget.interval) or 0) <= MAX_RETRY_INTERVAL_SECONDS:
        parse.problems.append(f"{field}.budget.interval: must be a duration from 1s to 1h")
    if not 1 <= rate.count <= MAX_RETRY_COUNT:
        parse.problems.append(f"{field}.minRetryRate.count: must be from 1 to {MAX_RETRY_COUNT}")
    seconds = durations.parse_duration(rate.interval) or 0
    if not 0 < seconds <= MAX_RETRY_INTERVAL_SECONDS:
        parse.problems.append(f"{field}.minRetryRate.interval: must be a duration from 1ms to 1h")
    return RetryBudget(budget.percent, rate.count / seconds if seconds else 0)


def _session_problems(session: routes.SessionPersistence) -> list[str]:
    problems = [*retries.session_problems(session)]
    name = f"{session.type.lower()}.name"
    if session.type not in ("Cookie", "Header"):
        problems.append("type: must be Cookie or Header")
    elif len(session.name) > MAX_SESSION_NAME_BYTES:
        problems.append(f"{name}: must have at most {MAX_SESSION_NAME_BYTES} characters")
    elif session.type == "Header" and not _HEADER.fullmatch(session.name or "-"):
        problems.append(f"{name}: must have letters, digits and hyphens only")
    if len(session.own_cookie.path) > MAX_COOKIE_PATH_BYTES:
        problems.append(f"cookie.path: must have at most {MAX_COOKIE_PATH_BYTES} characters")
    return [f"spec.{SESSION_FIELD}.{problem}" for problem in problems]
