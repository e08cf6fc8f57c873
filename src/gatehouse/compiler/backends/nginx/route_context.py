"""What the modules of actions give each other: pieces of a virtual host."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gatehouse.compiler.backends.nginx.capabilities import Capabilities
from gatehouse.compiler.backends.nginx.directives import Directive, Node
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.settings import ClientSettings

Clusters = Mapping[str, ir.Cluster]


class Body(msgspec.Struct, frozen=True):
    """The inside of a location, and what it needs around it."""

    inner: tuple[Node, ...]
    maps: tuple[Directive, ...] = ()
    locations: tuple[Directive, ...] = ()
    """Named locations that it leads to."""
    fixed: tuple[Directive, ...] = ()
    """Locations that NGINX is sent to by path: copies of requests."""


class Served(msgspec.Struct, frozen=True):
    """A route as locations. ``destination`` leads to it: a named location or a variable."""

    destination: str
    locations: tuple[Directive, ...]
    maps: tuple[Directive, ...] = ()
    direct: tuple[Node, ...] | None = None
    """The inside of its only location, to be put where no choice is left to make."""
    fixed: tuple[Directive, ...] = ()


class Guard(msgspec.Struct, frozen=True):
    """What lets nobody else into a location."""

    directives: tuple[Directive, ...] = ()
    asking: tuple[Directive, ...] = ()
    """Those that send a request elsewhere at a 401, which so must not be a backend's."""
    maps: tuple[Directive, ...] = ()
    told: tuple[tuple[str, str], ...] = ()
    """Names of headers for its backend, and of the variables that they hold."""
    cookie: str = ""
    """The variable of the cookies that its backend gets; empty for those that came."""
    added: tuple[Directive, ...] = ()
    """What the location that answers adds for clients."""
    locations: tuple[Directive, ...] = ()
    """Named locations that it leads to."""
    fixed: tuple[Directive, ...] = ()
    """Locations with a path of their own."""


class Context(msgspec.Struct, frozen=True):
    """What a route is served in."""

    scope: str
    clusters: Clusters
    capabilities: Capabilities
    client: ClientSettings = ClientSettings()
    """What its server has for clients already."""
    untold: tuple[str, ...] = ()
    """Headers that backends are not told."""
