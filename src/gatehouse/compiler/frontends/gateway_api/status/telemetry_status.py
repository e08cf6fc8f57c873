"""Findings about XTelemetryPolicies beyond those that all policies have."""

from __future__ import annotations

from gatehouse.compiler.frontends.gateway_api.extensions import policy_conflicts
from gatehouse.compiler.frontends.gateway_api.extensions.collectors import resolve_collector
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.inputs import unsupported_key
from gatehouse.compiler.frontends.gateway_api.status.unsupported import messages
from gatehouse.dataplane.origin import object_of
from gatehouse.incremental.query import Ask, Key


def telemetry_findings(ask: Ask, key: Key, gateway: Key) -> tuple[Finding, ...]:
    """Return what is wrong with the references of an accepted policy at a Gateway, and which of
    its settings the data plane does not support."""
    if ask(policy_conflicts.telemetry_at, gateway) != key:
        return ()
    collector = ask(resolve_collector, gateway, key)
    parts = [
        part
        for part in unsupported_key(ask, gateway, gateway)
        if part.setting.whole == object_of(key)
    ]
    # Without the exporter, nothing of the policy is served.
    export = collector.export
    whole = [part for part in parts if export is not None and part.setting == export.origin]
    if whole:
        return (Finding(Reason.POLICY_INVALID, "; ".join(messages(whole))), collector.finding)
    partly = [Finding(Reason.PARTIALLY_INVALID, message) for message in messages(parts)]
    return (*partly, collector.finding)
