"""Load balancing: policies of clusters, and hash policies of routes."""

from __future__ import annotations

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.route.v3 import route_components_pb2 as components

from gatehouse.compiler.backends.envoy.unsupported import left_out
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.settings import UpstreamSettings

_Policy = components.RouteAction.HashPolicy


def policy(settings: UpstreamSettings) -> cluster_pb2.Cluster.LbPolicy:
    """Return Envoy's policy for a method in NGINX's syntax."""
    method, *words = settings.balancing.split() or ["round_robin"]
    return {
        "least_conn": cluster_pb2.Cluster.LEAST_REQUEST,
        "least_time": cluster_pb2.Cluster.LEAST_REQUEST,
        "ip_hash": cluster_pb2.Cluster.RING_HASH,
        "hash": cluster_pb2.Cluster.RING_HASH,
        "random": cluster_pb2.Cluster.LEAST_REQUEST if words else cluster_pb2.Cluster.RANDOM,
    }.get(method, cluster_pb2.Cluster.ROUND_ROBIN)


def unsupported(settings: UpstreamSettings) -> list[str]:
    """Return the settings that Envoy does not support."""
    reasons = {}
    if "least_time" in settings.balancing:
        reasons["loadBalancingMethod"] = (
            f"Envoy uses the endpoint with the fewest requests instead of {settings.balancing}"
        )
    if settings.balancing.startswith("hash") and _hash_policy(settings) is None:
        reasons["hashMethodKey"] = f"Envoy cannot hash ${_key(settings)}; using round robin"
    if settings.connections:
        reasons["keepAlive.connections"] = (
            "not supported by Envoy: connections are kept until their idle timeout"
        )
    return [
        left_out("UpstreamSettingsPolicy", settings.policies, field, why)
        for field, why in reasons.items()
    ]


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
    method = settings.balancing.partition(" ")[0]
    if method == "ip_hash":
        return _source()
    if method != "hash":
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
