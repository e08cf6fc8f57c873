"""Session persistence of XBackends: which requests have it, and what the conditions report."""

from __future__ import annotations

import pytest

from fakes.one_route import GATEWAY
from fakes.x_backend_world import (
    ACCEPTED,
    BACKEND,
    HOST,
    PARENTS,
    REFERENCE,
    RESOLVED,
    ROUTE,
    SELECTOR,
    Object,
    XBackendWorld,
    route_to,
)
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.sessions import sessions_of

COOKIE = {"type": "Cookie", "cookie": {"name": "session", "path": "/shop"}}
ONLY_PERMANENT = "is supported for cookies with lifetimeType Permanent only"


def with_session(session: Object) -> XBackendWorld:
    return XBackendWorld(SELECTOR | {"sessionPersistence": session})


def persistence(world: XBackendWorld) -> ir.Persistence | None:
    (action,) = world.actions()
    assert isinstance(action, ir.Forward)
    return action.backends[0].persistence


@pytest.mark.parametrize(
    ("session", "expected"),
    [
        (COOKIE, ir.Persistence("cookie", "session", 0, "/shop")),
        (
            {
                "absoluteTimeout": "1h",
                "cookie": {"name": "s", "lifetimeType": "Permanent"},
            },
            ir.Persistence("cookie", "s", 3600),
        ),
        (
            {"type": "Header", "header": {"name": "X-Session"}},
            ir.Persistence("header", "X-Session"),
        ),
    ],
)
def test_only_backend_of_a_rule_has_its_sessions(session: Object, expected: ir.Persistence) -> None:
    world = with_session(session)
    assert persistence(world) == expected
    assert world.status() == [f"{ACCEPTED}{missing_service(world)}", RESOLVED]


def missing_service(world: XBackendWorld) -> str:
    """Return the end of the condition of an XBackend whose Service is not there."""
    written = world.service()
    assert written is not None
    name = written["metadata"]["name"]
    return f"; Service n/{name} for its endpoints does not exist yet"


def test_cookie_without_name_is_the_same_for_all_routes_to_the_backend() -> None:
    world = with_session({"cookie": {}})
    first = persistence(world)
    world.remove(ROUTE)
    world.put(("GRPCRoute", "n", "other"), route_to())
    second = persistence(world)
    assert first is not None
    assert first == second
    assert first.name.startswith("gh-")


@pytest.mark.parametrize("session", [COOKIE, {"type": "Header", "header": {"name": "X-Session"}}])
def test_end_of_sessions_is_not_served_and_reported(session: Object) -> None:
    world = with_session({**session, "absoluteTimeout": "1h"})
    own = persistence(world)
    assert own is not None
    assert own.absolute_timeout == 0.0
    partly = f"spec.sessionPersistence.absoluteTimeout: {ONLY_PERMANENT}"
    assert f"PartiallyInvalid True UnsupportedValue {partly}" in world.status()


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        (
            {"backendRefs": [REFERENCE], "sessionPersistence": {"cookie": {"name": "own"}}},
            "rules[0]: has sessionPersistence of its own",
        ),
        (
            {
                "filters": [{"type": "RequestMirror", "requestMirror": {"backendRef": REFERENCE}}],
                "backendRefs": [{"name": "s", "port": 80}],
            },
            "rules[0].filters: copies and checks have no sessions",
        ),
    ],
)
def test_rule_without_the_sessions_is_named(rule: Object, why: str) -> None:
    world = with_session(COOKIE)
    world.put(("Service", "n", "s"), {"ports": [{"port": 80}]})
    world.put(ROUTE, {**PARENTS, "rules": [rule]})
    own = persistence(world)
    assert (own.name if own is not None else "") != "session"
    message = f"spec.sessionPersistence: is not supported for HTTPRoute n/r: {why}"
    assert f"PartiallyInvalid True UnsupportedValue {message}" in world.status()


def test_each_of_several_backends_has_its_own_sessions() -> None:
    """ "Session persistence MUST NOT override which backend is selected during traffic splitting"
    (GEP-1619)"""
    world = with_session(COOKIE)
    world.put(("Service", "n", "s"), {"ports": [{"port": 80}]})
    header = {"type": "Header", "header": {"name": "X-Session"}}
    world.put(("XBackend", "n", "c"), SELECTOR | {"sessionPersistence": header})
    references = (REFERENCE, REFERENCE | {"name": "c"}, {"name": "s", "port": 80})
    world.put(ROUTE, route_to(*references))
    (action,) = world.actions()
    assert isinstance(action, ir.Forward)
    assert [backend.persistence for backend in action.backends] == [
        ir.Persistence("cookie", "session", 0, "/shop"),
        ir.Persistence("header", "X-Session"),
        None,
    ]
    assert not [one for one in world.status() if one.startswith("Partially")]


