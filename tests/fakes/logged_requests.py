"""A gateway of both proxies with an HTTP route for each reason in the access log."""

from __future__ import annotations

from fakes.envoy_serving import host, plain, route_to
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.authentication import Basic
from gatehouse.compiler.ir.gateway import GatewayConfiguration, SecretBytes, SecretFile
from gatehouse.compiler.ir.settings import (
    Attribute,
    ClientSettings,
    RateLimit,
    RateLimits,
    Settings,
)
from gatehouse.dataplane.origin import Origin

SERVICE = Origin("Service", "shop", "web")
CLOSED = ir.Endpoint("127.0.0.1", 9)


def gateway(served: ir.Endpoint, broken: ir.Endpoint) -> GatewayConfiguration:
    """Return a gateway with a route for each reason."""
    limit = RateLimit("few", (Attribute("binary_remote_addr"),), 1, "minute", 10 << 20)
    users = SecretFile("users", SecretBytes(b"ann:{SHA}0DPiKuNIrrVmD8IUCuw1hQxNqZc=\n"))
    routes = [
        route_to("c", "shop/web/0/0", "/ok", rewrite=ir.Rewrite(hostname="inner.example")),
        route_to("none", "shop/web/1/0", "/empty"),
        route_to("closed", "shop/web/2/0", "/closed"),
        route_to("broken", "shop/web/3/0", "/broken"),
        route_to("c", "shop/web/4/0", "/limited", settings=Settings(rates=RateLimits((limit,)))),
        route_to("c", "shop/web/5/0", "/users", authentication=Basic("realm", "users")),
        route_to("c", "shop/web/6/0", "/small", settings=Settings(client=ClientSettings(4))),
        ir.Route("shop/web/7/0", ir.Match(ir.PathPrefix("/invalid")), ir.Respond(500)),
        ir.Route("shop/web/8/0", ir.Match(ir.PathPrefix("/away")), ir.Redirect(hostname="b.c")),
    ]
    clusters = [
        ir.Cluster("broken", (broken,), origin=SERVICE),
        ir.Cluster("c", (served,), origin=SERVICE),
        ir.Cluster("closed", (CLOSED,), origin=SERVICE),
        ir.Cluster("none", (), origin=SERVICE),
    ]
    return plain([host("a.example", *routes)], clusters, secrets=(users,))
