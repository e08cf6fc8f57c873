"""Session persistence: the session selects the endpoint by consistent hashing."""

from __future__ import annotations

from gatehouse.compiler.backends.nginx import functions, names, quoting
from gatehouse.compiler.backends.nginx.directives import Directive, map_block, simple_directive
from gatehouse.compiler.backends.nginx.header_variables import request_header
from gatehouse.compiler.backends.nginx.route_context import (
    UPSTREAM,
    NginxRouteContext,
    RoutePiece,
    SharedUpstream,
    definitions,
)
from gatehouse.compiler.ir import http as ir

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


def session_piece(context: NginxRouteContext, route: ir.Route) -> RoutePiece | None:
    """Return the directives that read a client's session, or start one if there is none.

    Raises InvalidValueError.
    """
    backend = context.backend
    if backend is None or not context.clusters[backend.cluster].endpoints:
        return None
    persistence = route.session or backend.persistence
    if persistence is None:
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


def check_nginx_session(_: ir.Forward, session: ir.Persistence) -> None:
    """Raise InvalidValueError if NGINX does not support a session."""
    _session_directives(session)
    chooser(session)


def chooser(persistence: ir.Persistence) -> tuple[str, tuple[Directive, ...]]:
    """Return the variable with a session before any location is reached, and its maps."""
    variable = names.variable("session", persistence.kind, persistence.name)
    maps: tuple[Directive, ...] = ()
    if persistence.kind == "header":
        source = _header(persistence)
    else:
        source = f"$gh_cookie_{names.name_digest(persistence.name)}"
        maps = (_cookie(persistence.name, source),)
    rows = {quoting.quote_literal(_VALID): source}
    return f"${variable}", (*maps, map_block(source, f"${variable}", rows, "$request_id"))


def _header(persistence: ir.Persistence) -> str:
    return f"${request_header(persistence.name, 'sessionPersistence: header')}"


def _cookie(name: str, variable: str) -> Directive:
    """Return the map that reads a cookie whose name NGINX's variables cannot express."""
    pattern = f"~(?:^|;\\s*){quoting.name_pattern(name)}=(?<gh_cookie>[^;]*)"
    return map_block("$http_cookie", variable, {quoting.quote_literal(pattern): "$gh_cookie"})


def session_upstream(cluster: str, persistence: ir.Persistence | None) -> str:
    """Return the upstream of a cluster whose endpoints are chosen by session."""
    return cluster if persistence is None else f"{cluster}-session"
