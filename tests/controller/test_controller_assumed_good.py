"""Configuration that a new controller assumes to be good, without suspected objects."""

from __future__ import annotations

from typing import Any

import msgspec

from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir import http
from gatehouse.compiler.ir.proxy_settings import (
    NginxClientSettings,
    NginxSnippet,
    NginxUpstreamSettings,
)
from gatehouse.compiler.ir.settings import (
    ClientSettings,
    RateLimit,
    RateLimits,
    Settings,
    UpstreamSettings,
)
from gatehouse.controller.assumed_good import SearchScope, assumed_scopes
from gatehouse.controller.stored_verdicts import StatusHistory
from gatehouse.dataplane.origin import Origin, object_of
from gatehouse.incremental.query import Key
from gatehouse.incremental.table import Table

POLICY = Origin("ClientSettingsPolicy", "ns", "policy")
OTHER = Origin("ClientSettingsPolicy", "ns", "other")
FILTER = Origin("SnippetsFilter", "ns", "filter")
SNIPPETS = Origin("SnippetsPolicy", "ns", "snippets")


def origin(name: str, kind: str = "HTTPRoute") -> Origin:
    return Origin(kind, "ns", name, "rules[0].matches[0]")


def forward(name: str, **fields: Any) -> http.Route:
    """Return a route to a cluster of its own."""
    action = http.Forward((http.Backend(name),))
    return http.Route(name, http.Match(), action, origin=origin(name), **fields)


def gateway(*routes: http.Route, **fields: Any) -> ir.GatewayConfiguration:
    """Return a configuration with a virtual host for each route."""
    hosts = {route.name: http.VirtualHost(route.name, (route,)) for route in routes}
    clusters = tuple(http.Cluster(route.name, ()) for route in routes)
    listener = ir.Listener(80, "HTTP", Table(hosts).values())
    return ir.GatewayConfiguration(
        "ns/gw", **{"listeners": (listener,), "clusters": clusters, **fields}
    )


def scopes(
    rejected: ir.GatewayConfiguration, *suspects: Origin, new: bool = False
) -> list[SearchScope]:
    histories: dict[Key, StatusHistory] = {
        gateway_api.key_of(item): StatusHistory.NEW if new else StatusHistory.CHANGED
        for item in suspects
    }
    result = assumed_scopes(
        rejected, lambda k: histories.get(k, StatusHistory.SERVED), serving=True, trials=False
    )
    return [scope for scope in result if scope.parts]


def routes(configuration: ir.GatewayConfiguration) -> dict[str, http.Route]:
    (listener,) = configuration.listeners
    return {route.name: route for host in listener.virtual_hosts for route in host.routes}


def test_edited_route_fails_and_new_route_and_hostname_are_absent() -> None:
    rejected = gateway(*map(forward, "abc"))
    scope, last = scopes(rejected, origin("b"))
    assert [part.origin for part in scope.parts] == [origin("b")]
    assert routes(scope.good)["b"] == http.Route(
        "b", http.Match(), http.Respond(500), origin=origin("b")
    )
    assert [cluster.name for cluster in scope.good.clusters] == ["a", "c"]
    (scope,) = scopes(rejected, origin("b"), new=True)
    assert [host.hostname for host in scope.good.listeners[0].virtual_hosts] == ["a", "c"]
    assert last == scope, "its match may be the cause"


def test_cluster_that_another_route_uses_stays() -> None:
    shared = msgspec.structs.replace(forward("a"), name="other", origin=origin("other"))
    scope, _ = scopes(gateway(forward("a"), shared), origin("a"))
    assert [cluster.name for cluster in scope.good.clusters] == ["a", "other"]


def test_policy_sets_nothing_and_other_settings_stay() -> None:
    limit = RateLimit("l", ("x",), 1, "second", 10)
    limits = tuple(
        msgspec.structs.replace(limit, name=item.name, origin=item.field("rate"))
        for item in (POLICY, OTHER)
    )
    client = ClientSettings(
        body_size=5,
        nginx=NginxClientSettings(requests=7, lifetime=8, idle=9),
        sources=(
            ("body_size", POLICY.field("body")),
            ("nginx.requests", OTHER.field("requests")),
            ("nginx.lifetime", POLICY.field("time")),
            ("nginx.idle", POLICY.field("timeout")),
        ),
    )
    settings = Settings(client=client, rates=RateLimits(limits))
    upstream = UpstreamSettings(
        nginx=NginxUpstreamSettings(memory=10),
        sources=(("nginx.memory", POLICY.field("zoneSize")),),
    )
    snippets = (NginxSnippet(SNIPPETS, "http.server.location", "a"),)
    (scope,) = scopes(
        gateway(
            forward("a", settings=settings, snippets=snippets),
            forward("b"),
            clusters=(http.Cluster("a", (), settings=upstream), http.Cluster("b", ())),
            snippets=(NginxSnippet(SNIPPETS, "http", "b"),),
        ),
        POLICY,
        SNIPPETS,
    )
    assert {part.origin for part in scope.parts} == {POLICY, SNIPPETS}
    expected = ClientSettings(
        nginx=NginxClientSettings(requests=7),
        sources=(("nginx.requests", OTHER.field("requests")),),
    )
    assert routes(scope.good)["a"] == forward(
        "a", settings=Settings(client=expected, rates=RateLimits(limits[1:]))
    )
    assert [cluster.settings for cluster in scope.good.clusters] == [
        UpstreamSettings(),
        UpstreamSettings(),
    ]
    assert scope.good.snippets == ()


def test_route_without_its_filter_fails() -> None:
    """The filter may be what protects the route."""
    snippets = (NginxSnippet(FILTER, "http.server.location", "auth_basic a;"),)
    (scope,) = scopes(gateway(forward("a", snippets=snippets), forward("b")), FILTER)
    assert [part.origin for part in scope.parts] == [FILTER]
    assert {name: route.action for name, route in routes(scope.good).items()} == {
        "a": http.Respond(500),
        "b": forward("b").action,
    }


def test_edited_l4_route_ends_its_connections() -> None:
    """Without it, a wildcard of another tenant would get them."""
    key: Key = ("TLSRoute", "ns", "l4")
    host = ir.L4Host("a.example", (ir.L4Backend("l4"),), origin=object_of(key))
    listener = ir.L4Listener(443, "TLS", (host,))
    rejected = gateway(
        forward("a"),
        l4_listeners=(listener,),
        clusters=(http.Cluster("a", ()), http.Cluster("l4", ())),
    )
    (scope,) = scopes(rejected, host.origin)
    assert scope.good.l4_listeners[0].hosts == (ir.L4Host("a.example", origin=host.origin),)
    assert [cluster.name for cluster in scope.good.clusters] == ["a"]
    (scope,) = scopes(rejected, host.origin, new=True)
    assert scope.good.l4_listeners[0].hosts == ()


def test_assumed_configuration_shares_objects_that_are_not_suspected() -> None:
    """A comparison with the rejected configuration costs the difference only."""
    rejected = gateway(*map(forward, "abc"))
    scope, _ = scopes(rejected, origin("b"))
    before = {host.hostname: host for host in rejected.listeners[0].virtual_hosts}
    after = {host.hostname: host for host in scope.good.listeners[0].virtual_hosts}
    assert [name for name in after if after[name] is not before[name]] == ["b"]
