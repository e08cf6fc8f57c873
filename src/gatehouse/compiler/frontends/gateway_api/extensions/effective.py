"""Effective settings: merged policies of a Gateway, a route, or the clusters of a Service."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from gatehouse.compiler.frontends.gateway_api.extensions import policy_conflicts
from gatehouse.compiler.frontends.gateway_api.extensions.traffic_policies import UNSET
from gatehouse.compiler.frontends.gateway_api.extensions.upstream_settings import UpstreamPolicy
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.ir import settings as ir
from gatehouse.incremental.query import Ask, Key

T = TypeVar("T", bound=msgspec.Struct)

AFFECTED = {
    "ClientSettingsPolicy": Reason.CLIENT_SETTINGS_AFFECTED,
    "ProxySettingsPolicy": Reason.PROXY_SETTINGS_AFFECTED,
    "RateLimitPolicy": Reason.RATE_LIMIT_AFFECTED,
    "SnippetsPolicy": Reason.SNIPPETS_AFFECTED,
    "ObservabilityPolicy": Reason.OBSERVABILITY_AFFECTED,
}
"""Reasons of findings about the target of a policy, by policy kind."""


def own_settings(ask: Ask, target: Key) -> ir.Settings:
    """Return the settings of the policies that target a Gateway or route."""
    client, proxy, rates = ir.ClientSettings(), ir.ProxySettings(), ir.RateLimits()
    for key in ask(policy_conflicts.accepted_policies, ("ClientSettingsPolicy", target)):
        client = merge_defaults(client, ask(policy_conflicts.parse_policy, key).settings)
    for key in ask(policy_conflicts.accepted_policies, ("ProxySettingsPolicy", target)):
        proxy = merge_defaults(proxy, ask(policy_conflicts.parse_policy, key).settings)
    for key in ask(policy_conflicts.accepted_policies, ("RateLimitPolicy", target)):
        found: ir.RateLimits = ask(policy_conflicts.parse_policy, key).settings
        limits = (*rates.limits, *found.limits)
        rates = msgspec.structs.replace(merge_defaults(rates, found), limits=limits)
    return ir.Settings(client, proxy, rates)


def route_settings(ask: Ask, which: tuple[Key, Key]) -> ir.Settings:
    """Return the effective settings of a route of a Gateway.

    Settings of the route override those of the Gateway field by field. Its rate limits replace
    those of the Gateway.
    """
    outer, inner = (ask(own_settings, key) for key in which)
    return ir.Settings(
        merge_defaults(outer.client, inner.client),
        merge_defaults(outer.proxy, inner.proxy),
        merge_defaults(outer.rates, inner.rates),
    )


def merge_defaults(outer: T, inner: T) -> T:
    """Return ``inner`` with unset fields taken from ``outer``."""
    set_values = {
        field: value
        for field in inner.__struct_fields__
        if (value := getattr(inner, field)) not in UNSET
    }
    if isinstance(outer, ir.Sourced) and "sources" in set_values:
        set_values["sources"] = tuple((dict(outer.sources) | dict(set_values["sources"])).items())
    return msgspec.structs.replace(outer, **set_values)


def upstream_policy(ask: Ask, service: tuple[str, str]) -> UpstreamPolicy:
    """Return the effective settings of the clusters of a Service."""
    settings, service_address = ir.UpstreamSettings(), False
    for key in ask(
        policy_conflicts.accepted_policies, ("UpstreamSettingsPolicy", ("Service", *service))
    ):
        found: UpstreamPolicy = ask(policy_conflicts.parse_policy, key).settings
        settings = merge_defaults(settings, found.settings)
        service_address = service_address or bool(found.service_address)
    return UpstreamPolicy(settings, service_address)


def gateway_snippets(ask: Ask, gateway: Key) -> tuple[ir.Snippet, ...]:
    """Return the snippets of the policies that target a Gateway."""
    return tuple(
        snippet
        for key in ask(policy_conflicts.accepted_policies, ("SnippetsPolicy", gateway))
        for snippet in ask(policy_conflicts.parse_policy, key).settings
    )


def affected(ask: Ask, target: Key) -> list[Finding]:
    """Return a finding for each kind of policy that affects an object."""
    found = []
    for kind, reason in AFFECTED.items():
        names = [key[2] for key in ask(policy_conflicts.accepted_policies, (kind, target))]
        if names:
            found.append(Finding(reason, f"affected by {kind} {', '.join(sorted(names))}"))
    return found
