"""Cross-origin resource sharing: answers preflight requests and adds CORS headers to responses.

https://fetch.spec.whatwg.org/#http-cors-protocol. NGINX omits a header with an empty value, so that
maps make all decisions.
"""

from __future__ import annotations

import re

from gatehouse.compiler.backends.nginx import functions, names, quoting
from gatehouse.compiler.backends.nginx.directives import (
    Directive,
    block,
    map_block,
    simple_directive,
)
from gatehouse.compiler.backends.nginx.route_context import (
    NginxRouteContext,
    RoutePiece,
    definitions,
)
from gatehouse.compiler.ir import http as ir

PREFLIGHT = "gh_preflight"
"""Variable that is not empty for preflight requests."""

_ORIGIN = "gh_cors_origin"
"""Variable with the value of Access-Control-Allow-Origin; empty: the origin is not permitted."""

_TEXTS = {
    "Expose-Headers": "gh_cors_expose",
    "Max-Age": "gh_cors_age",
    "Allow-Methods": "gh_cors_methods",
    "Allow-Headers": "gh_cors_headers",
}
"""Variables of the headers with a text of the policy."""

_ANSWERS = (
    "Access-Control-Allow-Origin",
    "Access-Control-Allow-Credentials",
    "Access-Control-Allow-Methods",
    "Access-Control-Allow-Headers",
    "Access-Control-Expose-Headers",
    "Access-Control-Max-Age",
)


def _definitions() -> tuple[Directive, ...]:
    arguments = (_ORIGIN, *(f"{variable}_text" for variable in _TEXTS.values()))
    return (
        *map(functions.argument, arguments),
        functions.unless_empty("http_origin", "gh_cors_any", '"*"'),
        functions.unless_empty(_ORIGIN, "gh_cors_vary", '"Origin"'),
        functions.unless_empty(_ORIGIN, "gh_cors_credentials", '"true"'),
        *(
            functions.unless_empty(_ORIGIN, variable, f"${variable}_text")
            for variable in _TEXTS.values()
        ),
        functions.unless_empty("http_origin", "gh_preflight_origin", '"1"'),
        functions.unless_empty(
            "http_access_control_request_method", "gh_preflight_method", "$gh_preflight_origin"
        ),
        functions.function(
            "$request_method",
            PREFLIGHT,
            ("OPTIONS", "$gh_preflight_method"),
            ("default", '""'),
        ),
    )


_NEEDS = definitions(_definitions())

_FIELDS = {
    "Allow-Methods": "allowMethods",
    "Allow-Headers": "allowHeaders",
    "Expose-Headers": "exposeHeaders",
}
"""Fields of the filter by the header that they set."""


def cors_piece(_context: NginxRouteContext, route: ir.Route) -> RoutePiece | None:
    """Return the answer to preflight requests, and the headers of other responses.

    Raises InvalidValueError.
    """
    cors = route.cors
    if cors is None:
        return None
    origin, maps = _origin(cors)
    arguments = [functions.set_argument(_ORIGIN, origin)]

    def text(kind: str, value: str) -> tuple[str, str]:
        """Return a header that permitted origins receive."""
        arguments.append(functions.set_argument(f"{_TEXTS[kind]}_text", value))
        return f"Access-Control-{kind}", f"${_TEXTS[kind]}"

    always = [("Access-Control-Allow-Origin", f"${_ORIGIN}"), ("Vary", "$gh_cors_vary")]
    if cors.credentials:
        always.append(("Access-Control-Allow-Credentials", "$gh_cors_credentials"))
    # Browsers treat * as a wildcard only for requests without credentials.
    expose = [name for name in cors.expose if name != "*" or not cors.credentials]
    if expose:
        always.append(
            text(
                "Expose-Headers",
                quoting.quote_text_literal(", ".join(expose), f"cors.{_FIELDS['Expose-Headers']}"),
            )
        )
    lists = [
        ("Allow-Methods", cors.methods, "$http_access_control_request_method"),
        ("Allow-Headers", cors.headers, "$http_access_control_request_headers"),
    ]
    preflight = [*always, text("Max-Age", f'"{cors.max_age}"')]
    for kind, listed, echo in lists:
        if listed:
            value = (
                echo
                if "*" in listed
                else quoting.quote_text_literal(", ".join(listed), f"cors.{_FIELDS[kind]}")
            )
            preflight.append(text(kind, value))
    inside = [*(_header(pair) for pair in preflight), simple_directive("return", "204")]
    return RoutePiece(
        preflight=(*arguments, block("if", (f"(${PREFLIGHT})",), inside)),
        added=tuple(_header(pair) for pair in always),
        hidden=_ANSWERS,
        needs=_NEEDS,
        maps=maps,
    )


def _header(pair: tuple[str, str]) -> Directive:
    return simple_directive("add_header", pair[0], pair[1], "always")


def _origin(cors: ir.Cors) -> tuple[str, tuple[Directive, ...]]:
    """Return the value of Access-Control-Allow-Origin, and the map that it needs."""
    default = '""'
    if "*" in cors.origins:
        default = "$http_origin" if cors.credentials else "$gh_cors_any"
    origins = [origin for origin in cors.origins if origin != "*"]
    if not origins or default == "$http_origin":
        return default, ()
    variable = names.variable("cors", repr(cors.origins))
    rows = {
        quoting.quote_literal(f"~*^{_pattern(origin)}$", "cors.allowOrigins"): "$http_origin"
        for origin in origins
    }
    return f"${variable}", (map_block("$http_origin", f"${variable}", rows, default),)


def _pattern(origin: str) -> str:
    """Return the pattern of an origin; the default port of its scheme is optional."""
    scheme, _, rest = origin.partition("://")
    host, _, port = rest.partition(":")
    default_port = {"http": "80", "https": "443"}.get(scheme, "")
    port_pattern = f"(?::{default_port})?" if port in ("", default_port) else f":{port}"
    hostname = re.escape(host).replace(r"\*", "[A-Za-z0-9.-]+").replace(r"\-", "-")
    return f"{scheme}://{hostname}{port_pattern}"
