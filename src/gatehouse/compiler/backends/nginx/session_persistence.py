"""Session persistence: the session selects the endpoint by consistent hashing."""

from __future__ import annotations

import msgspec

from gatehouse.compiler.backends.failures import InvalidValueError, served_without
from gatehouse.compiler.backends.nginx import functions, quoting
from gatehouse.compiler.backends.nginx.directives import Directive, simple_directive
from gatehouse.compiler.backends.nginx.header_variables import request_header
from gatehouse.compiler.backends.nginx.route_context import (
    UPSTREAM,
    NginxRouteContext,
    RoutePiece,
    SharedUpstream,
    definitions,
)
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.sessions import policy_sessions, without_sessions
from gatehouse.compiler.ir.unsupported import Unsupported, UnsupportedSetting

SESSION = "gh_session"
"""Variable with the session of a request: that of the client, or a new one."""

_SOURCE, _NAME, _TEXT = "gh_session_source", "gh_session_name", "gh_session_text"
"""Arguments: the session that the client sent, the name of its cookie, the header for a new one."""

_VALID = "~^[A-Za-z0-9._-]{1,128}$"

# No header contains a line feed.
_COOKIE = "~^([^\\n]*)\\n(?:|(?:[^;]*;)+?\\s*)\\1=(?<gh_cookie>[^;]*)"

SESSION_DEFINITIONS = (
    *map(functions.argument, (_SOURCE, _NAME, _TEXT)),
    functions.function(
        f'"${{{_NAME}}}\\n${{http_cookie}}"',
        "gh_session_cookie",
        (_COOKIE, "$gh_cookie"),
        ("default", '""'),
    ),
    functions.function(f"${_SOURCE}", SESSION, (_VALID, f"${_SOURCE}"), ("default", "$request_id")),
    functions.function(f"${_SOURCE}", "gh_session_begun", (_VALID, '""'), ("default", f"${_TEXT}")),
)
"""Directives of ``http`` that locations with session persistence need."""

_NEEDS = definitions(SESSION_DEFINITIONS)


def session_piece(context: NginxRouteContext, _route: ir.Route) -> RoutePiece | None:
    """Return the directives that read a client's session, or start one if there is none.

    Raises InvalidValueError.
    """
    backend = context.backend
    persistence = None if backend is None else backend.persistence
    if backend is None or persistence is None or not context.clusters[backend.cluster].endpoints:
        return None
    shared = SharedUpstream(((backend.cluster, 1),), SESSION)
    upstream = UPSTREAM, session_upstream(backend.cluster, persistence), shared
    return RoutePiece(variables=_session_directives(persistence), needs=(*_NEEDS, upstream))


def _session_directives(persistence: ir.Persistence) -> tuple[Directive, ...]:
    if persistence.kind == "header":
        arguments = {_SOURCE: _header(persistence), _TEXT: f"${SESSION}"}
        name = persistence.name
    else:
        lifetime = f"; Max-Age={persistence.lifetime}" if persistence.lifetime else ""
        text = quoting.quote_text_literal(persistence.name, "sessionPersistence: cookie name")
        path = quoting.quote_text_literal(persistence.path, "sessionPersistence.cookie.path")
        cookie = quoting.fitting(
            f'"{text[1:-1]}=${{{SESSION}}}; Path={path[1:-1]}; HttpOnly{lifetime}"',
            "sessionPersistence: cookie",
        )
        arguments = {_NAME: text, _SOURCE: "$gh_session_cookie", _TEXT: cookie}
        name = "Set-Cookie"
    added = ("add_header", quoting.checked_header_name(name), "$gh_session_begun", "always")
    return (
        *(functions.set_argument(variable, value) for variable, value in arguments.items()),
        simple_directive(*added),
    )


def _header(persistence: ir.Persistence) -> str:
    return f"${request_header(persistence.name, 'sessionPersistence: header')}"


def session_upstream(cluster: str, persistence: ir.Persistence | None) -> str:
    """Return the upstream of a cluster whose endpoints are chosen by session."""
    return cluster if persistence is None else f"{cluster}-session"


def served_host(host: ir.VirtualHost) -> tuple[ir.VirtualHost, tuple[Unsupported, ...]]:
    """Return a virtual host without the sessions of policies that NGINX does not support, and these
    settings.

    The author of the policy is not that of the route, which must not fail because of it.
    """
    routes, unsupported = list(host.routes), []
    for index, route in enumerate(routes):
        problems = {one: why for one in policy_sessions(route) if (why := _problem(one))}
        if problems:
            routes[index] = without_sessions(route, problems.__contains__)
        for session, why in problems.items():
            setting = UnsupportedSetting(session.origin, why)
            unsupported.append(served_without(route.origin, setting))
    if unsupported:
        host = msgspec.structs.replace(host, routes=tuple(routes))
    return host, tuple(unsupported)


def _problem(session: ir.Persistence) -> str:
    """Return why NGINX does not support a session; empty if it does."""
    try:
        _session_directives(session)
    except InvalidValueError as error:
        return str(error)
    return ""
