"""Every kind of answer that a gateway gives to requests: one route of each kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from fakes.envoy_serving import host, plain
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.gateway import GatewayConfiguration

HOST = "a.example"

_OPEN, _OTHER, _EMPTY = ir.Backend("open"), ir.Backend("other"), ir.Backend("empty")
_TAGGED = ir.Backend("open", request_headers=ir.HeaderEdit(set=(ir.HeaderValue("x-tag", "a"),)))
_WITH_SESSION = ir.Backend("open", persistence=ir.Persistence("cookie", "session"))


class KindOfAnswer(msgspec.Struct, frozen=True):
    """An action of a route that leads to a kind of answer."""

    action: ir.Action
    statuses: tuple[int, ...]
    """Possible statuses of a request that is no gRPC call, and that no check rejects."""

    @property
    def is_call(self) -> bool:
        """True if requests are gRPC calls."""
        return not isinstance(self.action, ir.Redirect) and self.action.grpc


KINDS_OF_ANSWERS = {
    "forwarded": KindOfAnswer(ir.Forward((_OPEN,)), (200,)),
    "repeated": KindOfAnswer(ir.Forward((_OPEN,), retry=ir.Retry(1, (500,))), (200,)),
    "with-session": KindOfAnswer(ir.Forward((_WITH_SESSION,)), (200,)),
    "by-weight": KindOfAnswer(ir.Forward((_OPEN, _OTHER)), (200,)),
    "by-weight-with-headers": KindOfAnswer(ir.Forward((_TAGGED, _OTHER, _EMPTY)), (200, 503)),
    "failing-share": KindOfAnswer(ir.Forward((_OPEN,), failing=99), (200, 500)),
    "without-endpoint": KindOfAnswer(ir.Forward((_EMPTY,)), (503,)),
    "redirected": KindOfAnswer(ir.Redirect(302, hostname="b.example"), (302,)),
    "redirected-by-prefix": KindOfAnswer(ir.Redirect(301, path=ir.PrefixPath("/new")), (301,)),
    "fixed": KindOfAnswer(ir.Respond(404), (404,)),
    "invalid": KindOfAnswer(ir.Respond(500), (500,)),
    "calls": KindOfAnswer(ir.Forward((ir.Backend("calls"),), grpc=True), (502, 503)),
    "calls-failing-share": KindOfAnswer(
        ir.Forward((ir.Backend("calls"),), grpc=True, failing=99), (502, 503)
    ),
    "calls-without-endpoint": KindOfAnswer(ir.Forward((_EMPTY,), grpc=True), (503,)),
    "invalid-calls": KindOfAnswer(ir.Respond(500, grpc=True), (503,)),
}
"""Kinds by the first segment of their paths. A route without a valid configuration is none of them:
it has no check, and answers no request but with an error."""


def gateway_of_kinds(
    backend: ir.Endpoint,
    change: Callable[[ir.Route], ir.Route] = lambda route: route,
    clusters: tuple[ir.Cluster, ...] = (),
    **more: Any,
) -> GatewayConfiguration:
    """Return a gateway with a route of each kind on :data:`HOST`.

    ``change``: gives each route the feature under test. ``clusters``: those that the feature needs.
    """
    routes = [
        ir.Route(f"ns/{name}/0/0", ir.Match(ir.PathPrefix(f"/{name}")), kind.action)
        for name, kind in KINDS_OF_ANSWERS.items()
    ]
    own = [
        ir.Cluster("calls", (ir.Endpoint("127.0.0.1", 9),), "grpc"),
        ir.Cluster("empty", ()),
        ir.Cluster("open", (backend,)),
        ir.Cluster("other", (backend,)),
    ]
    return plain([host(HOST, *map(change, routes))], (*own, *clusters), **more)
