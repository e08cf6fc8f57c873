"""Types shared by the modules of actions: content of locations, guards, context."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gatehouse.compiler.backends.nginx.capabilities import NginxCapabilities
from gatehouse.compiler.backends.nginx.directives import Directive, DirectiveNode
from gatehouse.compiler.backends.nginx.traces import NOT_TRACED, LocationTrace, TraceContext
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.settings import ClientSettings

_Clusters = Mapping[str, ir.Cluster]


class Body(msgspec.Struct, frozen=True):
    """Content of a location, and the directives that it needs around it."""

    inner: tuple[DirectiveNode, ...]
    maps: tuple[Directive, ...] = ()
    locations: tuple[Directive, ...] = ()
    """Named locations that it leads to."""
    subrequests: tuple[Directive, ...] = ()
    """Internal locations of mirrors and authorization servers, which it leads to."""
    fixed: tuple[Directive, ...] = ()
    """Locations that are written even if no directive has their name: those with fixed paths, which
    several routes may need, and those whose name contains variables where it is used."""


class ServedRoute(msgspec.Struct, frozen=True):
    """A route as locations. ``destination`` leads to it: a named location or a variable."""

    destination: str
    locations: tuple[Directive, ...]
    maps: tuple[Directive, ...] = ()
    direct: tuple[DirectiveNode, ...] | None = None
    """Content of its only location, for use where no choice is left."""
    subrequests: tuple[Directive, ...] = ()
    fixed: tuple[Directive, ...] = ()
    trace: LocationTrace = NOT_TRACED


class Guard(msgspec.Struct, frozen=True):
    """Checks of a location: authentication and limits."""

    directives: tuple[Directive, ...] = ()
    auth_directives: tuple[Directive, ...] = ()
    """Directives that handle 401 by another location, so that it must not be a backend's 401."""
    external: tuple[Directive, ...] = ()
    """Directives of a location of their own, before all others: the check by an authorization
    server."""
    permitted: tuple[Directive, ...] = ()
    """Directives at the start of the location that ``external`` leads to."""
    maps: tuple[Directive, ...] = ()
    claim_headers: tuple[tuple[str, str], ...] = ()
    """Names of headers for the backend, with the variables of their values."""
    cookie: str = ""
    """Variable with the cookies for the backend; empty: those of the client."""
    added: tuple[Directive, ...] = ()
    """Directives that add response headers for clients."""
    locations: tuple[Directive, ...] = ()
    """Named locations that it leads to."""
    subrequests: tuple[Directive, ...] = ()
    """Internal locations of authorization servers."""
    fixed: tuple[Directive, ...] = ()
    """Locations with fixed paths."""


class NginxRouteContext(msgspec.Struct, frozen=True):
    """Context of a route."""

    scope: str
    clusters: _Clusters
    capabilities: NginxCapabilities
    client: ClientSettings = ClientSettings()
    """Client settings that the server already has."""
    removed_headers: tuple[str, ...] = ()
    """Default headers that are not sent to backends."""
    traces: TraceContext | None = None
    """Attributes of all spans; None: no request is traced."""