def test_backend_has_its_sessions_beside_those_of_a_policy_of_another_backend() -> None:
    world = with_session(COOKIE)
    world.put(("Service", "n", "s"), {"ports": [{"port": 80}]})
    target = {"group": "", "kind": "Service", "name": "s"}
    spec = {"targetRefs": [target], "sessionPersistence": {"cookie": {"name": "policy"}}}
    world.put(("XBackendTrafficPolicy", "n", "p"), spec)
    world.put(ROUTE, route_to(REFERENCE, {"name": "s", "port": 80}))
    (action,) = world.actions()
    own, other = sessions_of(action)
    assert own == ir.Persistence("cookie", "session", 0, "/shop")
    assert other is not None
    assert other.name.startswith("policy-")
    assert not [one for one in world.status() if one.startswith("Partially")]


def test_connections_have_no_sessions() -> None:
    world = with_session(COOKIE)
    world.put(("TCPRoute", "n", "r"), route_to())
    message = "spec.sessionPersistence: is not supported for TCPRoute n/r: rules[0]: connections"
    assert any(message in one for one in world.status())
    assert persistence(world) is not None


def test_few_of_many_rules_are_named() -> None:
    world = with_session(COOKIE)
    world.put(("Service", "n", "s"), {"ports": [{"port": 80}]})
    rule = {"backendRefs": [REFERENCE], "sessionPersistence": {"cookie": {"name": "own"}}}
    world.put(ROUTE, {**PARENTS, "rules": [rule] * 5})
    (partly,) = [one for one in world.status() if one.startswith("Partially")]
    assert partly.count("of its own") == 3
    assert partly.endswith(" and 2 more")


def test_route_of_another_gateway_is_not_named() -> None:
    world = with_session(COOKIE)
    world.put(("Service", "n", "s"), {"ports": [{"port": 80}]})
    rule = {"backendRefs": [REFERENCE], "sessionPersistence": {"cookie": {"name": "own"}}}
    other = {"parentRefs": [{"name": "other"}], "rules": [rule]}
    world.put(("HTTPRoute", "n", "other"), other)
    assert len(world.status()) == 2
    listener = {"name": "http", "port": 80, "protocol": "HTTP"}
    world.put((GATEWAY[0], "n", "other"), {"gatewayClassName": "c", "listeners": [listener]})
    assert len([one for one in world.status() if one.startswith("Partially")]) == 1


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"sessionPersistence": {"type": "Other"}}, "type: 'Other' is not supported"),
        ({"sessionPersistence": {"type": "Header"}}, "header.name: must be set"),
        ({"sessionPersistence": {"cookie": {"name": "a;b"}}}, "cookie.name: must be a valid cook"),
        ({"sessionPersistence": {"cookie": {"path": "/;x"}}}, "cookie.path: '/;x' must be a path"),
        ({"sessionPersistence": {"absoluteTimeout": "x"}}, "absoluteTimeout: 'x' must be a dura"),
        (
            {"sessionPersistence": {"type": "Header", "header": {"name": "Host"}}},
            "header.name: ",
        ),
    ],
)
def test_invalid_session_is_named_and_nothing_is_forwarded(change: Object, problem: str) -> None:
    world = XBackendWorld(SELECTOR | change)
    assert world.actions() == [ir.Respond(500)]
    (accepted, _) = world.status()
    assert accepted.startswith(f"Accepted False Invalid spec.sessionPersistence.{problem}")


def test_host_outside_the_cluster_has_no_sessions() -> None:
    world = XBackendWorld(HOST | {"sessionPersistence": COOKIE})
    (accepted, _) = world.status()
    assert "spec.sessionPersistence: must not be set with type ExternalHostname" in accepted
    assert world.clusters == []


def test_service_of_the_name_has_no_sessions() -> None:
    world = with_session(COOKIE)
    world.put(("Service", "n", "b"), {"ports": [{"port": 80}]})
    world.put(ROUTE, route_to({"name": BACKEND[2], "port": 80}))
    assert persistence(world) is None
