"""Response to gRPC calls that no backend answers: UNAVAILABLE in a trailers-only response."""

from __future__ import annotations

from gatehouse.compiler.backends.nginx import access_log, names
from gatehouse.compiler.backends.nginx.directives import Directive, block, simple_directive
from gatehouse.compiler.ir.access_log import LocalReason

_STATUS = "$gh_grpc_status"
_UNAVAILABLE = "14"

_FAILURES = {502: LocalReason.CONNECTION_FAILURE, 504: LocalReason.TIMEOUT}
"""NGINX's own statuses for a call that was forwarded, and their reasons."""


def grpc_status_map() -> Directive:
    """Return the map from a request's content type to the status; empty unless it is a gRPC
    call."""
    call = simple_directive('"~*^application/grpc(?:[+;]|$)"', f'"{_UNAVAILABLE}"')
    return block("map", ("$content_type", _STATUS), (call, simple_directive("default", '""')))


def unavailable_location() -> tuple[Directive, ...]:
    """Return the content of a location that leads to :func:`status_locations`."""
    return (
        simple_directive("error_page", "418", "=", names.UNAVAILABLE),
        simple_directive("return", "418"),
    )


def failure_directives() -> list[Directive]:
    """Return the directives that replace NGINX's own responses to failed calls.

    Such a response has a body and no trailers, which clients of gRPC's C core report as UNKNOWN.
    """
    return [
        simple_directive("error_page", str(status), "=", names.grpc_failure(status))
        for status in _FAILURES
    ]


def status_locations() -> tuple[Directive, ...]:
    """Return the locations that answer. A request that is not a gRPC call gets an HTTP status."""
    failures = (
        _location(names.grpc_failure(status), status, access_log.reason_variable(reason))
        for status, reason in _FAILURES.items()
    )
    return (_location(names.UNAVAILABLE, 503), *failures)


def _location(name: str, http_status: int, *reason: Directive) -> Directive:
    otherwise = simple_directive("return", str(http_status))
    return block(
        "location",
        (name,),
        (
            # NGINX would treat the end of a method's name as a file extension.
            block("types", (), ()),
            simple_directive("default_type", "application/grpc"),
            # NGINX omits a header with an empty value.
            simple_directive("add_header", "grpc-status", _STATUS, "always"),
            *reason,
            block("if", (f"({_STATUS}", "=", '"")'), (otherwise,)),
            simple_directive("return", "200"),
        ),
    )
