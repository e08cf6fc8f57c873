"""Sources of load balancers: ExternalLoadBalancers, and the ConfigMap ``nlk-config``."""

from __future__ import annotations

from gatehouse.apis import core, external_load_balancers, meta
from gatehouse.compiler.frontends.external_load_balancer import nlk_config
from gatehouse.compiler.frontends.external_load_balancer.addresses import placed_address
from gatehouse.compiler.frontends.external_load_balancer.findings import Finding, Reason
from gatehouse.compiler.frontends.external_load_balancer.inputs import (
    LOAD_BALANCERS,
    NLK_CONFIG_KEY,
)
from gatehouse.incremental.query import Ask, Key

MACHINES = ("Nginx", "Envoy")
"""Types of load balancers whose whole configuration an agent on the machine manages."""

TYPES = ("NginxPlus", *MACHINES)
"""Supported types of load balancers."""


def load_balancer_sources(ask: Ask, _: str) -> tuple[Key, ...]:
    """Return the keys of all sources of load balancers."""
    found: tuple[Key, ...] = ask.read(LOAD_BALANCERS)
    return tuple(key for key in found if key[0] != "ConfigMap" or key == NLK_CONFIG_KEY)


def spec_of(ask: Ask, key: Key) -> external_load_balancers.Spec | Finding:
    """Return the spec of a source, or why it is invalid."""
    found = ask.read(key)
    if isinstance(found, core.ConfigMap):
        return nlk_config.spec(found)
    if isinstance(found, meta.Malformed):
        return Finding(Reason.INVALID, found.message)
    if not isinstance(found, external_load_balancers.ExternalLoadBalancer):
        return Finding(Reason.INVALID, "object not found")
    if found.spec.type not in TYPES:
        known = ", ".join(TYPES)
        message = f"spec.type: {found.spec.type!r} must be one of {known}"
        return Finding(Reason.UNSUPPORTED_TYPE, message)
    if found.spec.bind_address and placed_address(found.spec.bind_address) is None:
        message = f"spec.bindAddress: {found.spec.bind_address!r} must be an IP address"
        return Finding(Reason.INVALID, message)
    return found.spec


def followed_namespaces(key: Key, spec: external_load_balancers.Spec) -> tuple[str, ...]:
    """Return the namespaces whose Services are selected; ``*`` for all."""
    return spec.services.namespaces or (key[1],)
