"""Translation of UpstreamSettingsPolicy to IR. No I/O."""

from __future__ import annotations

from gatehouse.apis import nginx_gateway as api
from gatehouse.apis.resource_limits import ResourceLimits
from gatehouse.compiler.frontends.gateway_api.extensions import nginx_values
from gatehouse.compiler.frontends.gateway_api.extensions.policy_fields import (
    FieldParser,
    ParsedPolicy,
    TrafficSettings,
)
from gatehouse.compiler.ir import settings as ir
from gatehouse.compiler.ir.proxy_settings import NginxUpstreamSettings
from gatehouse.compiler.ir.settings import Balancing

UPSTREAM_FIELDS = {
    "upstream.balancing": "loadBalancingMethod",
    "upstream.key": "hashMethodKey",
    "upstream.connections": "keepAlive.connections",
    "upstream.requests": "keepAlive.requests",
    "upstream.lifetime": "keepAlive.time",
    "upstream.idle": "keepAlive.timeout",
    "upstream.nginx.memory": "zoneSize",
    "service_address": "useClusterIP",
}
"""Paths of fields of the IR, and the fields of an UpstreamSettingsPolicy that set them."""

_METHODS = {
    "round_robin": Balancing(),
    "least_conn": Balancing("least-connections"),
    "ip_hash": Balancing("client-hash"),
    "hash": Balancing("hash"),
    "hash consistent": Balancing("hash", consistent=True),
    "random": Balancing("random"),
    "random two": Balancing("random", choice="any"),
    "random two least_conn": Balancing("random", choice="least-connections"),
    "random two least_time=header": Balancing("random", choice="least-time", response="header"),
    "random two least_time=last_byte": Balancing("random", choice="least-time", response="whole"),
    "least_time header": Balancing("least-time", response="header"),
    "least_time last_byte": Balancing("least-time", response="whole"),
    "least_time header inflight": Balancing("least-time", response="header", in_flight=True),
    "least_time last_byte inflight": Balancing("least-time", response="whole", in_flight=True),
}


def upstream_settings(policy: api.UpstreamSettingsPolicy, limits: ResourceLimits) -> ParsedPolicy:
    """Translate an UpstreamSettingsPolicy."""
    parse, spec, keep_alive = FieldParser(limits), policy.spec, policy.spec.keep_alive
    method = spec.load_balancing_method or ""
    key = None
    if spec.hash_method_key is not None:
        key = parse("hashMethodKey", nginx_values.attribute, spec.hash_method_key)
    if method.startswith("hash") and spec.hash_method_key is None:
        parse.problems.append(f"spec.hashMethodKey: must be set for loadBalancingMethod {method}")
    memory = parse("zoneSize", nginx_values.size, spec.zone_size)
    if memory is not None and memory < 32 << 10:
        parse.problems.append("spec.zoneSize: must be at least 32k")
    parse.limit("zoneSize", "zoneBytes", memory, spec.zone_size)
    parse.limit("keepAlive.connections", "keepAliveConnections", keep_alive.connections)
    settings = ir.UpstreamSettings(
        balancing=_METHODS.get(method),
        key=key,
        connections=keep_alive.connections,
        requests=parse(
            UPSTREAM_FIELDS["upstream.requests"], nginx_values.parse_count, keep_alive.requests
        ),
        lifetime=parse(
            UPSTREAM_FIELDS["upstream.lifetime"], nginx_values.parse_nginx_seconds, keep_alive.time
        ),
        idle=parse(
            UPSTREAM_FIELDS["upstream.idle"], nginx_values.parse_nginx_seconds, keep_alive.timeout
        ),
        nginx=NginxUpstreamSettings(memory=memory),
    )
    return parse.result(TrafficSettings(upstream=settings, service_address=spec.use_cluster_ip))
