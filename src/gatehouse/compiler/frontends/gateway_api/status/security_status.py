"""Findings about SecurityPolicies beyond those that all policies have."""

from __future__ import annotations

from gatehouse.apis.security_policies import SecurityPolicy
from gatehouse.compiler.frontends.gateway_api.findings import ALL_RESOLVED, Finding, Reason
from gatehouse.compiler.frontends.gateway_api.inputs import at_gateway
from gatehouse.compiler.frontends.gateway_api.routes.security import policy_checks
from gatehouse.compiler.frontends.gateway_api.status.certificate_validity import (
    certificates_of_filter,
    validity_findings,
)
from gatehouse.incremental.query import Ask, Key


def security_findings(ask: Ask, key: Key, gateways: tuple[Key, ...]) -> tuple[Finding, ...]:
    """Return what is wrong with the checks of an accepted policy at the Gateways of an entry.

    An entry about a route covers several Gateways, so that messages about some of them name these.
    """
    by_gateway = {
        gateway: [one for _, part in ask(policy_checks, gateway, key) for one in part.findings]
        for gateway in gateways
    }
    result: list[Finding] = []
    for gateway, findings in by_gateway.items():
        for one in findings:
            everywhere = all(one in others for others in by_gateway.values())
            message = one.message if everywhere else at_gateway(gateway, one.message)
            result.append(Finding(_OF_POLICY.get(one.reason, one.reason), message))
    policy: SecurityPolicy = ask.read(key)
    if policy.spec.external_auth is not None and not result:
        result.append(ALL_RESOLVED)
    return (*result, *validity_findings(ask, certificates_of_filter(ask, key)))


_OF_POLICY = {
    Reason.UNSUPPORTED_VALUE: Reason.POLICY_INVALID,
    Reason.INVALID_FILTER: Reason.POLICY_INVALID,
}
"""Reasons about policies, for those about filters of routes."""
