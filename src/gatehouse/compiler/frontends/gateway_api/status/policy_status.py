"""Statuses of BackendTLSPolicies, with an entry for each Gateway where they apply."""

from __future__ import annotations

from gatehouse.apis import policies
from gatehouse.compiler.frontends.gateway_api.cluster_key import SERVICE
from gatehouse.compiler.frontends.gateway_api.dependencies import gateways_using
from gatehouse.compiler.frontends.gateway_api.extensions.policy_conflicts import (
    exporting_gateways,
)
from gatehouse.compiler.frontends.gateway_api.routes import backend_tls
from gatehouse.compiler.frontends.gateway_api.status.ancestors import ancestor_entry
from gatehouse.compiler.frontends.gateway_api.status.certificate_validity import (
    certificates_of_policy,
    validity_findings,
)
from gatehouse.compiler.frontends.gateway_api.status.types import MAX_ANCESTORS, PolicyStatus
from gatehouse.incremental.query import Ask, Key


def policy_status(ask: Ask, key: Key) -> PolicyStatus | None:
    """Return the desired status of a policy."""
    policy = ask.read(key)
    if not isinstance(policy, policies.BackendTLSPolicy):
        return None
    targets = {(SERVICE, key[1], target.name) for target in policy.spec.target_refs}
    users = (gateways_using, exporting_gateways)
    gateways = sorted({owner for target in targets for by in users for owner in ask(by, target)})
    conflict = ask(backend_tls.conflicting_policies, key)
    accepted = "the policy is accepted"
    if policy.spec.options:
        fields = ", ".join(f"spec.options[{name}]" for name in sorted(policy.spec.options))
        accepted += f"; not supported: {fields}"
    entries = []
    for owner in gateways[:MAX_ANCESTORS]:
        resolved = ask(backend_tls.backend_tls_at, owner, key)
        validity = validity_findings(ask, certificates_of_policy(ask, resolved.trust))
        findings = (conflict,) if conflict is not None else (*resolved.findings, *validity)
        entries.append(ancestor_entry(ask, owner, accepted, findings, policy.metadata.generation))
    return PolicyStatus(tuple(entries))
