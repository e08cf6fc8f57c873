"""Conflict resolution between policies of one target.

A policy is accepted if it is valid and no older policy sets the same field of the same target; of
equally old ones the first by kind and name is accepted. Fields of different kinds are the same if
they become the same setting of the IR. A conflicted policy is rejected as a whole. Policies that
set different fields are merged.
"""

from __future__ import annotations

from gatehouse.apis import telemetry
from gatehouse.compiler.frontends.gateway_api.classes import is_managed_gateway
from gatehouse.compiler.frontends.gateway_api.extensions import (
    policy_claims,
    snippets,
    trace_parameters,
)
from gatehouse.compiler.frontends.gateway_api.extensions.collectors import resolve_collector
from gatehouse.compiler.frontends.gateway_api.extensions.parameters import (
    collector_credentials,
    gateway_limits,
    merged_parameters,
    parameters,
)
from gatehouse.compiler.frontends.gateway_api.extensions.policy_parsing import (
    age_of,
    parse_policy,
    policy_settings,
    set_fields,
)
from gatehouse.compiler.frontends.gateway_api.extensions.telemetry_policies import (
    TELEMETRY_KIND,
    GatewayTelemetry,
    TelemetrySettings,
)
from gatehouse.compiler.frontends.gateway_api.extensions.trace_credentials import (
    ExporterCredentials,
)
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.inputs import (
    policies_by_collector,
    policies_by_target,
    rejected_by_proxy,
)
from gatehouse.compiler.ir.tracing import TraceExport, Tracing
from gatehouse.incremental.query import Ask, Key

_UNSERVED = {
    "WAFPolicy": "needs F5 WAF for NGINX, a module of NGINX Plus: requests are not inspected",
    "PayloadProcessor": "data planes do not send payloads to processors: they stay unchanged",
}
"""Kinds of policies that no data plane serves, with the reason."""


def policy_rejection(ask: Ask, gateway: Key, key: Key) -> Finding | None:
    """Return why a policy is not accepted at a Gateway; None if it is."""
    limits = ask(gateway_limits, gateway)
    policy = ask(parse_policy, limits, key)
    if policy.problems:
        return Finding(Reason.POLICY_INVALID, "; ".join(policy.problems))
    if why := _UNSERVED.get(key[0]):
        return Finding(Reason.POLICY_KIND_NOT_SERVED, f"{key[0]} is not supported: {why}")
    if key[0] == "ObservabilityPolicy" and ask(trace_export, gateway) is None:
        return Finding(Reason.NGINX_PROXY_NOT_SET, _without_exporter(ask, gateway))
    if key[0] == TELEMETRY_KIND and _is_disabled(ask, gateway, policy.settings):
        message = "spec.tracing.mode: telemetry.disabledFeatures of the parameters disables traces"
        return Finding(Reason.POLICY_INVALID, message)
    if key[0] == "SnippetsPolicy" and (message := snippets.snippet_rejection(ask, key[0])):
        return Finding(Reason.POLICY_INVALID, message)
    if excess := policy_claims.claims_message(ask, gateway, key):
        return Finding(Reason.POLICY_INVALID, excess)
    if rejected := rejected_by_proxy(ask, gateway, key):
        return Finding(Reason.POLICY_INVALID, rejected)
    return _conflict(ask, gateway, key)


def _conflict(ask: Ask, gateway: Key, key: Key) -> Finding | None:
    """Return the conflict of a policy with an older one, of any kind with the same settings."""
    limits = ask(gateway_limits, gateway)
    settings = ask(parse_policy, limits, key).settings
    own = set_fields(key, settings)
    for target in ask.read(key).targets:
        if target.kind == "Gateway" and target.name != gateway[2]:
            continue
        for rival in ask.read(policies_by_target((target.kind, key[1], target.name))):
            if age_of(ask, rival) >= age_of(ask, key):
                continue
            theirs = ask(parse_policy, limits, rival).settings
            common = own.keys() & set_fields(rival, theirs).keys()
            if type(theirs) is not type(settings) or not common:
                continue
            if ask(policy_rejection, gateway, rival) is None:
                message = (
                    f"spec: {', '.join(sorted({own[path] for path in common}))}: "
                    f"already set for {target.kind} {target.name} by {rival[0]} "
                    f"{key[1]}/{rival[2]}, which is older or first by name"
                )
                return Finding(Reason.POLICY_CONFLICTED, message)
    return None


def telemetry_at(ask: Ask, gateway: Key) -> Key | None:
    """Return the XTelemetryPolicy that a Gateway follows instead of its parameters."""
    if not any(key[0] == TELEMETRY_KIND for key in ask.read(policies_by_target(gateway))):
        return None
    for key in ask(accepted_policies, gateway, (TELEMETRY_KIND,), gateway):
        if _telemetry(policy_settings(ask, gateway, key)).mode != telemetry.DEFAULT:
            return key
    return None


def trace_export(ask: Ask, gateway: Key) -> TraceExport | None:
    """Return the export of a Gateway's spans; None: no request is traced."""
    key = ask(telemetry_at, gateway)
    if key is None:
        return ask(parameters, gateway).edge.traces
    return ask(resolve_collector, gateway, key).export


def trace_credentials(ask: Ask, gateway: Key) -> ExporterCredentials:
    """Return the credentials for TLS to the collector of a Gateway."""
    key = ask(telemetry_at, gateway)
    if key is None:
        return ask(collector_credentials, gateway)
    return ExporterCredentials(ask(resolve_collector, gateway, key).trust)


def exporting_gateways(ask: Ask, backend: Key) -> tuple[Key, ...]:
    """Return the Gateways that send spans to a Service or XBackend, or would if its TLS settings
    were valid."""
    return tuple(
        gateway
        for key in ask.read(policies_by_collector(*backend[1:]))
        if ask.read(key).spec.tracing.provider.backend_ref.kind == backend[0]
        for target in ask.read(key).targets
        for gateway in [("Gateway", key[1], target.name)]
        if ask(is_managed_gateway, gateway) and ask(telemetry_at, gateway) == key
    )


def gateway_tracing(ask: Ask, gateway: Key) -> Tracing | None:
    """Return the traces of a Gateway's routes that have no policy of their own."""
    key = ask(telemetry_at, gateway)
    if key is None or ask(trace_export, gateway) is None:
        return None
    return _telemetry(policy_settings(ask, gateway, key)).tracing


def _telemetry(policy: TelemetrySettings) -> GatewayTelemetry:
    return policy.tracing


def _is_disabled(ask: Ask, gateway: Key, policy: TelemetrySettings) -> bool:
    requested = ask(merged_parameters, gateway).telemetry
    return policy.tracing.mode == telemetry.ENABLED and trace_parameters.is_disabled(requested)


def _without_exporter(ask: Ask, gateway: Key) -> str:
    message = "spec.tracing: the Gateway's data plane has no trace exporter"
    key = ask(telemetry_at, gateway)
    if key is not None:
        return f"{message}: see {TELEMETRY_KIND} {key[1]}/{key[2]}"
    return f"{message}: set spec.telemetry.exporter in the parameters of its GatewayClass"


def accepted_policies(
    ask: Ask, gateway: Key, kinds: tuple[str, ...], target: Key
) -> tuple[Key, ...]:
    """Return the policies of some kinds that a Gateway accepts for a target, oldest first."""
    accepted = [
        key
        for key in ask.read(policies_by_target(target))
        if key[0] in kinds and ask(policy_rejection, gateway, key) is None
    ]
    return tuple(sorted(accepted, key=lambda key: age_of(ask, key)))
