"""Cross-origin resource sharing: answers preflight requests and adds CORS headers to responses.

https://fetch.spec.whatwg.org/#http-cors-protocol. Permission is decided by matching: a route
becomes up to four, for preflight and other requests, with permitted and other origins.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from envoy.config.route.v3 import route_components_pb2 as components

from gatehouse.compiler.backends.envoy import headers, quoting, route_match
from gatehouse.compiler.backends.envoy.route_context import (
    EnvoyPiece,
    EnvoyRouteContext,
    RequestCase,
)
from gatehouse.compiler.ir import http as ir

_METHOD = "access-control-request-method"
_HEADERS = "access-control-request-headers"
_LABELS = tuple(
    f"access-control-{name}"
    for name in (
        "allow-origin", "allow-credentials", "allow-methods", "allow-headers", "expose-headers",
        "max-age",
    )
)  # fmt: skip


def cors_cases(_context: EnvoyRouteContext, route: ir.Route) -> EnvoyPiece | None:
    """Return the cases of a route. Raises InvalidValueError."""
    cors = route.cors
    if cors is None:
        return None
    allowed = route_match.header_match("origin", _origins(cors))
    page = route_match.present("origin")
    common, preflight = _labels(cors)
    others = [RequestCase((allowed,), False, common, _LABELS), RequestCase((), False, (), _LABELS)]
    if route.match.method not in ("", "OPTIONS"):
        return EnvoyPiece(cases=others)
    preflight_conditions = (route_match.method("OPTIONS"), route_match.present(_METHOD))
    preflights = [
        RequestCase((*preflight_conditions, allowed), True, preflight),
        RequestCase((*preflight_conditions, page), True),
    ]
    return EnvoyPiece(cases=[*preflights, *others])


def _origins(cors: ir.Cors) -> str:
    if "*" in cors.origins:
        return ".+"
    return f"(?i:{'|'.join(_pattern(quoting.check_text(origin)) for origin in cors.origins)})"


def _pattern(origin: str) -> str:
    """Return the pattern of an origin; the default port of its scheme is optional."""
    scheme, _, rest = origin.partition("://")
    host, _, port = rest.partition(":")
    default_port = {"http": "80", "https": "443"}.get(scheme, "")
    port_pattern = f"(?::{default_port})?" if port in ("", default_port) else f":{re.escape(port)}"
    name = "".join("[A-Za-z0-9.-]+" if c == "*" else quoting.escape_pattern(c) for c in host)
    return f"{quoting.escape_pattern(scheme)}://{name}{port_pattern}"


def _labels(cors: ir.Cors) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]:
    """Return the headers of all responses to permitted origins, and those of preflight
    responses."""
    echo = "*" not in cors.origins or cors.credentials
    common = [("access-control-allow-origin", "%REQ(ORIGIN)%" if echo else "*")]
    common.append(("vary", "Origin"))
    if cors.credentials:
        common.append(("access-control-allow-credentials", "true"))
    # Browsers treat * as a wildcard only for requests without credentials.
    exposed = [name for name in cors.expose if name != "*" or not cors.credentials]
    if exposed:
        common.append(("access-control-expose-headers", _listed(exposed)))
    preflight = [*common, ("access-control-max-age", str(cors.max_age))]
    for kind, names, echoed in (
        ("methods", cors.methods, f"%REQ({_METHOD})%"),
        ("headers", cors.headers, f"%REQ({_HEADERS})%"),
    ):
        if names:
            value = echoed if "*" in names else _listed(names)
            preflight.append((f"access-control-allow-{kind}", value))
    return tuple(common), tuple(preflight)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(quoting.escape_percent(name) for name in names)


def apply_cors(proto: components.Route, case: RequestCase) -> None:
    """Write the response of a case into a route."""
    proto.response_headers_to_remove.extend(
        name for name in case.hidden if name not in proto.response_headers_to_remove
    )
    proto.response_headers_to_add.extend(
        headers.option(name, value, append=name == "vary") for name, value in case.labels
    )
