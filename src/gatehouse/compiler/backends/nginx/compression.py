"""Response compression with gzip, of all ports or of a route."""

from __future__ import annotations

from gatehouse.compiler.backends.nginx import quoting
from gatehouse.compiler.backends.nginx.directives import (
    Directive,
    optional_directives,
    simple_directive,
    switch,
)
from gatehouse.compiler.backends.nginx.route_context import NginxRouteContext, RoutePiece
from gatehouse.compiler.ir.http import Route
from gatehouse.compiler.ir.settings import HTML, Compression


def compression_piece(_context: NginxRouteContext, route: Route) -> RoutePiece | None:
    """Return the directives beside the answer of a route that differs from its data plane."""
    settings = route.settings.compression
    if settings.enabled is None:
        return None
    off = simple_directive("gzip", "off")
    return RoutePiece(added=tuple(gzip(settings)) if settings.enabled else (off,))


def gzip(compression: Compression) -> list[Directive]:
    """Return the directives that compress responses."""
    own = compression.nginx
    numbers = {"gzip_comp_level": compression.level, "gzip_min_length": compression.min_length}
    buffers = () if own.buffers is None else (str(own.buffers.number), str(own.buffers.size))
    lists = {
        # NGINX warns of a mention of the type that it always compresses.
        "gzip_types": (quoting.quote_literal(name) for name in compression.types if name != HTML),
        "gzip_buffers": buffers,
        "gzip_vary": () if own.vary is None else (switch(own.vary),),
        "gzip_http_version": map(quoting.word, filter(None, [own.http_version])),
        "gzip_disable": map(quoting.quote_literal, own.disabled),
        "gzip_proxied": map(quoting.word, own.proxied),
    }
    words_by_name = {name: tuple(words) for name, words in lists.items()}
    return [
        simple_directive("gzip", "on"),
        *optional_directives(numbers),
        *(simple_directive(name, *words) for name, words in words_by_name.items() if words),
    ]
