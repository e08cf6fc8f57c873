"""Types shared by the modules of routes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from envoy.config.core.v3 import extension_pb2
from envoy.config.route.v3 import route_components_pb2 as components

from gatehouse.compiler.backends.envoy.capabilities import EnvoyCapabilities
from gatehouse.compiler.backends.route_features import RouteFeature
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.access_log import LocalReason
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
    conflicts: Mapping[Oidc, str] = {}
    """Relying parties that cannot be served, each with the reason."""
    counter: str = ""
    """``host:port`` of the rate limit service; empty: none."""
    hostname: str = ""
    """Hostname of the virtual host, if it is exact and has a scope of its own."""


class RequestCase(msgspec.Struct, frozen=True):
    """A kind of requests: its additional conditions and its response."""

    conditions: tuple[components.HeaderMatcher, ...] = ()
    preflight: bool = False
    """True if these are preflight requests, which the proxy answers itself."""
    labels: tuple[tuple[str, str], ...] = ()
    """Headers added to the response, in Envoy's format."""
    hidden: tuple[str, ...] = ()
    """Headers of a backend's response that are removed."""


class EarlyRejection(msgspec.Struct, frozen=True):
    """Response to the requests that meet a condition, before any filter runs."""

    condition: components.HeaderMatcher
    status: int
    reason: LocalReason


class EnvoyPiece(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a route's configuration that a feature contributes."""

    filters: Sequence[extension_pb2.TypedExtensionConfig] = ()
    """Filters of the route, in their order. Only the last one may wait for a response."""
    idempotent: Sequence[extension_pb2.TypedExtensionConfig] = ()
    """Filters for requests with idempotent methods only."""
    fields: components.Route = components.Route()
    """Metadata, tracing, and configurations of filters that are in every chain."""
    rejections: Sequence[EarlyRejection] = ()
    cases: Sequence[RequestCase] = ()
    """Kinds of requests, in evaluation order. At most one feature has them."""


EnvoyFeature = RouteFeature[EnvoyRouteContext, EnvoyPiece]
