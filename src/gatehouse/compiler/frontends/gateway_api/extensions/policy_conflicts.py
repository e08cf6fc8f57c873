"""Which policies stand: those that can be read, and that no older one contradicts.

Of two policies about one object that set the same field the older holds, then the first by name;
the other one is refused as a whole. Policies that set different fields hold side by side.
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
from gatehouse.compiler.frontends.gateway_api.extensions.traffic_policies import Read
from gatehouse.compiler.frontends.gateway_api.findings import Finding, Reason
from gatehouse.compiler.frontends.gateway_api.inputs import policies_by_target
from gatehouse.compiler.ir import settings as ir
from gatehouse.incremental.query import Ask, Key

_READERS: Mapping[str, Callable[[Any], Read]] = {
    "ClientSettingsPolicy": traffic_policies.client_settings,
    "ProxySettingsPolicy": traffic_policies.proxy_settings,
    "RateLimitPolicy": traffic_policies.rate_limits,
    "UpstreamSettingsPolicy": upstream_settings.upstream_settings,
    "SnippetsPolicy": lambda policy: Read(snippets.snippets(policy)),
}

_FIELDS = {
    "body_size": "body.maxSize",
    "body_buffer": "body.bufferSize",
    "body_timeout": "body.timeout",
    "requests": "keepAlive.requests",
    "lifetime": "keepAlive.time",
    "idle": "keepAlive.timeout",
    "keepalive_header_timeout": "keepAlive.timeout.header",
    "keepalive_min_timeout": "keepAlive.minTimeout",
    "buffering": "buffering.disable",
    "buffer_size": "buffering.bufferSize",
    "buffers": "buffering.buffers",
    "busy_buffers_size": "buffering.busyBuffersSize",
    "connect": "timeout.connect",
    "send": "timeout.send",
    "read": "timeout.read",
    "log_level": "rateLimit.logLevel",
    "status": "rateLimit.rejectCode",
    "dry_run": "rateLimit.dryRun",
    "balancing": "loadBalancingMethod",
    "key": "hashMethodKey",
    "connections": "keepAlive.connections",
    "memory": "zoneSize",
    "service_address": "useClusterIP",
}
"""How users know the fields of settings."""


def parse_policy(ask: Ask, key: Key) -> Read:
    """Read a policy."""
    policy = ask.read(key)
    if not isinstance(policy, api.Policy):
        return Read(None, (f"{key[0]} {key[1]}/{key[2]} cannot be read",))
    reader = _READERS.get(key[0])
    return reader(policy) if reader is not None else Read()


def rejection(ask: Ask, key: Key) -> Finding | None:
    """Say why a policy does not stand; None if it does."""
    found = ask(parse_policy, key)
    if found.problems:
        return Finding(Reason.POLICY_INVALID, "; ".join(found.problems))
    if key[0] == "ObservabilityPolicy":
        message = "spec.tracing: no exporter of traces is configured for the Gateway's data plane"
        return Finding(Reason.NGINX_PROXY_NOT_SET, message)
    if key[0] == "SnippetsPolicy" and (message := snippets.refused(ask, key[0])):
        return Finding(Reason.POLICY_INVALID, message)
    mine = set_fields(found.settings)
    for target in ask.read(key).targets:
        for rival in ask.read(policies_by_target(key[0], (target.kind, key[1], target.name))):
            if _age(ask, rival) >= _age(ask, key) or ask(rejection, rival) is not None:
                continue
            common = mine & set_fields(ask(parse_policy, rival).settings)
            if common:
                message = (
                    f"spec: {', '.join(sorted(_FIELDS.get(each, each) for each in common))}: "
                    f"set for {target.kind} {target.name} by {rival[2]} already, which is older "
                    "or the first by name"
                )
                return Finding(Reason.POLICY_CONFLICTED, message)
    return None


def accepted_policies(ask: Ask, which: tuple[str, Key]) -> tuple[Key, ...]:
    """Give the policies of kind ``which[0]`` that hold for an object, oldest first."""
    found = [key for key in ask.read(policies_by_target(*which)) if ask(rejection, key) is None]
    return tuple(sorted(found, key=lambda key: _age(ask, key)))


def set_fields(settings: Any) -> frozenset[str]:
    """Name the fields of settings that say something; lists add up and are none of them."""
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
