"""Cross-origin resource sharing: preflight requests are answered here, answers are labelled.

https://fetch.spec.whatwg.org/#http-cors-protocol. A header whose value comes out empty is not sent,
so that maps do all of the deciding.
"""

from __future__ import annotations

import re

import msgspec

from gatehouse.compiler.backends.nginx import names, quoting
from gatehouse.compiler.backends.nginx.directives import Directive, block, simple
from gatehouse.compiler.ir import http as ir

PREFLIGHT = "gh_preflight"
"""Variable, set when a request is a preflight request (:func:`definitions`)."""

_ANSWERS = (
    "Access-Control-Allow-Origin",
    "Access-Control-Allow-Credentials",
    "Access-Control-Allow-Methods",
    "Access-Control-Allow-Headers",
    "Access-Control-Expose-Headers",
    "Access-Control-Max-Age",
)


class Sharing(msgspec.Struct, frozen=True):
    """What a location has to have."""

    preflight: tuple[Directive, ...] = ()
    added: tuple[Directive, ...] = ()
    hidden: tuple[str, ...] = ()
    """Headers of the backend that are replaced."""
    maps: tuple[Directive, ...] = ()


def definitions() -> list[Directive]:
    """Give the maps that say whether a request is a preflight request."""
    asks = (simple('""', '""'), simple("default", "$gh_preflight_origin"))
    return [
        block(
            "map",
            ("$http_origin", "$gh_preflight_origin"),
            (simple('""', '""'), simple("default", '"1"')),
        ),
        block("map", ("$http_access_control_request_method", "$gh_preflight_method"), asks),
        block(
            "map",
            ("$request_method", f"${PREFLIGHT}"),
            (simple("OPTIONS", "$gh_preflight_method"), simple("default", '""')),
        ),
    ]


def shared(cors: ir.Cors | None) -> Sharing:
    """Give what a route's location needs. Raises UnwritableError."""
    if cors is None:
        return Sharing()
    scope = repr(cors)
    origin = names.variable("cors", scope, "origin")
    maps = [_origins(cors, origin)]

    def value(name: str, text: str) -> str:
        """Give the variable that is ``text`` for origins that are allowed."""
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
    # Browsers take * as everything only where no credentials are sent.
    expose = [name for name in cors.expose if name != "*" or not cors.credentials]
    if expose:
        exposed = value("expose", quoting.text(", ".join(expose)))
        always.append(("Access-Control-Expose-Headers", exposed))
    asked = [
        ("Methods", cors.methods, "$http_access_control_request_method"),
        ("Headers", cors.headers, "$http_access_control_request_headers"),
    ]
    preflight = [*always, ("Access-Control-Max-Age", value("age", f'"{cors.max_age}"'))]
    for kind, listed, echo in asked:
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
    """Give the map from an origin to what is answered to it."""
    rows = [simple('""', '""')]
    for origin in cors.origins:
        if origin != "*":
            rows.append(simple(quoting.literal(f"~*^{_pattern(origin)}$"), "$http_origin"))
    anybody = '""'
    if "*" in cors.origins:
        anybody = "$http_origin" if cors.credentials else '"*"'
    rows.append(simple("default", anybody))
    return block("map", ("$http_origin", f"${variable}"), rows)


def _pattern(origin: str) -> str:
    """Give the pattern of an origin; the port that its scheme has anyway need not be said."""
    scheme, _, rest = origin.partition("://")
    host, _, port = rest.partition(":")
    known = {"http": "80", "https": "443"}.get(scheme, "")
    said = f"(?::{known})?" if port in ("", known) else f":{port}"
    hostname = re.escape(host).replace(r"\*", "[A-Za-z0-9.-]+").replace(r"\-", "-")
    return f"{scheme}://{hostname}{said}"
