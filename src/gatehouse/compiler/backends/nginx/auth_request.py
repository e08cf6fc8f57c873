"""Routes whose users an authenticator knows: it is asked about each request, and logs users in.

``auth_request`` asks it; a 401 from it leads the request there itself, to be sent to the provider.
Nothing of what a client sent reaches it but what is written here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gatehouse.compiler.backends import relying_parties
from gatehouse.compiler.backends.nginx import names, quoting
from gatehouse.compiler.backends.nginx.directives import Directive, block, simple, write
from gatehouse.compiler.backends.nginx.quoting import InvalidValueError
from gatehouse.compiler.backends.nginx.route_context import Context, Guard
from gatehouse.compiler.ir.authentication import Oidc
from gatehouse.dataplane.file_set import File
from gatehouse.sidecars.authenticator import config
from gatehouse.sidecars.authenticator.config import Party

UPSTREAM = "gh_authenticator"

_NOTHING: Mapping[str, str] = {}

_BUFFERS = (
    # An answer to a check has all the cookies of a request, which may be 32 KB.
    simple("proxy_buffer_size", "64k"),
    simple("proxy_buffers", "8", "64k"),
    simple("proxy_busy_buffers_size", "128k"),
)


def guard(context: Context, wanted: Oidc) -> Guard:
    """Give what lets in those alone whom the provider knows. Raises UnwritableError."""
    if not context.capabilities.auth_request:
        raise InvalidValueError("OpenID Connect needs an NGINX with http_auth_request_module")
    if not context.capabilities.authenticators:
        raise InvalidValueError("OpenID Connect needs an agent with an authenticator")
    party = _party(wanted)
    scope = f"{context.scope}/{party.name}"

    def variable(kind: str, number: int = 0) -> str:
        return names.variable(scope, kind, str(number))

    told = relying_parties.claim_headers(wanted)
    answered = {f"x_set_cookie_{n}": variable("set", n) for n in range(config.COOKIES)}
    answered |= {f"x_claim_{n}": variable("claim", n) for n in range(len(told))}
    answered["x_cookie"] = variable("cookie")
    check, login = names.check_path(party.name), names.login(party.name)
    return Guard(
        asking=(
            simple("auth_request", check),
            *(
                simple("auth_request_set", f"${name}", f"$upstream_http_{header}")
                for header, name in answered.items()
            ),
            simple("error_page", "401", "=", login),
        ),
        told=tuple((header, variable("claim", n)) for n, (_, header) in enumerate(told)),
        cookie=variable("cookie"),
        added=tuple(
            simple("add_header", "Set-Cookie", f"${variable('set', n)}", "always")
            for n in range(config.COOKIES)
        ),
        locations=(block("location", (login,), _login(party)),),
        fixed=_fixed(party, wanted),
    )


def _fixed(party: Party, wanted: Oidc) -> tuple[Directive, ...]:
    def location(path: str, action: str, *first: Directive) -> Directive:
        sent = simple("proxy_pass", quoting.word(f"http://{UPSTREAM}/{party.name}/{action}"))
        return block("location", ("=", quoting.literal(path)), (*first, *_asking(), sent))

    paths = {
        wanted.callback: "callback",
        wanted.logout.path: "logout",
        wanted.logout.front_channel: "ended",
    }
    return (
        location(names.check_path(party.name), "check", simple("internal")),
        *(location(path, action) for path, action in paths.items() if path),
    )


def _login(party: Party) -> tuple[Directive, ...]:
    said = {
        "X-Uri": "$request_uri",
        "X-Upgrade": "$http_upgrade",
        "X-Mode": "$http_sec_fetch_mode",
    }
    onward = simple("rewrite", "^", f"/{party.name}/login?", "break")
    return (onward, *_asking(said), simple("proxy_pass", f"http://{UPSTREAM}"))


def _asking(said: Mapping[str, str] = _NOTHING) -> tuple[Directive, ...]:
    """Give the directives of every location that asks the authenticator."""
    headers = {
        "Host": "$gh_host",
        "Connection": '""',
        "Content-Length": '""',
        "Cookie": "$http_cookie",
        "X-Origin": '"${scheme}://${gh_host}"',
        **said,
    }
    return (
        simple("proxy_pass_request_body", "off"),
        simple("proxy_pass_request_headers", "off"),
        *(simple("proxy_set_header", name, value) for name, value in headers.items()),
        *_BUFFERS,
    )


def files(wanted: Collection[Oidc]) -> list[File]:
    """Give what an authenticator and NGINX need to find each other, if anybody is ``wanted``."""
    if not wanted:
        return []
    server = simple("server", quoting.word(f"unix:{config.SOCKET}"))
    upstream = write([block("upstream", (UPSTREAM,), (server, simple("keepalive", "64")))])
    return [
        File.make(
            config.FILE,
            config.encode(relying_parties.party(each, names.secret_file) for each in wanted),
        ),
        File.make(names.upstream_file("authenticator"), upstream),
    ]


def _party(wanted: Oidc) -> Party:
    return relying_parties.party(wanted, names.secret_file)
