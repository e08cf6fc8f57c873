"""Translation of UpstreamSettingsPolicy to IR. No I/O."""

from __future__ import annotations

import msgspec

from gatehouse.apis import nginx_gateway as api
from gatehouse.compiler.frontends.gateway_api.extensions import nginx_values
from gatehouse.compiler.frontends.gateway_api.extensions.traffic_policies import (
    MAX_ZONE_BYTES,
    FieldParser,
    ParsedPolicy,
)
from gatehouse.compiler.ir import settings as ir

MAX_IDLE_CONNECTIONS = 32768
"""Maximum number of idle connections to a backend. NGINX allocates memory for all of them in each
worker when it starts: 2,147,483,647 end it."""


class UpstreamPolicy(msgspec.Struct, frozen=True):
    """Settings for the clusters of a Service."""

    settings: ir.UpstreamSettings = ir.UpstreamSettings()
    service_address: bool | None = None
    """Connect to the Service's cluster IP instead of its endpoints; None if not set."""


def upstream_settings(policy: api.UpstreamSettingsPolicy) -> ParsedPolicy:
    """Translate an UpstreamSettingsPolicy."""
    parse, spec, keep_alive = FieldParser(), policy.spec, policy.spec.keep_alive
    method = spec.load_balancing_method or ""
    key = None
    if spec.hash_method_key is not None:
        key = parse("hashMethodKey", nginx_values.attribute, spec.hash_method_key)
    if method.startswith("hash") and spec.hash_method_key is None:
        parse.problems.append(f"spec.hashMethodKey: must be set for loadBalancingMethod {method}")
    memory = parse("zoneSize", nginx_values.size, spec.zone_size)
    if memory is not None and memory < 32 << 10:
        parse.problems.append("spec.zoneSize: must be at least 32k")
    elif memory is not None and memory > MAX_ZONE_BYTES:
        parse.problems.append("spec.zoneSize: must be at most 256m")
    if (keep_alive.connections or 0) > MAX_IDLE_CONNECTIONS:
        parse.problems.append(f"spec.keepAlive.connections: must be at most {MAX_IDLE_CONNECTIONS}")
    settings = ir.UpstreamSettings(
        balancing=method,
        key=key,
        connections=keep_alive.connections,
        requests=keep_alive.requests,
        lifetime=parse("keepAlive.time", nginx_values.time, keep_alive.time),
        idle=parse("keepAlive.timeout", nginx_values.time, keep_alive.timeout),
        memory=memory,
    )
    return parse.result(UpstreamPolicy(settings, spec.use_cluster_ip))
