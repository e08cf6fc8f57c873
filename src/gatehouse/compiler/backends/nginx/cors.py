"""Cross-origin resource sharing: answers preflight requests and adds CORS headers to responses.

https://fetch.spec.whatwg.org/#http-cors-protocol. NGINX omits a header with an empty value, so that
maps make all decisions.
"""

from __future__ import annotations

import re

import msgspec

from gatehouse.compiler.backends.nginx import names, quoting
from gatehouse.compiler.backends.nginx.directives import Directive, block, simple
from gatehouse.compiler.ir import http as ir

PREFLIGHT = "gh_preflight"
"""Variable that is set for preflight requests (:func:`definitions`)."""

_ANSWERS = (
    "Access-Control-Allow-Origin",
    "Access-Control-Allow-Credentials",
    "Access-Control-Allow-Methods",
    "Access-Control-Allow-Headers",
    "Access-Control-Expose-Headers",
    "Access-Control-Max-Age",
)


class Sharing(msgspec.Struct, frozen=True):
    """Directives of a location for its CORS policy."""

    preflight: tuple[Directive, ...] = ()
    added: tuple[Directive, ...] = ()
    hidden: tuple[str, ...] = ()
    """Headers of the backend that are replaced."""
    maps: tuple[Directive, ...] = ()


def definitions() -> list[Directive]:
    """Return the maps that detect preflight requests."""
    methods = (simple('""', '""'), simple("default", "$gh_preflight_origin"))
    return [
        block(
            "map",
            ("$http_origin", "$gh_preflight_origin"),
            (simple('""', '""'), simple("default", '"1"')),
        ),
        block("map", ("$http_access_control_request_method", "$gh_preflight_method"), methods),
        block(
            "map",
            ("$request_method", f"${PREFLIGHT}"),
            (simple("OPTIONS", "$gh_preflight_method"), simple("default", '""')),
        ),
    ]


def shared(cors: ir.Cors | None) -> Sharing:
    """Return the CORS directives of a route's location. Raises InvalidValueError."""
    if cors is None:
        return Sharing()
    scope = repr(cors)
    origin = names.variable("cors", scope, "origin")
    maps = [_origins(cors, origin)]

    def value(name: str, text: str) -> str:
        """Return a variable that is ``text`` for permitted origins, else empty."""
        variable = names.variable("cors", scope, name)
        rows = (simple('""', '""'), simple("default", text))
        maps.append(block("map", (f"${origin}", f"${variable}"), rows))
        return f"${variable}"

    always = [
        ("Access-Control-Allow-Origin", f"${origin}"),
        ("Vary", value("vary", '"Origin"')),
    ]
    if cors.credentials:
        always.append(("Access-Control-Allow-Credentials", value("credentials", '"true"')))
    # Browsers treat * as a wildcard only for requests without credentials.
    expose = [name for name in cors.expose if name != "*" or not cors.credentials]
    if expose:
        exposed = value("expose", quoting.text(", ".join(expose)))
        always.append(("Access-Control-Expose-Headers", exposed))
    lists = [
        ("Methods", cors.methods, "$http_access_control_request_method"),
        ("Headers", cors.headers, "$http_access_control_request_headers"),
    ]
    preflight = [*always, ("Access-Control-Max-Age", value("age", f'"{cors.max_age}"'))]
    for kind, listed, echo in lists:
        if listed:
            text = echo if "*" in listed else quoting.text(", ".join(listed))
            preflight.append((f"Access-Control-Allow-{kind}", value(kind, text)))
    inside = [*(_header(pair) for pair in preflight), simple("return", "204")]
    return Sharing(
        (block("if", (f"(${PREFLIGHT})",), inside),),
        tuple(_header(pair) for pair in always),
        _ANSWERS,
        tuple(maps),
    )


def _header(pair: tuple[str, str]) -> Directive:
    return simple("add_header", pair[0], pair[1], "always")


def _origins(cors: ir.Cors, variable: str) -> Directive:
    """Return the map from the Origin to the value of Access-Control-Allow-Origin."""
    rows = [simple('""', '""')]
    for origin in cors.origins:
        if origin != "*":
            rows.append(simple(quoting.literal(f"~*^{_pattern(origin)}$"), "$http_origin"))
    default = '""'
    if "*" in cors.origins:
        default = "$http_origin" if cors.credentials else '"*"'
    rows.append(simple("default", default))
    return block("map", ("$http_origin", f"${variable}"), rows)


def _pattern(origin: str) -> str:
    """Return the pattern of an origin; the default port of its scheme is optional."""
    scheme, _, rest = origin.partition("://")
    host, _, port = rest.partition(":")
    default_port = {"http": "80", "https": "443"}.get(scheme, "")
    port_pattern = f"(?::{default_port})?" if port in ("", default_port) else f":{port}"
    hostname = re.escape(host).replace(r"\*", "[A-Za-z0-9.-]+").replace(r"\-", "-")
    return f"{scheme}://{hostname}{port_pattern}"
