"""Load balancing: policies of clusters, and hash policies of routes."""

from __future__ import annotations

from envoy.config.cluster.v3 import circuit_breaker_pb2, cluster_pb2
from envoy.config.route.v3 import route_components_pb2 as components

from gatehouse.compiler.backends.envoy import retries
from gatehouse.compiler.backends.envoy.protobufs import wrap_number
from gatehouse.compiler.backends.envoy.route_context import EnvoyRouteContext
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.settings import UpstreamSettings
from gatehouse.compiler.ir.unsupported import UnsupportedSetting
from gatehouse.dataplane.origin import NO_ORIGIN

_Policy = components.RouteAction.HashPolicy

_POLICIES = {
    "round-robin": cluster_pb2.Cluster.ROUND_ROBIN,
    "least-connections": cluster_pb2.Cluster.LEAST_REQUEST,
    "least-time": cluster_pb2.Cluster.LEAST_REQUEST,
    "client-hash": cluster_pb2.Cluster.RING_HASH,
    "hash": cluster_pb2.Cluster.RING_HASH,
    # Envoy chooses between two random endpoints.
    "random": cluster_pb2.Cluster.LEAST_REQUEST,
}


def endpoint_policy(settings: UpstreamSettings) -> cluster_pb2.Cluster.LbPolicy:
    """Return Envoy's policy for the choice of endpoints."""
    drawn = (
        settings.effective_balancing.method == "random" and not settings.effective_balancing.choice
    )
    return cluster_pb2.Cluster.RANDOM if drawn else _POLICIES[settings.effective_balancing.method]


def set_limits(breakers: circuit_breaker_pb2.CircuitBreakers, settings: UpstreamSettings) -> None:
    """Set the limits of a cluster and of its endpoints in place of those that all have."""
    if settings.breaker is not None:
        thresholds, limits = breakers.thresholds[0], settings.breaker
        for field, limit in (
            (thresholds.max_connections, limits.connections),
            (thresholds.max_pending_requests, limits.pending),
            (thresholds.max_requests, limits.requests),
        ):
            if limit is not None:
                field.value = limit
    if settings.endpoint_connections is not None:
        most = wrap_number(settings.endpoint_connections)
        breakers.per_host_thresholds.add(max_connections=most)


def _unsupported_balancing(settings: UpstreamSettings) -> list[UnsupportedSetting]:
    """Return the settings that Envoy does not support."""
    reasons = {}
    if settings.effective_balancing.timed:
        reasons["balancing"] = (
            "Envoy does not compare response times; using the endpoint with the fewest requests"
        )
    if settings.effective_balancing.method == "hash" and _hash_policy(settings) is None:
        reasons["key"] = f"Envoy cannot hash ${_key(settings)}; using round robin"
    if settings.connections:
        reasons["connections"] = (
            "not supported by Envoy: connections are kept until their idle timeout"
        )
    if settings.nginx.memory and settings.source("nginx.memory") != NO_ORIGIN:
        reasons["nginx.memory"] = "Envoy shares no memory between processes"
    return [UnsupportedSetting(settings.source(field), reason) for field, reason in reasons.items()]


def unsupported_upstream_settings(
    context: EnvoyRouteContext, route: ir.Route
) -> list[UnsupportedSetting]:
    """Return the settings of the clusters of a route that Envoy does not support."""
    findings: list[UnsupportedSetting] = []
    for name in sorted(route.clusters):
        if name in context.clusters:
            settings = context.clusters[name].settings
            findings += _unsupported_balancing(settings)
            findings += retries.unsupported_budget_interval(settings)
    return findings


def hash_policies(clusters: list[ir.Cluster]) -> list[components.RouteAction.HashPolicy]:
    """Return the hash policies of the clusters that use hashing, without duplicates."""
    policies: list[components.RouteAction.HashPolicy] = []
    for cluster in clusters:
        proto = _hash_policy(cluster.settings)
        if proto is not None and proto not in policies:
            policies.append(proto)
    return policies


def _key(settings: UpstreamSettings) -> str:
    return settings.key.name if settings.key is not None else "request_uri"


def _hash_policy(settings: UpstreamSettings) -> components.RouteAction.HashPolicy | None:
    """Return the hash policy of a cluster; None if it has none or Envoy does not support its
    key."""
    if settings.effective_balancing.method == "client-hash":
        return _source()
    if settings.effective_balancing.method != "hash":
        return None
    key = _key(settings)
    if key in ("remote_addr", "binary_remote_addr"):
        return _source()
    if key in ("request_uri", "uri"):
        return _Policy(header=_Policy.Header(header_name=":path"))
    if key in ("host", "http_host"):
        return _Policy(header=_Policy.Header(header_name=":authority"))
    kind, _, name = key.partition("_")
    match kind:
        case "http":
            return _Policy(header=_Policy.Header(header_name=name.replace("_", "-")))
        case "cookie":
            return _Policy(cookie=_Policy.Cookie(name=name))
        case "arg":
            return _Policy(query_parameter=_Policy.QueryParameter(name=name))
    return None


def _source() -> components.RouteAction.HashPolicy:
    return _Policy(connection_properties=_Policy.ConnectionProperties(source_ip=True))
