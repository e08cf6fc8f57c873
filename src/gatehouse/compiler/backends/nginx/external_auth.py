"""Authorization servers that speak HTTP (ExternalAuth): ``auth_request`` asks them.

The server gets only the headers written here, and the normalised path of the client, by which NGINX
chose the route. Its statuses are those of the response to the client as far as NGINX can return
them; NGINX cannot return its body.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import unquote

from gatehouse.compiler.backends.failures import InvalidValueError
from gatehouse.compiler.backends.nginx import cors, headers, names, quoting
from gatehouse.compiler.backends.nginx.backend_protocol import (
    http_version,
    pass_directive,
    tls_directives,
)
from gatehouse.compiler.backends.nginx.directives import (
    Directive,
    DirectiveNode,
    block,
    format_directives,
    simple_directive,
)
from gatehouse.compiler.backends.nginx.header_variables import header_variable, is_known_name
from gatehouse.compiler.backends.nginx.route_context import NginxRouteContext, RoutePiece
from gatehouse.compiler.backends.nginx.traffic_settings import format_time
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.authentication import (
    AUTHORIZATION_SERVER_FAILED,
    AUTHORIZATION_SERVER_TIMEOUT_SECONDS,
    ExternalAuth,
)

_STATUS, _PATH, _QUERY = "gh_auth_status", "gh_auth_path", "gh_auth_query"
"""Variables of a request: the status of the server; path and query of the client."""

_DENIALS = (301, 302, 303, 307, 308, 400, 401, 404, 429)
"""Statuses of a server that NGINX returns to clients. Each costs 10 KB in each server."""

_DENIED_HEADERS = ("WWW-Authenticate", "Location", "Set-Cookie", "Cache-Control", "Retry-After")
"""Headers of a server that denies a request, which clients get."""

_FAILURES = ("401", "403", "500")
"""Statuses of ``auth_request`` that denies a request; 500: all others than 401 and 403."""

_CONNECT_SECONDS = 2.0
"""Timeout of connection attempts to a server in seconds."""


def authorization_piece(context: NginxRouteContext, route: ir.Route) -> RoutePiece | None:
    """Return the check by the authorization server of a route. Raises InvalidValueError."""
    if route.external_auth is None:
        return None
    changes = (make(context, route) for make in (cors.cors_piece, headers.response_headers_piece))
    added = [item for piece in changes if piece is not None for item in piece.added]
    return check_piece(context, route.external_auth, added)


def copied_headers(auth: ExternalAuth) -> dict[str, str]:
    """Return the variables of the headers that a server sets, by name."""
    return {name: names.variable("authorized", name.lower()) for name in auth.response_headers}


def check_piece(
    context: NginxRouteContext, auth: ExternalAuth, added: Iterable[Directive] = ()
) -> RoutePiece:
    """Return a check; ``added``: directives that add headers to the response of denied requests.

    Raises InvalidValueError.
    """
    _check(context, auth)
    call = _call(context, auth)
    denied = _denied_location(added)
    copied = copied_headers(auth)
    return RoutePiece(
        authorization=(
            simple_directive("set", f"${_PATH}", "$uri"),
            simple_directive("set", f"${_QUERY}", "$args"),
            simple_directive("auth_request", call.arguments[-1]),
            simple_directive("auth_request_set", f"${_STATUS}", "$status"),
            *(
                simple_directive("auth_request_set", f"${variable}", _response_header(name))
                for name, variable in (*_denied_headers().items(), *copied.items())
            ),
            simple_directive("error_page", *_FAILURES, "=", denied.arguments[0]),
        ),
        # The module permits a request for each status from 200 to 299.
        permitted=(
            block(
                "if",
                (f"(${_STATUS}", "!=", "200)"),
                (
                    simple_directive("error_page", "403", "=", denied.arguments[0]),
                    simple_directive("return", "403"),
                ),
            ),
        ),
        claim_headers=tuple(copied.items()),
        locations=(denied,),
        subrequests=(call,),
    )


def _check(context: NginxRouteContext, auth: ExternalAuth) -> None:
    """Raise InvalidValueError for a filter that NGINX does not support; the message names the
    field."""
    where = auth.field
    if not context.capabilities.auth_request:
        raise InvalidValueError(f"{where}: requires an NGINX with http_auth_request_module")
    if auth.protocol == "grpc":
        raise InvalidValueError(f"{where}.protocol: GRPC is not supported by NGINX")
    if auth.body_size:
        raise InvalidValueError(f"{where}.forwardBody: not supported by NGINX")
    field = f"{where}.http.allowedResponseHeaders"
    if not auth.response_headers:
        raise InvalidValueError(f"{field}: must not be empty, because NGINX copies only known ones")
    for name in auth.response_headers:
        if not is_known_name(name):
            why = "the name of a header must have only letters, digits and hyphens"
            raise InvalidValueError(f"{field}: {why}")


def _call(context: NginxRouteContext, auth: ExternalAuth) -> Directive:
    """Return the location that calls a server."""
    cluster = context.clusters[auth.cluster]
    path = names.authorization_path(
        auth.cluster, auth.path, *auth.request_headers, *context.authorized
    )
    name = quoting.quote_literal(path)
    inner: list[DirectiveNode] = [simple_directive("internal")]
    if not cluster.endpoints:
        return block("location", ("=", name), (*inner, simple_directive("return", "503")))
    prefix = quoting.quote_text_literal(unquote(auth.path))[1:-1]
    # NGINX encodes the path of a rewrite; the query stays as the client wrote it.
    onward = f'"{prefix}${{{_PATH}}}?${{{_QUERY}}}?"'
    inner += [
        simple_directive("rewrite", "^", onward, "break"),
        simple_directive("proxy_method", "$request_method"),
        simple_directive("proxy_pass_request_body", "off"),
        simple_directive("proxy_pass_request_headers", "off"),
        *(
            simple_directive("proxy_set_header", quoting.checked_header_name(name), value)
            for name, value in _request_headers(context, auth).items()
        ),
        simple_directive("proxy_connect_timeout", format_time(_CONNECT_SECONDS)),
        simple_directive("proxy_send_timeout", format_time(AUTHORIZATION_SERVER_TIMEOUT_SECONDS)),
        simple_directive("proxy_read_timeout", format_time(AUTHORIZATION_SERVER_TIMEOUT_SECONDS)),
        simple_directive(
            "proxy_next_upstream_timeout", format_time(AUTHORIZATION_SERVER_TIMEOUT_SECONDS)
        ),
        *http_version(context, cluster),
        *tls_directives("proxy", cluster),
        pass_directive(cluster, cluster.name),
    ]
    return block("location", ("=", name), inner)


def _request_headers(context: NginxRouteContext, auth: ExternalAuth) -> dict[str, str]:
    """Return the headers of a check, with their values as tokens.

    Those that NGINX sets for backends have the same values here: clients cannot forge them.
    """
    defaults = {
        name.lower(): value
        for name, value in headers.default_headers("proxy", context.removed_headers)
    } | {name: f"${variable}" for name, variable in context.authorized.items()}
    return {
        "Host": "$gh_host",
        "Connection": '""',
        "Content-Length": "0",
        "Authorization": defaults.get("authorization", "$http_authorization"),
        **{
            name: defaults.get(name.lower(), f"${header_variable(name)}")
            for name in auth.request_headers
            # NGINX drops headers of clients with other characters.
            if is_known_name(name)
        },
    }


def _denied_location(added: Iterable[Directive]) -> Directive:
    """Return the named location that answers denied requests.

    Headers of the server stay, such as its challenge.
    """
    status = f"(${_STATUS}"
    own = {quoting.quote_literal(name).lower() for name in _DENIED_HEADERS}
    inner = (
        *(
            simple_directive("add_header", name, f"${variable}", "always")
            for name, variable in _denied_headers().items()
        ),
        *(directive for directive in added if directive.arguments[0].lower() not in own),
        *(
            block("if", (status, "=", f"{code})"), (simple_directive("return", str(code)),))
            for code in _DENIALS
        ),
        block("if", (status, "~", '"^[1-4]")'), (simple_directive("return", "403"),)),
        simple_directive("return", str(AUTHORIZATION_SERVER_FAILED)),
    )
    return block("location", (f"@gh_{names.name_digest(format_directives(inner))}",), inner)


def _denied_headers() -> dict[str, str]:
    """Return the variables of the headers of a denied request."""
    return {name: names.variable("denied", name) for name in _DENIED_HEADERS}


def _response_header(name: str) -> str:
    return f"${header_variable(name, 'upstream_http_')}"
