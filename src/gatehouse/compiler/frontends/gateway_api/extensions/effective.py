"""Effective settings: merged policies of a Gateway, a route, or the clusters of a Service."""

from __future__ import annotations

import msgspec

from gatehouse.compiler.frontends.gateway_api.extensions.backend_traffic_policies import (
    RETRY_FIELD,
    TRAFFIC_KIND,
    BackendTraffic,
    BackendTrafficSettings,
)
from gatehouse.compiler.frontends.gateway_api.extensions.policy_conflicts import (
    accepted_policies,
    gateway_tracing,
)
from gatehouse.compiler.frontends.gateway_api.extensions.policy_fields import (
    TrafficSettings,
    merge_defaults,
)
from gatehouse.compiler.frontends.gateway_api.extensions.policy_parsing import (
    TRAFFIC_KINDS,
    policy_settings,
)
from gatehouse.compiler.frontends.gateway_api.extensions.trace_policies import TracePolicy
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.inputs import policies_by_target
from gatehouse.compiler.ir import settings as ir
from gatehouse.compiler.ir.http import Retry
from gatehouse.compiler.ir.proxy_settings import NginxSnippet
from gatehouse.compiler.ir.tracing import Tracing
from gatehouse.dataplane.origin import object_of
from gatehouse.incremental.query import Ask, Key

AFFECTED = {
    "ClientSettingsPolicy": Reason.CLIENT_SETTINGS_AFFECTED,
    "ProxySettingsPolicy": Reason.PROXY_SETTINGS_AFFECTED,
    "RateLimitPolicy": Reason.RATE_LIMIT_AFFECTED,
    "TrafficPolicy": Reason.TRAFFIC_AFFECTED,
    "SecurityPolicy": Reason.SECURITY_AFFECTED,
    "SnippetsPolicy": Reason.SNIPPETS_AFFECTED,
    "ObservabilityPolicy": Reason.OBSERVABILITY_AFFECTED,
    "XTelemetryPolicy": Reason.TELEMETRY_AFFECTED,
}
"""Reasons of findings about the target of a policy, by policy kind."""

_NO_TRAFFIC_SETTINGS = TrafficSettings()


class RouteSettings(msgspec.Struct, frozen=True):
    """Effective settings of the routes of an object."""

    settings: ir.Settings = ir.Settings()
    retry: Retry | None = None
    """Retries of rules that set none."""


_NO_SETTINGS = RouteSettings()


def own_settings(ask: Ask, gateway: Key, target: Key) -> RouteSettings:
    """Return the settings of the policies that target a Gateway, or a route at a Gateway."""
    if target != gateway and not ask.read(policies_by_target(target)):
        return _NO_SETTINGS
    traffic = _traffic(ask, gateway, target)
    tracing = _tracing(ask, gateway, target)
    settings = ir.Settings(
        client=traffic.client,
        proxy=traffic.proxy,
        rates=traffic.rates,
        compression=traffic.compression,
        tracing=tracing,
    )
    return RouteSettings(settings, traffic.retry)


def _traffic(ask: Ask, gateway: Key, target: Key) -> TrafficSettings:
    """Return the settings of the policies that a Gateway accepts for an object, merged."""
    merged = TrafficSettings()
    for key in _accepted(ask, gateway, target, *TRAFFIC_KINDS):
        policy: TrafficSettings = policy_settings(ask, gateway, key)
        limits = (*merged.rates.limits, *policy.rates.limits)
        shared = (*merged.rates.shared, *policy.rates.shared)
        merged = merge_defaults(merged, policy)
        rates = msgspec.structs.replace(merged.rates, limits=limits, shared=shared)
        merged = msgspec.structs.replace(merged, rates=rates)
    return merged


def _tracing(ask: Ask, gateway: Key, target: Key) -> Tracing | None:
    if target == gateway:
        return gateway_tracing(ask, gateway)
    for key in _accepted(ask, gateway, target, "ObservabilityPolicy"):
        policy: TracePolicy = policy_settings(ask, gateway, key)
        if policy.tracing is not None:
            return policy.tracing
    return None


def _accepted(ask: Ask, gateway: Key, target: Key, *kinds: str) -> tuple[Key, ...]:
    if not ask.read(policies_by_target(target)):
        # Most objects have no policy. A query for each of them would cost memory.
        return ()
    return ask(accepted_policies, gateway, kinds, target)


def route_settings(ask: Ask, gateway: Key, route: Key) -> RouteSettings:
    """Return the effective settings of a route of a Gateway.

    Settings of the route override those of the Gateway field by field. Its rate limits, traces and
    retries replace those of the Gateway.
    """
    outer, inner = (ask(own_settings, gateway, target) for target in (gateway, route))
    if inner == _NO_SETTINGS:
        return outer
    settings = merge_defaults(outer.settings, inner.settings)
    return RouteSettings(settings, outer.retry if inner.retry is None else inner.retry)


def upstream_policy(ask: Ask, gateway: Key, service: Key) -> TrafficSettings:
    """Return the effective settings of the clusters of a Service at a Gateway."""
    if not ask.read(policies_by_target(service)):
        return _NO_TRAFFIC_SETTINGS
    settings = _traffic(ask, gateway, service)
    traffic = backend_traffic(ask, gateway, service)
    if traffic is not None and traffic.retry_budget is not None:
        source = ("retry_budget", traffic.origin.field(RETRY_FIELD))
        limited = ir.UpstreamSettings(retry_budget=traffic.retry_budget, sources=(source,))
        settings = merge_defaults(settings, TrafficSettings(upstream=limited))
    return settings


def backend_traffic(ask: Ask, gateway: Key, service: Key) -> BackendTraffic | None:
    """Return the accepted XBackendTrafficPolicy of a Service at a Gateway; None if it has none."""
    for key in _accepted(ask, gateway, service, TRAFFIC_KIND):
        policy: BackendTrafficSettings = policy_settings(ask, gateway, key)
        return policy.traffic
    return None


def gateway_edge(ask: Ask, gateway: Key, edge: ir.DataPlaneSettings) -> ir.DataPlaneSettings:
    """Return the settings of all ports of a Gateway with those that its policies set."""
    for key in _accepted(ask, gateway, gateway, *TRAFFIC_KINDS):
        policy: TrafficSettings = policy_settings(ask, gateway, key)
        if policy.header_bytes is not None:
            origins = (*edge.origins, object_of(key))
            return msgspec.structs.replace(edge, header_bytes=policy.header_bytes, origins=origins)
    return edge


def gateway_snippets(ask: Ask, gateway: Key) -> tuple[NginxSnippet, ...]:
    """Return the snippets of the policies that target a Gateway."""
    return tuple(
        snippet
        for key in _accepted(ask, gateway, gateway, "SnippetsPolicy")
        for snippet in policy_settings(ask, gateway, key)
    )


def affected(ask: Ask, gateway: Key, target: Key) -> list[Finding]:
    """Return a finding for each kind of policy that affects an object at a Gateway."""
    if not ask.read(policies_by_target(target)):
        return []
    result = []
    for kind, reason in AFFECTED.items():
        names = [key[2] for key in ask(accepted_policies, gateway, (kind,), target)]
        if names:
            result.append(Finding(reason, f"affected by {kind} {', '.join(sorted(names))}"))
    return result
