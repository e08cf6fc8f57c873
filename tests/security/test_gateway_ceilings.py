"""Ceilings of what all namespaces together claim of one Gateway.

Who: authors of policies and routes in several namespaces that share a Gateway, some of them with
many objects. Through what: settings that claim memory of the proxy, regular expressions, and the
number of routes. What must hold: the sum stays within the ceiling of the Gateway, a namespace that
claims less than its share is served whatever older objects others have, and the message names
field, value, ceiling and what sets it. Objects that the Gateway does not serve claim nothing.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.admission import admitted_objects
from fakes.compiled_objects import commit_object, engine_with
from gatehouse.apis.resource_limits import (
    RESOURCE_LIMITS,
    ResourceLimits,
    parse_limits,
)
from gatehouse.compiler.frontends import combined, gateway_api
from gatehouse.compiler.frontends.gateway_api.fair_shares import (
    Age,
    SharedClaim,
    exceeding_claims,
    fair_numbers,
)
from gatehouse.compiler.frontends.gateway_api.status.types import PolicyStatus
from gatehouse.incremental.query import Engine, Key

GATEWAY_API = "gateway.networking.k8s.io"
MIB = 1 << 20


def manifest(version: str, kind: str, place: tuple[str, str], spec: Any, created: int = 0) -> str:
    namespace, name = place
    metadata = {"name": name, "creationTimestamp": f"2026-01-01T00:00:{created:02}Z"}
    metadata |= {"namespace": namespace} if namespace else {}
    return json.dumps({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec})


def gateway(name: str, admitted: str = "All", own: dict[str, Any] | None = None) -> str:
    routes = {"namespaces": {"from": admitted}}
    listener = {"name": "http", "port": 80, "protocol": "HTTP", "allowedRoutes": routes}
    infrastructure: dict[str, Any] = {"infrastructure": own} if own else {}
    spec = {"gatewayClassName": "c", "listeners": [listener], **infrastructure}
    return manifest(f"{GATEWAY_API}/v1", "Gateway", ("gh", name), spec)


def route(
    namespace: str, name: str, created: int = 0, expressions: int = 0, parent: str = "gw"
) -> str:
    path = {"type": "RegularExpression", "value": "/a.*"}
    backends = [{"name": "web", "port": 80}]
    rules: list[dict[str, Any]] = [{"backendRefs": backends}]
    if expressions:
        rules.append({"matches": [{"path": path}] * expressions, "backendRefs": backends})
    spec = {
        "parentRefs": [{"name": parent, "namespace": "gh"}],
        "hostnames": [f"{name}.{namespace}.example"],
        "rules": rules,
    }
    return manifest(f"{GATEWAY_API}/v1", "HTTPRoute", (namespace, name), spec, created)


def service(namespace: str) -> str:
    return manifest("v1", "Service", (namespace, "web"), {"ports": [{"name": "p", "port": 80}]})


def zone(namespace: str, name: str, size: int, created: int, target: str = "r") -> str:
    """Return a policy with a zone of so many MiB for a route."""
    rules = [{"key": "$binary_remote_addr", "rate": "1r/s", "zoneSize": f"{size}m"}]
    reference = {"group": GATEWAY_API, "kind": "HTTPRoute", "name": target}
    spec = {"targetRefs": [reference], "rateLimit": {"local": {"rules": rules}}}
    version = "gateway.nginx.org/v1alpha1"
    return manifest(version, "RateLimitPolicy", (namespace, name), spec, created)


def idle(namespace: str, name: str, connections: int, created: int) -> str:
    """Return a policy with so many idle connections to the Service of the namespace."""
    reference = {"group": "", "kind": "Service", "name": "web"}
    spec = {"targetRefs": [reference], "keepAlive": {"connections": connections}}
    version = "gateway.nginx.org/v1alpha1"
    return manifest(version, "UpstreamSettingsPolicy", (namespace, name), spec, created)


class World:
    """An engine with ceilings, a Gateway for all namespaces and one for its own."""

    def __init__(self, limits: dict[str, int], *texts: str, own: Any = None) -> None:
        controller = {"controllerName": "gatehouse.dev/nginx"}
        base = (
            manifest(f"{GATEWAY_API}/v1", "GatewayClass", ("", "c"), controller),
            gateway("gw", own=own),
            gateway("private", "Same"),
        )
        settings = gateway_api.ControllerSettings(
            bind="any", limits=parse_limits(json.dumps(limits))
        )
        objects = admitted_objects("\n---\n".join((*base, *texts)))
        self.engine: Engine = engine_with(objects, settings)

    def put(self, text: str, *, delete: bool = False) -> None:
        commit_object(self.engine, text, delete=delete)

    def statuses(self) -> dict[Key, Any]:
        with self.engine.compile() as ask:
            return {
                key: ask(combined.desired_status, key)
                for key in ask(combined.status_subjects)
                if key[1]
            }

    def accepted(self, kind: str, namespace: str, name: str) -> Any:
        """Return the condition ``Accepted`` of an object at the Gateway."""
        status = self.statuses()[(kind, namespace, name)]
        entries = getattr(status, "ancestors", None) or getattr(status, "parents", None)
        assert entries, status
        return next(entry for entry in entries[0].conditions if entry.type == "Accepted")

    def served(self, kind: str) -> set[str]:
        """Return the accepted objects of a kind, as ``namespace/name``."""
        statuses = {key: status for key, status in self.statuses().items() if key[0] == kind}
        return {
            f"{key[1]}/{key[2]}"
            for key, status in statuses.items()
            if status not in (None, PolicyStatus()) and self.accepted(*key).status == "True"
        }

    def hostnames(self) -> set[str]:
        with self.engine.compile() as ask:
            compiled = ask(combined.compile_combined_gateway, ("Gateway", "gh", "gw"))
        assert compiled is not None
        return {
            host.hostname
            for listener in compiled.listeners
            for host in listener.virtual_hosts
            if host.hostname
        }


def test_namespace_with_few_routes_is_served_beside_older_ones_of_others() -> None:
    many = [route("many", f"r{number}", number) for number in range(5)]
    world = World({"routesPerGateway": 4}, *many, route("few", "r", 50))
    assert world.served("HTTPRoute") == {"many/r0", "many/r1", "many/r2", "few/r"}
    expected = {"r.few.example", *(f"r{number}.many.example" for number in range(3))}
    assert world.hostnames() == expected
    youngest = world.accepted("HTTPRoute", "many", "r4")
    assert (youngest.status, youngest.reason) == ("False", "TooManyRoutes")
    assert youngest.message == (
        "parentRefs[0]: routes of Gateway gh/gw: number is more than the limit of 4 "
        "(routesPerGateway, --resource-limits)"
    )


def test_new_excess_route_changes_no_status_of_another_route() -> None:
    routes = [route("many", f"r{number}", number) for number in range(6)]
    world = World({"routesPerGateway": 4}, *routes)
    before = world.statuses()
    world.put(route("many", "r6", 6))
    after = world.statuses()
    assert after.items() >= before.items()


def test_routes_that_no_listener_admits_take_nothing_of_the_others() -> None:
    strangers = [route(f"x{number}", "r", parent="private") for number in range(5)]
    own = [route("gh", f"r{number}", number, parent="private") for number in range(3)]
    world = World({"routesPerGateway": 2}, *strangers, *own)
    assert world.served("HTTPRoute") == {"gh/r0", "gh/r1"}
    assert world.accepted("HTTPRoute", "x0", "r").reason == "NotAllowedByListeners"


def test_routes_beyond_the_limit_of_their_namespace_take_nothing_of_the_others() -> None:
    many = [route("many", f"r{number}", number) for number in range(9)]
    limits = {"routesPerGateway": 4, "routesPerNamespace": 2}
    world = World(limits, *many, route("few", "a", 50), route("few", "b", 51))
    assert world.served("HTTPRoute") == {"many/r0", "many/r1", "few/a", "few/b"}


@pytest.mark.parametrize("limit", [0, 1, 3, 4, 9])
def test_changes_of_routes_have_the_result_of_a_new_compiler(limit: int) -> None:
    limits = {"routesPerGateway": limit, "regularExpressionsPerGateway": limit}
    names = {number: ("ab"[number % 3 % 2], f"r{9 - number}", number) for number in range(8)}
    texts = {number: route(*names[number], number % 3) for number in names}
    present = {2, 4, 6}
    world = World(limits, *(texts[number] for number in present))
    for number in (1, 7, 3, 2, 1, 5, 6, 3, 4, 0, 6):
        world.statuses()
        world.put(texts[number], delete=number in present)
        present ^= {number}
        again = World(limits, *(texts[entry] for entry in sorted(present)))
        assert world.hostnames() == again.hostnames()
        assert world.statuses() == again.statuses()
        assert len(world.hostnames()) == min(limit, len(present))


def test_regular_expressions_of_all_namespaces_are_added_up() -> None:
    many = [route("many", f"r{number}", number, 2) for number in range(4)]
    world = World({"regularExpressionsPerGateway": 5}, *many, route("few", "r", 50, 1))
    conditions = {
        key[1:]: {entry.type: entry.message for entry in status.parents[0].conditions}
        for key, status in world.statuses().items()
        if key[0] == "HTTPRoute"
    }
    partial = {place for place, by_type in conditions.items() if "PartiallyInvalid" in by_type}
    assert partial == {("many", "r2"), ("many", "r3")}
    assert conditions[("many", "r3")]["PartiallyInvalid"] == (
        "Dropped Rule: rules[1].matches: regular expressions of Gateway gh/gw: number is more than "
        "the limit of 5 (regularExpressionsPerGateway, --resource-limits)"
    )
    world.put(many[0], delete=True)
    status = world.statuses()[("HTTPRoute", "many", "r2")]
    assert "PartiallyInvalid" not in {entry.type for entry in status.parents[0].conditions}


def test_zones_of_all_namespaces_are_added_up_and_shared() -> None:
    objects = [route(namespace, "r") for namespace in ("many", "few")]
    objects += [route("many", f"r{number}") for number in range(4)]
    objects += [zone("many", f"z{number}", 10, number, f"r{number}") for number in range(4)]
    objects += [zone("few", "z", 10, 50)]
    world = World({"zoneBytesPerGateway": 35 * MIB}, *objects)
    assert world.served("RateLimitPolicy") == {"many/z0", "many/z1", "few/z"}
    assert world.accepted("RateLimitPolicy", "many", "z3").message == (
        f"spec.rateLimit.local.rules: {10 * MIB} in addition to other claims at Gateway gh/gw: "
        f"sum is more than the limit of {35 * MIB} bytes (zoneBytesPerGateway, --resource-limits)"
    )
    world.put(zone("many", "z1", 10, 1, "r1"), delete=True)
    assert world.served("RateLimitPolicy") == {"many/z0", "many/z2", "few/z"}


def test_idle_connections_of_all_namespaces_are_added_up_and_shared() -> None:
    objects = [part for name in "abc" for part in (service(name), route(name, "r"))]
    policies = [idle(name, "p", 60 + 10 * number, number) for number, name in enumerate("abc")]
    world = World({"keepAliveConnectionsPerGateway": 150}, *objects, *policies)
    assert world.served("UpstreamSettingsPolicy") == {"a/p", "b/p"}


def test_policies_of_services_that_the_gateway_does_not_serve_claim_nothing() -> None:
    objects = [service("a"), service("b"), idle("a", "p", 100, 9), idle("b", "p", 100, 0)]
    # Without a ReferenceGrant, the route of c refers to the Service of b in vain.
    stranger = json.loads(route("c", "r"))
    stranger["spec"]["rules"][0]["backendRefs"][0]["namespace"] = "b"
    limits = {"keepAliveConnectionsPerGateway": 150}
    world = World(limits, *objects, route("a", "r"), json.dumps(stranger))
    assert world.served("UpstreamSettingsPolicy") == {"a/p"}
    world.put(route("b", "r"))
    assert world.served("UpstreamSettingsPolicy") == {"b/p"}


def test_parameters_of_a_gateway_lower_a_ceiling_and_the_message_names_them() -> None:
    limits = {"routesPerGateway": 1, "zoneBytesPerGateway": 5 * MIB}
    version = "gatehouse.dev/v1alpha1"
    parameters = manifest(version, "GatewayParameters", ("gh", "p"), {"resourceLimits": limits})
    own = {"parametersRef": {"group": "gatehouse.dev", "kind": "GatewayParameters", "name": "p"}}
    objects = (route("a", "r"), route("a", "s", 1), zone("a", "z", 6, 0))
    world = World({}, parameters, *objects, own=own)
    source = "spec.resourceLimits of GatewayParameters gh/p"
    assert f"1 (routesPerGateway, {source})" in world.accepted("HTTPRoute", "a", "s").message
    message = world.accepted("RateLimitPolicy", "a", "z").message
    assert f"{5 * MIB} bytes (zoneBytesPerGateway, {source})" in message


NAMESPACES = st.lists(st.lists(st.integers(0, 9), max_size=8), min_size=1, max_size=5)


def ages_of(namespaces: list[list[int]]) -> dict[str, list[Age]]:
    return {
        f"n{place}": sorted(
            (f"{created}", ("HTTPRoute", f"n{place}", f"r{index}"))
            for index, created in enumerate(own)
        )
        for place, own in enumerate(namespaces)
    }


@given(NAMESPACES, st.integers(0, 30))
def test_namespaces_get_equal_shares_of_a_number(namespaces: list[list[int]], limit: int) -> None:
    ages = ages_of(namespaces)
    numbers = fair_numbers(ages, limit)
    totals = {namespace: len(own) for namespace, own in ages.items()}
    assert sum(numbers.values()) == min(limit, sum(totals.values()))
    losing = [number for name, number in numbers.items() if number < totals[name]]
    assert all(number <= min(losing, default=limit) + 1 for number in numbers.values())
    claims = [SharedClaim(age, {"routes": 1}) for own in ages.values() for age in own]
    excess = {age[1] for name, own in ages.items() for age in own[numbers[name] :]}
    assert excess == set(exceeding_claims(claims, {"routes": limit}))


@given(NAMESPACES, st.integers(0, 40), st.integers(0, 40))
def test_namespace_within_an_equal_share_loses_nothing(
    namespaces: list[list[int]], zones: int, connections: int
) -> None:
    ceilings = {"zones": zones, "connections": connections}
    claims = [
        SharedClaim(age, {"zones": int(age[0]), "connections": len(age[1][2]) % 3})
        for own in ages_of(namespaces).values()
        for age in own
    ]
    excess = exceeding_claims(claims, ceilings)
    for name, ceiling in ceilings.items():
        served = [claim for claim in claims if claim.age[1] not in excess]
        assert sum(claim.amounts[name] for claim in served) <= ceiling
    for namespace in {claim.namespace for claim in claims}:
        own = [claim for claim in claims if claim.namespace == namespace]
        fits = all(
            sum(claim.amounts[name] for claim in own) * len(namespaces) <= ceiling
            for name, ceiling in ceilings.items()
        )
        assert not fits or not excess.keys() & {claim.age[1] for claim in own}


def test_default_ceilings_bound_the_memory_of_a_gateway() -> None:
    claimed = sum(
        ResourceLimits().of(name) * (limit.bytes_per_unit or 0)
        for name, limit in RESOURCE_LIMITS.items()
        if name.endswith("PerGateway")
    )
    assert claimed < 1200 * MIB
