"""Response compression with gzip, of all ports or of a route."""

from __future__ import annotations

from gatehouse.compiler.backends.nginx import quoting
from gatehouse.compiler.backends.nginx.directives import Directive, simple_directive
from gatehouse.compiler.backends.nginx.route_context import NginxRouteContext, RoutePiece
from gatehouse.compiler.ir.http import Route
from gatehouse.compiler.ir.settings import Compression

_ALWAYS = "text/html"
"""Type that NGINX compresses in any case. It warns of another mention."""


def compression_piece(_context: NginxRouteContext, route: Route) -> RoutePiece | None:
    """Return the directives beside the answer of a route that differs from its data plane."""
    settings = route.settings.compression
    if settings.enabled is None:
        return None
    off = simple_directive("gzip", "off")
    return RoutePiece(added=tuple(gzip(settings)) if settings.enabled else (off,))


def gzip(compression: Compression) -> list[Directive]:
    """Return the directives that compress responses."""
    directives = [simple_directive("gzip", "on")]
    if compression.level is not None:
        directives.append(simple_directive("gzip_comp_level", str(compression.level)))
    if compression.min_length is not None:
        directives.append(simple_directive("gzip_min_length", str(compression.min_length)))
    types = [quoting.quote_literal(name) for name in compression.types if name != _ALWAYS]
    if types:
        directives.append(simple_directive("gzip_types", *types))
    if compression.nginx.buffers is not None:
        directives.append(
            simple_directive(
                "gzip_buffers",
                str(compression.nginx.buffers.number),
                str(compression.nginx.buffers.size),
            )
        )
    if compression.nginx.vary is not None:
        directives.append(simple_directive("gzip_vary", "on" if compression.nginx.vary else "off"))
    if compression.nginx.http_version:
        directives.append(
            simple_directive("gzip_http_version", quoting.word(compression.nginx.http_version))
        )
    if compression.nginx.disabled:
        directives.append(
            simple_directive(
                "gzip_disable",
                *(quoting.quote_literal(pattern) for pattern in compression.nginx.disabled),
            )
        )
    if compression.nginx.proxied:
        directives.append(
            simple_directive(
                "gzip_proxied",
                *(quoting.word(condition) for condition in compression.nginx.proxied),
            )
        )
    return directives
