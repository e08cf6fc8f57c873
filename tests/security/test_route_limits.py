"""Tenants who write more routes than the memory of the controller has room for.

The oldest routes of a namespace are served. The others get a condition and take little memory, and
the routes of other namespaces are not affected.
"""

from __future__ import annotations

from typing import Any

import pytest

from fakes.admission import admitted_objects
from fakes.compiled_objects import commit_object, engine_with
from gatehouse.apis.resource_limits import parse_limits
from gatehouse.compiler.frontends import combined, gateway_api
from gatehouse.incremental.query import Engine, Key

LIMIT = 3
WORLD = """
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: c}
spec: {controllerName: gatehouse.dev/nginx}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: gw, namespace: gh}
spec:
  gatewayClassName: c
  listeners:
  - {name: http, port: 8080, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}
"""


def route(namespace: str, number: int, kind: str = "HTTPRoute") -> str:
    return f"""
apiVersion: gateway.networking.k8s.io/v1
kind: {kind}
metadata: {{name: r{9 - number}, namespace: {namespace}, creationTimestamp: "2026-01-0{number}T00:00:00Z"}}
spec:
  parentRefs: [{{name: gw, namespace: gh}}]
  hostnames: [{namespace}{number}.example]
"""  # noqa: E501


class World:
    """An engine with a limit, and the routes of tenants."""

    def __init__(self, limit: int, *texts: str) -> None:
        limits = parse_limits(f'{{"routesPerNamespace": {limit}}}')
        settings = gateway_api.ControllerSettings(bind="any", limits=limits)
        self.engine: Engine = engine_with(admitted_objects("---".join((WORLD, *texts))), settings)

    def change(self, text: str, *, delete: bool = False) -> None:
        commit_object(self.engine, text, delete=delete)

    def statuses(self) -> dict[Key, Any]:
        with self.engine.compile() as ask:
            return {
                key: ask(combined.desired_status, key)
                for key in ask(combined.status_subjects)
                if key[0].endswith("Route")
            }

    def hostnames(self) -> set[str]:
        with self.engine.compile() as ask:
            gateway = ask(combined.compile_combined_gateway, ("Gateway", "gh", "gw"))
        assert gateway is not None
        return {
            host.hostname
            for listener in gateway.listeners
            for host in listener.virtual_hosts
            if host.hostname
        }


def evil(*numbers: int) -> list[str]:
    return [route("evil", number) for number in numbers]


def test_oldest_routes_of_a_namespace_are_served() -> None:
    world = World(LIMIT, *evil(5, 1, 4, 2, 3), route("good", 9))
    expected = {"evil1.example", "evil2.example", "evil3.example", "good9.example"}
    assert world.hostnames() == expected


def test_all_kinds_of_routes_count() -> None:
    world = World(LIMIT, *evil(2, 3, 4), route("evil", 1, "GRPCRoute"))
    assert world.hostnames() == {"evil1.example", "evil2.example", "evil3.example"}


def test_excess_routes_have_a_condition_with_the_limit() -> None:
    world = World(LIMIT, *evil(1, 2, 3, 4))
    [parent] = world.statuses()[("HTTPRoute", "evil", "r5")].parents
    [accepted] = parent.conditions
    assert (accepted.type, accepted.status, accepted.reason) == (
        *("Accepted", "False", "TooManyRoutes"),
    )
    limit = "number is more than the limit of 3 (routesPerNamespace, --resource-limits)"
    assert accepted.message == f"parentRefs[0]: routes of namespace evil: {limit}"


def test_new_excess_route_changes_no_status_of_another_route() -> None:
    """A status of each excess route for each new one would be a flood of writes."""
    world = World(LIMIT, *evil(1, 2, 3, 4, 5))
    before = world.statuses()
    world.change(route("evil", 6))
    after = world.statuses()
    assert after.items() >= before.items()


@pytest.mark.parametrize("limit", [0, 1, LIMIT, 9])
def test_changes_of_routes_have_the_result_of_a_new_compiler(limit: int) -> None:
    world = World(limit, *evil(2, 4, 6))
    present = {2, 4, 6}
    for number in (1, 7, 3, 2, 1, 5, 6, 3, 4):
        world.statuses()
        world.change(route("evil", number), delete=number in present)
        present ^= {number}
        again = World(limit, *evil(*present))
        assert world.hostnames() == again.hostnames()
        assert world.statuses() == again.statuses()
        assert len(world.hostnames()) == min(limit, len(present))
