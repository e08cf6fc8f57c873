"""Responses of NGINX itself to gRPC calls: trailers-only responses with a status.

Any other response has a body, which clients of gRPC's C core read as messages: they report UNKNOWN
or the status that stands for the HTTP status, by chance.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from gatehouse.compiler.backends.nginx import access_log, names, rate_limits
from gatehouse.compiler.backends.nginx.directives import (
    Directive,
    block,
    map_block,
    simple_directive,
)
from gatehouse.compiler.backends.nginx.route_context import NginxRouteContext, RoutePiece
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.access_log import LocalReason
from gatehouse.compiler.ir.authentication import ApiKeys, Basic, Jwt
from gatehouse.compiler.ir.grpc_status import grpc_status_of

_STATUS, _MESSAGE = "$gh_grpc_status", "$gh_grpc_message"

_UNAVAILABLE = 503
_NOT_FOUND = 404


class _Failure(msgspec.Struct, frozen=True):
    """A response of NGINX itself."""

    name: str
    """Named location."""
    http_status: int
    """Status for requests that are not gRPC calls."""
    message: str
    reason: LocalReason | None = None
    """None: the location before it sets the reason."""


_FAILURES = {
    401: ("the call has no valid credentials", LocalReason.AUTHENTICATION),
    403: ("the credentials of the call do not permit it", LocalReason.AUTHENTICATION),
    502: ("the connection to the backend failed", LocalReason.CONNECTION_FAILURE),
    504: ("the backend did not respond in time", LocalReason.TIMEOUT),
}
"""Statuses of NGINX for calls of a route."""


def grpc_status_map() -> Directive:
    """Return the map from a request's content type to UNAVAILABLE; empty unless it is a gRPC
    call. Locations set another status."""
    status = f'"{grpc_status_of(_UNAVAILABLE)}"'
    return map_block("$content_type", _STATUS, {'"~*^application/grpc(?:[+;]|$)"': status})


def unavailable_location() -> tuple[Directive, ...]:
    """Return the content of a location that leads to the status UNAVAILABLE."""
    return _answered(names.UNAVAILABLE)


def unmatched_locations() -> tuple[Directive, ...]:
    """Return the locations of a server without routes, which answers all requests."""
    return (
        block("location", ("/",), _answered(names.UNIMPLEMENTED)),
        *(_location(failure) for failure in _failures() if failure.name == names.UNIMPLEMENTED),
    )


def _answered(name: str) -> tuple[Directive, ...]:
    return (simple_directive("error_page", "418", "=", name), simple_directive("return", "418"))


def calls_piece(_context: NginxRouteContext, route: ir.Route) -> RoutePiece | None:
    """Return the directives that replace NGINX's own responses to rejected calls of a route."""
    if not route.serves_calls:
        return None
    status = rate_limits.rejection_status(route.settings.rates)
    limits = (simple_directive("error_page", str(status), "=", names.grpc_limit(status)),)
    checked = isinstance(route.authentication, Basic | Jwt | ApiKeys)
    statuses = (*([401] if checked else []), *([403] if checked or route.client_addresses else []))
    return RoutePiece(failures=(*(limits if status else ()), *map(_failure_directive, statuses)))


def connection_failures() -> Iterator[Directive]:
    """Yield the directives that replace NGINX's own responses to calls that no backend answers."""
    yield from map(_failure_directive, (502, 504))


def _failure_directive(status: int) -> Directive:
    return simple_directive("error_page", str(status), "=", names.grpc_failure(status))


def limit_locations(routes: Iterable[ir.Route]) -> tuple[Directive, ...]:
    """Return the locations that answer calls above the rate limits of routes."""
    limits = (route.settings.rates for route in routes if route.serves_calls)
    statuses = sorted({rate_limits.rejection_status(rates) for rates in limits} - {0})
    message = "the rate limit of the route is exceeded"
    return tuple(
        _location(_Failure(names.grpc_limit(status), status, message, LocalReason.RATE_LIMIT))
        for status in statuses
    )


def status_locations() -> tuple[Directive, ...]:
    """Return the locations that answer. A request that is not a gRPC call gets an HTTP status."""
    return tuple(map(_location, _failures()))


def _failures() -> Iterator[_Failure]:
    yield _Failure(names.UNAVAILABLE, _UNAVAILABLE, "no backend of the route is available")
    message = "no route matches the call"
    yield _Failure(names.UNIMPLEMENTED, _NOT_FOUND, message, LocalReason.NO_ROUTE)
    for status, (text, reason) in _FAILURES.items():
        yield _Failure(names.grpc_failure(status), status, text, reason)


def _location(failure: _Failure) -> Directive:
    otherwise = simple_directive("return", str(failure.http_status))
    reason = failure.reason
    return block(
        "location",
        (failure.name,),
        (
            # NGINX would treat the end of a method's name as a file extension.
            block("types", (), ()),
            simple_directive("default_type", "application/grpc"),
            # NGINX omits a header with an empty value.
            simple_directive("add_header", "grpc-status", _STATUS, "always"),
            simple_directive("add_header", "grpc-message", _MESSAGE, "always"),
            simple_directive("set", _MESSAGE, '""'),
            *((access_log.reason_variable(reason),) if reason is not None else ()),
            block("if", (f"({_STATUS}", "=", '"")'), (otherwise,)),
            simple_directive("set", _STATUS, f'"{grpc_status_of(failure.http_status)}"'),
            simple_directive("set", _MESSAGE, f'"{failure.message}"'),
            # Without a body, the headers end the response.
            simple_directive("return", "200"),
        ),
    )
