"""The answer to gRPC calls that have no backend: the status UNAVAILABLE, in trailers alone."""

from __future__ import annotations

from gatehouse.compiler.backends.nginx import names
from gatehouse.compiler.backends.nginx.directives import Directive, block, simple

_STATUS = "$gh_grpc_status"
_UNAVAILABLE = "14"


def definition() -> Directive:
    """Return the map from a request's content type to the status; empty if it is no call."""
    call = simple('"~*^application/grpc(?:[+;]|$)"', f'"{_UNAVAILABLE}"')
    return block("map", ("$content_type", _STATUS), (call, simple("default", '""')))


def unavailable() -> tuple[Directive, ...]:
    """Return the inside of a location that leads to :func:`location`."""
    return (simple("error_page", "418", "=", names.UNAVAILABLE), simple("return", "418"))


def location() -> Directive:
    """Return the location that answers; a request that is no call gets the status 503."""
    return block(
        "location",
        (names.UNAVAILABLE,),
        (
            # NGINX would take the end of a method's name for that of a file.
            block("types", (), ()),
            simple("default_type", "application/grpc"),
            # NGINX leaves out a header without a value.
            simple("add_header", "grpc-status", _STATUS, "always"),
            block("if", (f"({_STATUS}", "=", '"")'), (simple("return", "503"),)),
            simple("return", "200"),
        ),
    )
