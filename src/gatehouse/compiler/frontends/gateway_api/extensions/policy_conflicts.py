"""Conflict resolution between policies of one target.

A policy is accepted if it is valid and no older policy of the same kind sets the same field of the
same target; of equally old ones the first by name is accepted. A conflicted policy is rejected as a
whole. Policies that set different fields are merged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from gatehouse.apis import nginx_gateway as api
from gatehouse.compiler.frontends.gateway_api.extensions import (
    snippets,
    traffic_policies,
    upstream_settings,
)
from gatehouse.compiler.frontends.gateway_api.extensions.traffic_policies import ParsedPolicy
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.inputs import policies_by_target, rejected_by_proxy
from gatehouse.compiler.ir import settings as ir
from gatehouse.incremental.query import Ask, Key

_READERS: Mapping[str, Callable[[Any], ParsedPolicy]] = {
    "ClientSettingsPolicy": traffic_policies.client_settings,
    "ProxySettingsPolicy": traffic_policies.proxy_settings,
    "RateLimitPolicy": traffic_policies.rate_limits,
    "UpstreamSettingsPolicy": upstream_settings.upstream_settings,
    "SnippetsPolicy": lambda policy: ParsedPolicy(snippets.snippets(policy)),
}

_FIELDS = {
    **traffic_policies.CLIENT_FIELDS,
    **traffic_policies.PROXY_FIELDS,
    **upstream_settings.UPSTREAM_FIELDS,
    "log_level": "rateLimit.logLevel",
    "status": "rateLimit.rejectCode",
    "dry_run": "rateLimit.dryRun",
    "service_address": "useClusterIP",
}
"""Names of settings in the policies' specs."""


def parse_policy(ask: Ask, key: Key) -> ParsedPolicy:
    """Parse a policy."""
    policy = ask.read(key)
    if not isinstance(policy, api.Policy):
        return ParsedPolicy(None, (f"{key[0]} {key[1]}/{key[2]} is invalid",))
    if rejected := rejected_by_proxy(ask, key):
        return ParsedPolicy(None, (rejected,))
    reader = _READERS.get(key[0])
    return reader(policy) if reader is not None else ParsedPolicy()


def rejection(ask: Ask, key: Key) -> Finding | None:
    """Return why a policy is not accepted; None if it is."""
    found = ask(parse_policy, key)
    if found.problems:
        return Finding(Reason.POLICY_INVALID, "; ".join(found.problems))
    if key[0] == "ObservabilityPolicy":
        message = "spec.tracing: the Gateway's data plane has no trace exporter configured"
        return Finding(Reason.NGINX_PROXY_NOT_SET, message)
    if key[0] == "SnippetsPolicy" and (message := snippets.rejection(ask, key[0])):
        return Finding(Reason.POLICY_INVALID, message)
    own = set_fields(found.settings)
    for target in ask.read(key).targets:
        for rival in ask.read(policies_by_target(key[0], (target.kind, key[1], target.name))):
            if _age(ask, rival) >= _age(ask, key) or ask(rejection, rival) is not None:
                continue
            common = own & set_fields(ask(parse_policy, rival).settings)
            if common:
                message = (
                    f"spec: {', '.join(sorted(_FIELDS.get(each, each) for each in common))}: "
                    f"already set for {target.kind} {target.name} by {key[0]} "
                    f"{key[1]}/{rival[2]}, which is older or first by name"
                )
                return Finding(Reason.POLICY_CONFLICTED, message)
    return None


def accepted_policies(ask: Ask, which: tuple[str, Key]) -> tuple[Key, ...]:
    """Return the accepted policies of kind ``which[0]`` that target an object, oldest first."""
    found = [key for key in ask.read(policies_by_target(*which)) if ask(rejection, key) is None]
    return tuple(sorted(found, key=lambda key: _age(ask, key)))


def set_fields(settings: Any) -> frozenset[str]:
    """Return the names of set fields. Lists are omitted because they are merged."""
    if not isinstance(settings, msgspec.Struct):
        return frozenset()
    found: set[str] = set()
    for field in settings.__struct_fields__:
        value = getattr(settings, field)
        if isinstance(value, ir.UpstreamSettings):
            found |= set_fields(value)
        elif value is not None and value != "" and not isinstance(value, tuple):
            found.add(field)
    return frozenset(found)


def _age(ask: Ask, key: Key) -> tuple[str, Key]:
    return (ask.read(key).metadata.creation_timestamp, key)
