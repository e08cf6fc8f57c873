"""Who asks for load balancers: ExternalLoadBalancers, and the settings of nlk."""

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
"""The types of load balancers that are ours in whole."""

TYPES = ("NginxPlus", *MACHINES)
"""The types of load balancers that we can keep in step."""


def load_balancer_sources(ask: Ask, _: str) -> tuple[Key, ...]:
    """Give the keys of everything that asks for a load balancer."""
    found: tuple[Key, ...] = ask.read(LOAD_BALANCERS)
    return tuple(key for key in found if key[0] != "ConfigMap" or key == NLK_CONFIG_KEY)


def spec_of(ask: Ask, key: Key) -> external_load_balancers.Spec | Finding:
    """Give what a source asks for, or why it cannot be followed."""
    found = ask.read(key)
    if isinstance(found, core.ConfigMap):
        return nlk_config.spec(found)
    if isinstance(found, meta.Malformed):
        return Finding(Reason.INVALID, found.message)
    if not isinstance(found, external_load_balancers.ExternalLoadBalancer):
        return Finding(Reason.INVALID, "it is gone")
    if found.spec.type not in TYPES:
        known = ", ".join(TYPES)
        message = f"spec.type: {found.spec.type!r} is not one of {known}"
        return Finding(Reason.UNSUPPORTED_TYPE, message)
    if found.spec.bind_address and placed_address(found.spec.bind_address) is None:
        message = f"spec.bindAddress: {found.spec.bind_address!r} is no IP address"
        return Finding(Reason.INVALID, message)
    return found.spec


def followed_namespaces(key: Key, spec: external_load_balancers.Spec) -> tuple[str, ...]:
    """Give the namespaces whose Services are meant; ``*`` for all."""
    return spec.services.namespaces or (key[1],)
