"""What policies give: for a Gateway, for a route of it, for the clusters of a Service."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from gatehouse.compiler.frontends.gateway_api.extensions import policy_conflicts
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
"""What is said of an object that a policy is about."""


def own_settings(ask: Ask, target: Key) -> ir.Settings:
    """Give what the policies about a Gateway or route set."""
    client, proxy, rates = ir.ClientSettings(), ir.ProxySettings(), ir.RateLimits()
    for key in ask(policy_conflicts.accepted_policies, ("ClientSettingsPolicy", target)):
        client = merge_defaults(client, _by(key, ask(policy_conflicts.parse_policy, key).settings))
    for key in ask(policy_conflicts.accepted_policies, ("ProxySettingsPolicy", target)):
        proxy = merge_defaults(proxy, _by(key, ask(policy_conflicts.parse_policy, key).settings))
    for key in ask(policy_conflicts.accepted_policies, ("RateLimitPolicy", target)):
        found: ir.RateLimits = ask(policy_conflicts.parse_policy, key).settings
        limits = (*rates.limits, *found.limits)
        rates = msgspec.structs.replace(merge_defaults(rates, found), limits=limits)
    return ir.Settings(client, proxy, rates)


def route_settings(ask: Ask, which: tuple[Key, Key]) -> ir.Settings:
    """Give what holds for a route of a Gateway: field by field its own, else the Gateway's.

    Rate limits of its own take the place of the Gateway's.
    """
    outer, inner = (ask(own_settings, key) for key in which)
    return ir.Settings(
        merge_defaults(outer.client, inner.client),
        merge_defaults(outer.proxy, inner.proxy),
        merge_defaults(outer.rates, inner.rates),
    )


def merge_defaults(outer: T, inner: T) -> T:
    """Give ``inner`` with what it leaves open taken from ``outer``."""
    empty = (None, "", ())
    said = {
        field: value
        for field in inner.__struct_fields__
        if (value := getattr(inner, field)) not in empty
    }
    if "policies" in said:
        both = dict.fromkeys((*getattr(outer, "policies", ()), *said["policies"]))
        said["policies"] = tuple(both)
    return msgspec.structs.replace(outer, **said)


def _by(key: Key, settings: T) -> T:
    """Note on settings which policy says so."""
    return msgspec.structs.replace(settings, policies=(f"{key[1]}/{key[2]}",))


def upstream_policy(ask: Ask, service: tuple[str, str]) -> UpstreamPolicy:
    """Give what holds for the clusters of a Service."""
    settings, service_address = ir.UpstreamSettings(), False
    for key in ask(
        policy_conflicts.accepted_policies, ("UpstreamSettingsPolicy", ("Service", *service))
    ):
        found: UpstreamPolicy = ask(policy_conflicts.parse_policy, key).settings
        settings = merge_defaults(settings, _by(key, found.settings))
        service_address = service_address or bool(found.service_address)
    return UpstreamPolicy(settings, service_address)


def gateway_snippets(ask: Ask, gateway: Key) -> tuple[ir.Snippet, ...]:
    """Give the snippets of the policies about a Gateway."""
    return tuple(
        snippet
        for key in ask(policy_conflicts.accepted_policies, ("SnippetsPolicy", gateway))
        for snippet in ask(policy_conflicts.parse_policy, key).settings
    )


def affected(ask: Ask, target: Key) -> list[Finding]:
    """Say which policies hold for an object."""
    found = []
    for kind, reason in AFFECTED.items():
        names = [key[2] for key in ask(policy_conflicts.accepted_policies, (kind, target))]
        if names:
            found.append(Finding(reason, f"{kind} {', '.join(sorted(names))}"))
    return found
