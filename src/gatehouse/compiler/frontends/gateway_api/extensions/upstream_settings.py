"""UpstreamSettingsPolicy in the IR's form. Pure."""

from __future__ import annotations

import msgspec

from gatehouse.apis import nginx_gateway as api
from gatehouse.compiler.frontends.gateway_api.extensions import nginx_values
from gatehouse.compiler.frontends.gateway_api.extensions.traffic_policies import Read, Reader
from gatehouse.compiler.ir import settings as ir


class UpstreamPolicy(msgspec.Struct, frozen=True):
    """What holds for the clusters of a Service."""

    settings: ir.UpstreamSettings = ir.UpstreamSettings()
    service_address: bool | None = None
    """Whether the Service's own address is asked instead of its endpoints'."""


def upstream_settings(policy: api.UpstreamSettingsPolicy) -> Read:
    """Read an UpstreamSettingsPolicy."""
    read, spec, kept = Reader(), policy.spec, policy.spec.keep_alive
    method = spec.load_balancing_method or ""
    key = None
    if spec.hash_method_key is not None:
        key = read("hashMethodKey", nginx_values.attribute, spec.hash_method_key)
    if method.startswith("hash") and spec.hash_method_key is None:
        read.problems.append(f"spec.hashMethodKey: is needed for loadBalancingMethod {method}")
    memory = read("zoneSize", nginx_values.size, spec.zone_size)
    if memory is not None and memory < 32 << 10:
        read.problems.append("spec.zoneSize: NGINX needs 32k or more")
    settings = ir.UpstreamSettings(
        balancing=method,
        key=key,
        connections=kept.connections,
        requests=kept.requests,
        lifetime=read("keepAlive.time", nginx_values.time, kept.time),
        idle=read("keepAlive.timeout", nginx_values.time, kept.timeout),
        memory=memory,
    )
    return read.result(UpstreamPolicy(settings, spec.use_cluster_ip))
