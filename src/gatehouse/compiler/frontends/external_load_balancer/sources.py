"""Sources of load balancers: ExternalLoadBalancers, and the ConfigMaps of nlk."""

from __future__ import annotations

from gatehouse.apis import core, external_load_balancers, meta
from gatehouse.compiler.frontends.external_load_balancer import nlk_config
from gatehouse.compiler.frontends.external_load_balancer.addresses import placed_address
from gatehouse.compiler.frontends.external_load_balancer.findings import (
    LoadBalancerFinding,
    LoadBalancerReason,
)
from gatehouse.compiler.frontends.external_load_balancer.inputs import (
    LOAD_BALANCERS,
)
from gatehouse.incremental.query import Ask, Key

MACHINES = ("Nginx", "Envoy")
"""Types of load balancers whose whole configuration an agent on the machine manages."""

TYPES = ("NginxPlus", *MACHINES)
"""Supported types of load balancers."""


def load_balancer_sources(ask: Ask) -> tuple[Key, ...]:
    """Return the keys of all sources of load balancers."""
    candidates: tuple[Key, ...] = ask.read(LOAD_BALANCERS)
    return tuple(key for key in candidates if key[0] != "ConfigMap" or _is_nlk(ask, key))


def _is_nlk(ask: Ask, key: Key) -> bool:
    return nlk_config.is_nlk_config(key, ask.read(key))


def nlk_version(ask: Ask, key: Key) -> str:
    """Return the generation of nlk that a source belongs to; empty for other sources."""
    config = ask.read(key)
    return nlk_config.nlk_generation(config).version if isinstance(config, core.ConfigMap) else ""


def spec_of(ask: Ask, key: Key) -> external_load_balancers.LoadBalancerSpec | LoadBalancerFinding:
    """Return the spec of a source, or why it is invalid."""
    source = ask.read(key)
    if isinstance(source, core.ConfigMap):
        return nlk_config.nlk_generation(source).read(source)
    if isinstance(source, meta.Malformed):
        return LoadBalancerFinding(LoadBalancerReason.INVALID, source.message)
    if not isinstance(source, external_load_balancers.ExternalLoadBalancer):
        return LoadBalancerFinding(LoadBalancerReason.INVALID, "object not found")
    if source.spec.type not in TYPES:
        known = ", ".join(TYPES)
        message = f"spec.type: {source.spec.type!r} must be one of {known}"
        return LoadBalancerFinding(LoadBalancerReason.UNSUPPORTED_TYPE, message)
    if source.spec.bind_address and placed_address(source.spec.bind_address) is None:
        message = f"spec.bindAddress: {source.spec.bind_address!r} must be an IP address"
        return LoadBalancerFinding(LoadBalancerReason.INVALID, message)
    return source.spec


def followed_namespaces(
    key: Key, spec: external_load_balancers.LoadBalancerSpec
) -> tuple[str, ...]:
    """Return the namespaces whose Services are selected; ``*`` for all."""
    return spec.services.namespaces or (key[1],)
