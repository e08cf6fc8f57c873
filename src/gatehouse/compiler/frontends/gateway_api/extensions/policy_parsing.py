"""Policies of ``gateway.nginx.org``: their settings and their age."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gatehouse.apis import nginx_gateway as api
from gatehouse.apis.resource_limits import ResourceLimits
from gatehouse.compiler.frontends.gateway_api.extensions import (
    backend_traffic_policies,
    snippets,
    telemetry_policies,
    trace_policies,
    traffic_policies,
    upstream_settings,
)
from gatehouse.compiler.frontends.gateway_api.extensions.parameters import gateway_limits
from gatehouse.compiler.frontends.gateway_api.extensions.traffic_policies import ParsedPolicy
from gatehouse.compiler.frontends.gateway_api.fair_shares import Age
from gatehouse.incremental.query import Ask, Key

_READERS: Mapping[str, Callable[[Any, ResourceLimits], ParsedPolicy]] = {
    "ClientSettingsPolicy": traffic_policies.client_settings,
    "ProxySettingsPolicy": traffic_policies.proxy_settings,
    "RateLimitPolicy": traffic_policies.rate_limits,
    "UpstreamSettingsPolicy": upstream_settings.upstream_settings,
    "ObservabilityPolicy": trace_policies.trace_policy,
    "XTelemetryPolicy": telemetry_policies.telemetry_policy,
    "XBackendTrafficPolicy": backend_traffic_policies.backend_traffic_policy,
    "SnippetsPolicy": lambda policy, _: ParsedPolicy(snippets.translate_snippets(policy)),
}


def policy_settings(ask: Ask, gateway: Key, key: Key) -> Any:
    """Return the settings of a policy at a Gateway; None if it has problems there."""
    return ask(parse_policy, ask(gateway_limits, gateway), key).settings


def parse_policy(ask: Ask, limits: ResourceLimits, key: Key) -> ParsedPolicy:
    """Parse a policy under the ceilings of a Gateway."""
    policy = ask.read(key)
    if not isinstance(policy, api.AttachedPolicy):
        return ParsedPolicy(None, (f"{key[0]} {key[1]}/{key[2]} is invalid",))
    reader = _READERS.get(key[0])
    return reader(policy, limits) if reader is not None else ParsedPolicy()


def age_of(ask: Ask, key: Key) -> Age:
    """Return the age of a policy."""
    return (ask.read(key).metadata.creation_timestamp, key)
