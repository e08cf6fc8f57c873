"""OpenID Connect: an authenticator checks each request and handles logins.

``auth_request`` sends the check. On 401 the request itself is passed to the authenticator, which
redirects it to the provider. Only the headers written here are passed to the authenticator.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gatehouse.compiler.backends import relying_parties
from gatehouse.compiler.backends.failures import InvalidValueError
from gatehouse.compiler.backends.nginx import access_log, headers, names, quoting
from gatehouse.compiler.backends.nginx.directives import (
    Directive,
    block,
    format_directives,
    simple_directive,
)
from gatehouse.compiler.backends.nginx.route_context import (
    RELYING_PARTY,
    NginxRouteContext,
    RoutePiece,
)
from gatehouse.compiler.ir.access_log import LocalReason
from gatehouse.compiler.ir.authentication import Oidc
from gatehouse.compiler.ir.http import Route
from gatehouse.dataplane.file_set import File
from gatehouse.sidecars.authenticator import config
from gatehouse.sidecars.authenticator.config import Party

_UPSTREAM = "gh_authenticator"

_NOTHING: Mapping[str, str] = {}

_BUFFERS = (
    # The response to a check has all cookies of a request, which may be 32 KB.
    simple_directive("proxy_buffer_size", "64k"),
    simple_directive("proxy_buffers", "8", "64k"),
    simple_directive("proxy_busy_buffers_size", "128k"),
)


def auth_request_directives(context: NginxRouteContext, route: Route, oidc: Oidc) -> RoutePiece:
    """Return the directives that permit authenticated users only. Raises InvalidValueError."""
    if not context.capabilities.auth_request:
        raise InvalidValueError("OpenID Connect requires an NGINX with http_auth_request_module")
    if not context.capabilities.authenticators:
        raise InvalidValueError("OpenID Connect requires an agent with an authenticator")
    relying_parties.check_login(oidc, context.conflicts)
    party = _party(oidc)
    scope = f"{context.scope}/{party.name}"

    def variable(kind: str, number: int = 0) -> str:
        return names.variable(scope, kind, str(number))

    claims = relying_parties.claim_headers(oidc)
    variables = {f"x_set_cookie_{n}": variable("set", n) for n in range(config.COOKIES)}
    variables |= {f"x_claim_{n}": variable("claim", n) for n in range(len(claims))}
    variables["x_cookie"] = variable("cookie")
    # The location of the login has the response headers of the route.
    edit = headers.response_headers_piece(context, route) or RoutePiece()
    added = format_directives(edit.added) if edit.added else ""
    check, login = names.check_path(party.name), names.login(party.name, added)
    return RoutePiece(
        login=(
            simple_directive("auth_request", check),
            *(
                simple_directive("auth_request_set", f"${name}", f"$upstream_http_{header}")
                for header, name in variables.items()
            ),
            simple_directive("error_page", "401", "=", login),
        ),
        claim_headers=tuple((header, variable("claim", n)) for n, (_, header) in enumerate(claims)),
        cookie=variable("cookie"),
        added=tuple(
            simple_directive("add_header", "Set-Cookie", f"${variable('set', n)}", "always")
            for n in range(config.COOKIES)
        ),
        locations=(block("location", (login,), (*_login(party), *edit.added)),),
        fixed=_fixed(party, oidc),
        needs=((RELYING_PARTY, repr(oidc), oidc),),
    )


def _fixed(party: Party, oidc: Oidc) -> tuple[Directive, ...]:
    def location(path: str, action: str, *first: Directive) -> Directive:
        proxy_pass = simple_directive(
            "proxy_pass", quoting.word(f"http://{_UPSTREAM}/{party.name}/{action}")
        )
        return block(
            "location",
            ("=", quoting.quote_literal(path)),
            (*first, *_authenticator_directives(), proxy_pass),
        )

    return (
        location(names.check_path(party.name), "check", simple_directive("internal")),
        *(location(path, action) for path, action in relying_parties.login_paths(oidc).items()),
    )


def _login(party: Party) -> tuple[Directive, ...]:
    sent = {
        "X-Uri": "$request_uri",
        "X-Upgrade": "$http_upgrade",
        "X-Mode": "$http_sec_fetch_mode",
    }
    onward = simple_directive("rewrite", "^", f"/{party.name}/login?", "break")
    return (
        access_log.reason_variable(LocalReason.AUTHENTICATION),
        onward,
        *_authenticator_directives(sent),
        simple_directive("proxy_pass", f"http://{_UPSTREAM}"),
    )


def _authenticator_directives(extra: Mapping[str, str] = _NOTHING) -> tuple[Directive, ...]:
    """Return the directives of every location that calls the authenticator."""
    sent = {
        "Host": "$gh_host",
        "Connection": '""',
        "Content-Length": '""',
        "Cookie": "$http_cookie",
        "X-Origin": '"${scheme}://${gh_host}"',
        **extra,
    }
    return (
        simple_directive("proxy_pass_request_body", "off"),
        simple_directive("proxy_pass_request_headers", "off"),
        *(simple_directive("proxy_set_header", name, value) for name, value in sent.items()),
        *_BUFFERS,
    )


def authenticator_files(oidcs: Collection[Oidc]) -> list[File]:
    """Return the files that connect NGINX and its authenticator; none without relying parties."""
    if not oidcs:
        return []
    server = simple_directive("server", quoting.word(f"unix:{config.REQUESTS_SOCKET}"))
    upstream = format_directives(
        [block("upstream", (_UPSTREAM,), (server, simple_directive("keepalive", "64")))]
    )
    return [
        File.make(
            config.AUTHENTICATORS_FILE,
            config.encode_parties(relying_parties.party(oidc, names.secret_file) for oidc in oidcs),
        ),
        File.make(names.upstream_file(_UPSTREAM), upstream),
    ]


def _party(oidc: Oidc) -> Party:
    return relying_parties.party(oidc, names.secret_file)
