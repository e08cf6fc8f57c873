"""Response to gRPC calls without a backend: status UNAVAILABLE in a trailers-only response."""

from __future__ import annotations

from gatehouse.compiler.backends.nginx import names
from gatehouse.compiler.backends.nginx.directives import Directive, block, simple

_STATUS = "$gh_grpc_status"
_UNAVAILABLE = "14"


def definition() -> Directive:
    """Return the map from a request's content type to the status; empty unless it is a gRPC
    call."""
    call = simple('"~*^application/grpc(?:[+;]|$)"', f'"{_UNAVAILABLE}"')
    return block("map", ("$content_type", _STATUS), (call, simple("default", '""')))


def unavailable() -> tuple[Directive, ...]:
    """Return the content of a location that leads to :func:`location`."""
    return (simple("error_page", "418", "=", names.UNAVAILABLE), simple("return", "418"))


def location() -> Directive:
    """Return the location that answers. A request that is not a gRPC call gets the status 503."""
    return block(
        "location",
        (names.UNAVAILABLE,),
        (
            # NGINX would treat the end of a method's name as a file extension.
            block("types", (), ()),
            simple("default_type", "application/grpc"),
            # NGINX omits a header with an empty value.
            simple("add_header", "grpc-status", _STATUS, "always"),
            block("if", (f"({_STATUS}", "=", '"")'), (simple("return", "503"),)),
            simple("return", "200"),
        ),
    )
