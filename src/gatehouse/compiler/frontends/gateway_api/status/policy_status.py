"""Statuses of BackendTLSPolicies, with an entry for each Gateway where they apply."""

from __future__ import annotations

from gatehouse.apis import policies
from gatehouse.compiler.frontends.gateway_api.classes import controller_of
from gatehouse.compiler.frontends.gateway_api.dependencies import users
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason, conditions
from gatehouse.compiler.frontends.gateway_api.routes import backend_tls
from gatehouse.compiler.frontends.gateway_api.status.types import AncestorStatus, PolicyStatus
from gatehouse.incremental.query import Ask, Key

MAX_ANCESTORS = 16
"""Maximum number of entries in a policy's status."""


def policy_status(ask: Ask, key: Key) -> PolicyStatus | None:
    """Return the desired status of a policy."""
    found = ask.read(key)
    if not isinstance(found, policies.BackendTLSPolicy):
        return None
    targets = {(key[1], target.name) for target in found.spec.target_refs}
    gateways = sorted({owner for target in targets for owner in ask(users, target)})
    conflict = ask(backend_tls.conflicting_policies, key)
    findings = (conflict,) if conflict is not None else ask(backend_tls.resolve, key).findings
    defaults = (
        Finding(Reason.ACCEPTED, "the policy is accepted"),
        Finding(Reason.RESOLVED, "all references are resolved"),
    )
    policy_conditions = conditions(findings, defaults, found.metadata.generation)
    return PolicyStatus(
        tuple(
            AncestorStatus(ask(controller_of, owner), owner, policy_conditions)
            for owner in gateways[:MAX_ANCESTORS]
        )
    )
