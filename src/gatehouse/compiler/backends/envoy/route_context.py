"""What a route is served in."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gatehouse.compiler.backends.envoy.capabilities import Capabilities
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.authentication import Oidc


class Shown(msgspec.Struct, frozen=True):
    """What of a cluster is seen where it is used; its endpoints are not."""

    protocol: str
    balancing: str = ""
    key: str = ""


class Context(msgspec.Struct, frozen=True):
    """What the routes of a virtual host are served in."""

    clusters: Mapping[str, ir.Cluster]
    secrets: Mapping[str, ir_gateway.SecretFile]
    capabilities: Capabilities
    scheme: str = "http"
    """How clients come."""
    taken: Mapping[Oidc, str] = {}
    """Of the virtual host, whose paths another one has; and the path."""


def shown(cluster: ir.Cluster | None) -> Shown | None:
    """Give what of a cluster its users see; None where there is none."""
    if cluster is None:
        return None
    settings = cluster.settings
    key = settings.key.name if settings.key is not None else ""
    return Shown(cluster.protocol, settings.balancing, key)
