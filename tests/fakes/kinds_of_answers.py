"""Every kind of answer that a route can have, for tests of features that must hold for all."""

from __future__ import annotations

from typing import Any

import msgspec

from fakes.envoy_serving import host, plain
from gatehouse.compiler.ir import gateway as ir_gateway
from gatehouse.compiler.ir import http as ir

EDIT = ir.HeaderEdit(set=(ir.HeaderValue("x-edit", "set"),))
HOST = "a.example"


class KindOfAnswer(msgspec.Struct, frozen=True):
    """An action with the status that clients get from it."""

    action: ir.Action
    statuses: frozenset[int]
    """Status of a response by HTTP; several if it is chosen by weight."""
    fields: dict[str, Any] = {}
    """Other fields of the route."""
    headers: dict[str, str] = {}
    """Headers of the request."""


def _to(*names: str, **more: Any) -> ir.Forward:
    return ir.Forward(tuple(ir.Backend(name) for name in names), **more)


def _kind(action: ir.Action, *statuses: int, **more: Any) -> KindOfAnswer:
    return KindOfAnswer(action, frozenset(statuses), **more)


_CORS = ir.Cors(origins=("http://page.example",), methods=("GET",))
_PAGE = {"Origin": "http://page.example"}
_COOKIE = ir.Persistence("cookie", "session")

KINDS_OF_ANSWERS = {
    "forward": _kind(_to("up"), 200),
    "forward-edited": _kind(
        _to("up"), 200, fields={"request_headers": EDIT, "response_headers": EDIT}
    ),
    "forward-rewritten": _kind(_to("up", rewrite=ir.Rewrite("b.example", ir.FullPath("/x"))), 200),
    "forward-mirrored": _kind(_to("up", mirrors=(ir.Mirror("up"),)), 200),
    "forward-repeated": _kind(_to("up", retry=ir.Retry(1, (500,))), 200),
    "forward-by-weight": _kind(_to("up", "other"), 200),
    "forward-in-session": _kind(_to("up", persistence=_COOKIE), 200),
    "forward-by-weight-in-session": _kind(_to("up", "other", persistence=_COOKIE), 200),
    "forward-edited-for-a-backend": _kind(
        ir.Forward((ir.Backend("up", request_headers=EDIT),)), 200
    ),
    "forward-to-page": _kind(_to("up"), 200, fields={"cors": _CORS}, headers=_PAGE),
    "forward-to-other-page": _kind(_to("up"), 200, fields={"cors": _CORS}),
    "failing-share": _kind(_to("up", failing=1), 200, 500),
    "no-endpoint": _kind(_to("none"), 503),
    "no-endpoint-by-weight": _kind(_to("none", "none2"), 503),
    "closed-endpoint": _kind(_to("closed"), 502, 503),
    "redirect": _kind(ir.Redirect(301, "https", "b.example"), 301),
    "redirect-of-prefix": _kind(ir.Redirect(path=ir.PrefixPath("/y")), 302),
    "redirect-to-page": _kind(ir.Redirect(302), 302, fields={"cors": _CORS}, headers=_PAGE),
    "invalid": _kind(ir.Respond(500), 500),
    "fixed": _kind(ir.Respond(404), 404, fields={"response_headers": EDIT}),
    "calls": _kind(_to("calls", grpc=True), 502, 503),
    "calls-no-endpoint": _kind(_to("none", grpc=True), 503),
    "calls-invalid": _kind(ir.Respond(500, grpc=True), 503),
}
"""By name, which is also the path. Backends: ``up`` and ``other`` answer 200, ``calls`` and
``closed`` refuse connections, ``none`` and ``none2`` have no endpoint."""


def path_of(name: str) -> str:
    """Return the path of a kind of answer."""
    return f"/{name}"


def routes_of_all_kinds() -> list[ir.Route]:
    """Return a route of each kind."""
    return [
        ir.Route(
            f"ns/r/{number}/0", ir.Match(ir.PathPrefix(path_of(name))), kind.action, **kind.fields
        )
        for number, (name, kind) in enumerate(KINDS_OF_ANSWERS.items())
    ]


def gateway_of_all_kinds(up: ir.Endpoint, closed: ir.Endpoint) -> ir_gateway.GatewayConfiguration:
    """Return a gateway with a route of each kind on :data:`HOST`, and all their backends.

    ``up``: an endpoint that answers 200. ``closed``: one that refuses connections.
    """
    endpoints = {"up": (up,), "other": (up,), "closed": (closed,), "none": (), "none2": ()}
    clusters = [ir.Cluster(name, own) for name, own in endpoints.items()]
    clusters.append(ir.Cluster("calls", (closed,), "grpc"))
    return plain([host(HOST, *routes_of_all_kinds())], clusters)
