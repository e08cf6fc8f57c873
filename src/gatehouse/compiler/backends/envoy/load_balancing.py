"""Which endpoint is next: as a cluster's policy, and what of a request a hash is made of."""

from __future__ import annotations

from typing import Any

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.route.v3 import route_components_pb2 as components

from gatehouse.compiler.backends.envoy.unsupported import left_out
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.settings import UpstreamSettings

_Policy = components.RouteAction.HashPolicy


def policy(settings: UpstreamSettings) -> int:
    """Give Envoy's policy for NGINX's word."""
    method, *words = settings.balancing.split() or ["round_robin"]
    found: int = {
        "least_conn": cluster_pb2.Cluster.LEAST_REQUEST,
        "least_time": cluster_pb2.Cluster.LEAST_REQUEST,
        "ip_hash": cluster_pb2.Cluster.RING_HASH,
        "hash": cluster_pb2.Cluster.RING_HASH,
        "random": cluster_pb2.Cluster.LEAST_REQUEST if words else cluster_pb2.Cluster.RANDOM,
    }.get(method, cluster_pb2.Cluster.ROUND_ROBIN)
    return found


def unsupported(settings: UpstreamSettings) -> list[str]:
    """Say what of the settings Envoy leaves out."""
    found = {}
    if "least_time" in settings.balancing:
        found["loadBalancingMethod"] = (
            f"Envoy takes the endpoint with the fewest requests instead of {settings.balancing}"
        )
    if settings.balancing.startswith("hash") and _hashed(settings) is None:
        found["hashMethodKey"] = (
            f"Envoy cannot hash ${_key(settings)}, and takes endpoints by their turn"
        )
    if settings.connections:
        found["keepAlive.connections"] = "Envoy keeps as many as there were, until they are idle"
    return [
        left_out("UpstreamSettingsPolicy", settings.policies, field, why)
        for field, why in found.items()
    ]


def hash_policies(clusters: list[ir.Cluster]) -> list[Any]:
    """Give what of a request decides about the endpoints of the clusters that hash."""
    found: list[Any] = []
    for cluster in clusters:
        made = _hashed(cluster.settings)
        if made is not None and made not in found:
            found.append(made)
    return found


def _key(settings: UpstreamSettings) -> str:
    return settings.key.name if settings.key is not None else "request_uri"


def _hashed(settings: UpstreamSettings) -> Any:
    """Give the policy of a cluster's hash; None where it has none."""
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


def _source() -> Any:
    return _Policy(connection_properties=_Policy.ConnectionProperties(source_ip=True))
