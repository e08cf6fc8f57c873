"""Types shared by the modules of routes."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gatehouse.compiler.backends.envoy.capabilities import Capabilities
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.authentication import Oidc


class ClusterProperties(msgspec.Struct, frozen=True):
    """The cluster properties that routes depend on; endpoints are excluded so that they do not
    regenerate routes."""

    protocol: str
    balancing: str = ""
    key: str = ""


class Context(msgspec.Struct, frozen=True):
    """Context of the routes of a virtual host."""

    clusters: Mapping[str, ir.Cluster]
    secrets: Mapping[str, ir_gateway.SecretFile]
    capabilities: Capabilities
    scheme: str = "http"
    """Scheme of client requests."""
    taken: Mapping[Oidc, str] = {}
    """Relying parties that cannot be served, each with the path that another one already uses."""


def cluster_properties(cluster: ir.Cluster | None) -> ClusterProperties | None:
    """Return the properties of a cluster that routes depend on; None without a cluster."""
    if cluster is None:
        return None
    settings = cluster.settings
    key = settings.key.name if settings.key is not None else ""
    return ClusterProperties(cluster.protocol, settings.balancing, key)
