"""Cross-origin resource sharing: preflight requests are answered here, answers are labelled.

https://fetch.spec.whatwg.org/#http-cors-protocol. Who may is a matter of matching: a route becomes
up to four, for preflight requests and for others, of pages that may and of those that may not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from gatehouse.compiler.backends.envoy import headers, quoting, route_match
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


class Case(msgspec.Struct, frozen=True):
    """Requests of some kind: what else must hold for them, and how they are answered."""

    asked: tuple[Any, ...] = ()
    answered: bool = False
    """Whether they are preflight requests, that nobody else answers."""
    labels: tuple[tuple[str, str], ...] = ()
    """Headers that the answer has, in Envoy's format."""
    hidden: tuple[str, ...] = ()
    """Headers of a backend's answer that are left out."""


def cases(cors: ir.Cors | None, method: str) -> list[Case]:
    """Give the cases of a route, in the order in which they are tried.

    ``method``: the one that the route is for; empty for all. Raises InvalidValueError.
    """
    if cors is None:
        return [Case()]
    allowed = route_match.holds("origin", _origins(cors))
    page = route_match.present("origin")
    common, preflight = _labels(cors)
    others = [Case((allowed,), False, common, _LABELS), Case((), False, (), _LABELS)]
    if method not in ("", "OPTIONS"):
        return others
    asks = (route_match.method("OPTIONS"), route_match.present(_METHOD))
    return [Case((*asks, allowed), True, preflight), Case((*asks, page), True), *others]


def _origins(cors: ir.Cors) -> str:
    if "*" in cors.origins:
        return ".+"
    return f"(?i:{'|'.join(_pattern(quoting.text(origin)) for origin in cors.origins)})"


def _pattern(origin: str) -> str:
    """Give the pattern of an origin; the port that its scheme has anyway need not be said."""
    scheme, _, rest = origin.partition("://")
    host, _, port = rest.partition(":")
    known = {"http": "80", "https": "443"}.get(scheme, "")
    said = f"(?::{known})?" if port in ("", known) else f":{re.escape(port)}"
    name = "".join("[A-Za-z0-9.-]+" if c == "*" else quoting.escape(c) for c in host)
    return f"{quoting.escape(scheme)}://{name}{said}"


def _labels(cors: ir.Cors) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]:
    """Give the headers of all answers to pages that may, and those of answers to preflights."""
    echo = "*" not in cors.origins or cors.credentials
    common = [("access-control-allow-origin", "%REQ(ORIGIN)%" if echo else "*")]
    common.append(("vary", "Origin"))
    if cors.credentials:
        common.append(("access-control-allow-credentials", "true"))
    # Browsers take * as everything only where no credentials are sent.
    exposed = [name for name in cors.expose if name != "*" or not cors.credentials]
    if exposed:
        common.append(("access-control-expose-headers", _listed(exposed)))
    preflight = [*common, ("access-control-max-age", str(cors.max_age))]
    for kind, names, asked in (
        ("methods", cors.methods, f"%REQ({_METHOD})%"),
        ("headers", cors.headers, f"%REQ({_HEADERS})%"),
    ):
        if names:
            value = asked if "*" in names else _listed(names)
            preflight.append((f"access-control-allow-{kind}", value))
    return tuple(common), tuple(preflight)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(quoting.literal(name) for name in names)


def apply(made: Any, case: Case) -> None:
    """Write a case's answer into a route."""
    made.response_headers_to_remove.extend(
        name for name in case.hidden if name not in made.response_headers_to_remove
    )
    made.response_headers_to_add.extend(
        headers.option(name, value, append=name == "vary") for name, value in case.labels
    )
