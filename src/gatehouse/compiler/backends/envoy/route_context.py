"""Types shared by the modules of routes."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gatehouse.compiler.backends.envoy.capabilities import EnvoyCapabilities
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.authentication import Oidc


class EnvoyRouteContext(msgspec.Struct, frozen=True):
    """Context of the routes of a virtual host."""

    clusters: Mapping[str, ir.Cluster]
    secrets: Mapping[str, ir_gateway.SecretFile]
    capabilities: EnvoyCapabilities
    scheme: str = "http"
    """Scheme of client requests."""
    keeps_slashes: bool = False
    """True: repeated and encoded slashes in paths stay as the client sent them."""
    taken: Mapping[Oidc, str] = {}
    """Relying parties that cannot be served, each with the path that another one already uses."""
