"""Findings about XBackendTrafficPolicies beyond those that all policies have."""

from __future__ import annotations

from collections.abc import Iterator

from gatehouse.compiler.frontends.gateway_api.extensions.backend_traffic_policies import (
    RETRY_FIELD,
)
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.inputs import routes_by_service, unsupported_key
from gatehouse.dataplane.origin import object_of
from gatehouse.incremental.query import Ask, Key


def traffic_findings(ask: Ask, key: Key, gateway: Key) -> tuple[Finding, ...]:
    """Return which settings of an accepted policy the routes of a Gateway lack.

    No message names a route: the author of the policy may have no access to its namespace.
    """
    problems = dict.fromkeys(
        problem
        for target in ask.read(key).targets
        for route in sorted(ask.read(routes_by_service(key[1], target.name)))
        for problem in _problems(ask, key, gateway, route)
    )
    if not problems:
        return ()
    unsupported = "; ".join(problems)
    unlimited = any(problem.startswith(f"spec.{RETRY_FIELD}: ") for problem in problems)
    if unlimited and ask.read(key).spec.session_persistence is None:
        return (Finding(Reason.POLICY_INVALID, unsupported),)
    message = f"the policy is accepted; not supported: {unsupported}"
    return (Finding(Reason.ACCEPTED, message),)


def _problems(ask: Ask, key: Key, gateway: Key, route: Key) -> Iterator[str]:
    own = object_of(key)
    for part in unsupported_key(ask, gateway, route):
        if part.setting.whole == own:
            yield f"spec.{part.setting.part}: {part.reason}"
