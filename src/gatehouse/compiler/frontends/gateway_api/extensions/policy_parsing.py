"""Kinds of policies: their settings and their age."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from gatehouse.apis import nginx_gateway as api
from gatehouse.apis.resource_limits import ResourceLimits
from gatehouse.compiler.frontends.gateway_api.extensions import (
    backend_traffic_policies,
    nginx_policies,
    portable_policies,
    security_policies,
    snippets,
    telemetry_policies,
    trace_policies,
    upstream_settings,
)
from gatehouse.compiler.frontends.gateway_api.extensions.parameters import gateway_limits
from gatehouse.compiler.frontends.gateway_api.extensions.policy_fields import (
    ParsedPolicy,
    TrafficSettings,
    origin_of,
    set_paths,
    with_traffic_sources,
)
from gatehouse.compiler.frontends.gateway_api.fair_shares import Age
from gatehouse.incremental.query import Ask, Key


class PolicyKind(NamedTuple):
    """Translation of a kind of policies."""

    parse: Callable[[Any, ResourceLimits], ParsedPolicy]
    fields: Mapping[str, str] = {}
    """Names in the spec of the settings that only one policy of a target may set, by their paths.
    Other settings are merged."""


_TRAFFIC = {
    "ClientSettingsPolicy": PolicyKind(
        nginx_policies.client_settings, nginx_policies.CLIENT_FIELDS
    ),
    "ProxySettingsPolicy": PolicyKind(nginx_policies.proxy_settings, nginx_policies.PROXY_FIELDS),
    "RateLimitPolicy": PolicyKind(nginx_policies.rate_limits, nginx_policies.RATE_FIELDS),
    "UpstreamSettingsPolicy": PolicyKind(
        upstream_settings.upstream_settings, upstream_settings.UPSTREAM_FIELDS
    ),
    "TrafficPolicy": PolicyKind(portable_policies.traffic_policy, portable_policies.TRAFFIC_FIELDS),
}
TRAFFIC_KINDS = tuple(_TRAFFIC)
"""Kinds whose settings are :class:`TrafficSettings`."""

_KINDS = {
    **_TRAFFIC,
    "ObservabilityPolicy": PolicyKind(trace_policies.trace_policy, {"tracing": "tracing"}),
    "XTelemetryPolicy": PolicyKind(telemetry_policies.telemetry_policy, {"tracing": "tracing"}),
    "XBackendTrafficPolicy": PolicyKind(
        backend_traffic_policies.backend_traffic_policy, {"traffic": "all fields"}
    ),
    security_policies.SECURITY_KIND: PolicyKind(
        security_policies.security_policy, security_policies.SECURITY_FIELDS
    ),
    "SnippetsPolicy": PolicyKind(
        lambda policy, _: ParsedPolicy(snippets.translate_snippets(policy))
    ),
}
_UNSERVED = PolicyKind(lambda *_: ParsedPolicy())


def policy_settings(ask: Ask, gateway: Key, key: Key) -> Any:
    """Return the settings of a policy at a Gateway; None if it has problems there."""
    return ask(parse_policy, ask(gateway_limits, gateway), key).settings


def parse_policy(ask: Ask, limits: ResourceLimits, key: Key) -> ParsedPolicy:
    """Parse a policy under the ceilings of a Gateway."""
    policy = ask.read(key)
    if not isinstance(policy, api.AttachedPolicy):
        return ParsedPolicy(None, (f"{key[0]} {key[1]}/{key[2]} is invalid",))
    kind = _KINDS.get(key[0], _UNSERVED)
    parsed = kind.parse(policy, limits)
    if not isinstance(parsed.settings, TrafficSettings):
        return parsed
    settings = with_traffic_sources(parsed.settings, origin_of(policy), kind.fields)
    return msgspec.structs.replace(parsed, settings=settings)


def set_fields(key: Key, settings: Any) -> Mapping[str, str]:
    """Return the names in the spec of the set fields of a policy, by their paths."""
    fields = _KINDS.get(key[0], _UNSERVED).fields
    return {path: fields[path] for path in set_paths(settings, fields)}


def age_of(ask: Ask, key: Key) -> Age:
    """Return the age of a policy."""
    return (ask.read(key).metadata.creation_timestamp, key)
