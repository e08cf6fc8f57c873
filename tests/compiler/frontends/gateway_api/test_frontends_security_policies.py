"""SecurityPolicies: which checks a route has, whose, and that none is ever left out."""

from __future__ import annotations

import pytest

from fakes.policy_manifests import GATEWAY, GROUP, ROUTE, Object, manifest
from fakes.security_policy_world import (
    ACCEPTED,
    BASIC,
    SERVED,
    TOKENS,
    World,
    assert_invalid,
    assert_refused,
    policy,
    server,
)
from gatehouse.compiler.ir.authentication import Basic, Jwt
from gatehouse.compiler.ir.http import Forward
from gatehouse.dataplane.origin import Origin


def test_route_has_the_checks_of_its_gateway_that_it_does_not_set() -> None:
    world = World(
        policy("gh/outer", GATEWAY, basicAuth=BASIC, externalAuth=server("gh")),
        manifest("v1", "Service", "gh/s", spec={"ports": [{"name": "p", "port": 80}]}),
        policy("n/inner", ROUTE, jwt=TOKENS | {"leeway": "5s"}),
    )
    route = world.route()
    tokens = route.authentication
    assert isinstance(tokens, Jwt)
    assert (tokens.realm, tokens.leeway) == ("Restricted", 5)
    assert tokens.origin == Origin("SecurityPolicy", "n", "inner", "jwt")
    assert route.external_auth is not None
    assert route.external_auth.origin == Origin("SecurityPolicy", "gh", "outer", "externalAuth")
    assert route.external_auth.cluster in {cluster.name for cluster in world.compiled.clusters}
    assert world.accepted("outer") == world.accepted("inner") == ACCEPTED


@pytest.mark.parametrize(
    "rule",
    [
        SERVED,
        {"filters": [{"type": "RequestRedirect", "requestRedirect": {"hostname": "b.example"}}]},
        {"backendRefs": [{"name": "gone", "port": 80}]},
        {},
    ],
    ids=["backend", "redirect", "without the backend", "without backends"],
)
@pytest.mark.parametrize("name", ["gh/p", "n/p"])
def test_every_kind_of_answer_is_behind_the_checks(rule: Object, name: str) -> None:
    target = ROUTE if name == "n/p" else GATEWAY
    route = World(policy(name, target, basicAuth=BASIC | {"realm": "members"}), rule=rule).route()
    assert isinstance(route.authentication, Basic)
    assert route.authentication.realm == "members"


def test_calls_are_behind_the_checks_too() -> None:
    def calls(name: str) -> str:
        parents, hosts = [{"name": "gw", "namespace": "gh"}], [f"{name}.example"]
        spec = {"parentRefs": parents, "hostnames": hosts, "rules": [SERVED]}
        return manifest(f"{GROUP}/v1", "GRPCRoute", f"n/{name}", spec=spec)

    target = {"group": GROUP, "kind": "GRPCRoute", "name": "checked"}
    checked = policy("n/p", target, basicAuth=BASIC, externalAuth=server())
    world = World(calls("checked"), calls("open"), checked)
    route = world.route("n/checked/0/0")
    assert isinstance(route.authentication, Basic)
    assert route.external_auth is not None
    assert world.route("n/open/0/0").authentication is None


def test_filter_of_a_rule_replaces_the_check_of_the_same_kind() -> None:
    reference = {"group": "gateway.nginx.org", "kind": "AuthenticationFilter", "name": "own"}
    own = {**SERVED, "filters": [{"type": "ExtensionRef", "extensionRef": reference}]}
    spec = {"type": "Basic", "basic": {"realm": "own", "secretRef": {"name": "users"}}}
    world = World(
        manifest("gateway.nginx.org/v1alpha1", "AuthenticationFilter", "n/own", spec=spec),
        policy("gh/outer", GATEWAY, jwt=TOKENS),
        policy("n/p", ROUTE, externalAuth=server()),
        rule=own,
    )
    route = world.route()
    assert isinstance(route.authentication, Basic)
    assert route.authentication.realm == "own"
    assert route.external_auth is not None


@pytest.mark.parametrize("target", [ROUTE, GATEWAY])
def test_policy_has_no_effect_on_objects_of_other_namespaces(target: Object) -> None:
    checked = policy("evil/p", target, basicAuth={"secretRef": {"name": "users"}})
    assert World(checked).compiled == World().compiled


FAILING: dict[str, tuple[Object, str]] = {
    "no Secret": (
        {"basicAuth": {"secretRef": {"name": "gone"}}},
        "spec.basicAuth.secretRef: Secret n/gone not found",
    ),
    "no users": (
        {"basicAuth": {"secretRef": {"name": "empty"}}},
        "spec.basicAuth.secretRef: data[auth] must have a line name:hash for each user",
    ),
    "no keys": (
        {"jwt": {"secretRef": {"name": "users"}}},
        "spec.jwt.secretRef: data[auth]: must be a JSON Web Key Set with a supported key",
    ),
    "keys that are not fetched yet": (
        {"jwt": {"remote": {"uri": "https://id.example/keys"}}},
        "spec.jwt.remote.uri: https://id.example/keys is not fetched yet",
    ),
    "wrong header": (
        {"externalAuth": server(allowedHeaders=["X A"])},
        "spec.externalAuth.http.allowedHeaders[0]: 'X A' must be a token",
    ),
}


@pytest.mark.parametrize("spec", FAILING)
def test_routes_answer_500_without_a_check_that_they_need(spec: str) -> None:
    fields, message = FAILING[spec]
    world = World(policy("n/p", ROUTE, **fields))
    reason, message_here = world.conditions["p", "Accepted"]
    assert (reason, message_here.startswith(message)) == ("Invalid", True)
    assert_refused(world)
    reason, message_here = world.of_routes["r", "ResolvedRefs"]
    assert (reason, message_here.startswith(f"SecurityPolicy n/p: {message}")) == (
        "InvalidFilter",
        True,
    )


def test_route_of_another_namespace_does_not_learn_why_its_gateway_fails() -> None:
    world = World(policy("gh/p", GATEWAY, basicAuth={"secretRef": {"name": "hidden"}}))
    assert_refused(world)
    assert world.of_routes["r", "ResolvedRefs"] == (
        "InvalidFilter",
        "SecurityPolicy gh/p: is not served: see its status",
    )


def test_own_check_of_a_route_replaces_one_of_its_gateway_that_fails() -> None:
    world = World(
        policy("gh/outer", GATEWAY, basicAuth={"secretRef": {"name": "gone"}}),
        policy("n/inner", ROUTE, basicAuth=BASIC),
    )
    assert isinstance(world.route().action, Forward)
    assert isinstance(world.route().authentication, Basic)


def test_older_policy_wins_and_the_other_fields_of_the_younger_one_stay() -> None:
    world = World(
        policy("n/older", ROUTE, 0, externalAuth=server(path="/older")),
        policy("n/younger", ROUTE, 1, externalAuth=server(path="/younger"), basicAuth=BASIC),
    )
    route = world.route()
    assert route.external_auth is not None
    assert route.external_auth.path == "/older"
    assert isinstance(route.authentication, Basic)
    assert world.conditions["younger", "Accepted"] == (
        "Conflicted",
        "spec: externalAuth: already set for HTTPRoute r by SecurityPolicy n/older, which is "
        "older or first by name",
    )


def test_accepted_policy_precedes_an_older_one_that_is_in_conflict() -> None:
    world = World(
        policy("n/first", ROUTE, 0, externalAuth=server()),
        policy("n/second", ROUTE, 1, externalAuth=server(), basicAuth=BASIC),
        policy("n/third", ROUTE, 2, jwt=TOKENS),
    )
    assert [world.conditions[name, "Accepted"][0] for name in ("first", "second", "third")] == [
        "Accepted",
        "Conflicted",
        "Accepted",
    ]
    assert isinstance(world.route().authentication, Jwt)


def test_failing_older_policy_is_not_replaced_by_a_younger_one() -> None:
    world = World(
        policy("n/older", ROUTE, 0, basicAuth={"secretRef": {"name": "gone"}}),
        policy("n/younger", ROUTE, 1, basicAuth=BASIC),
    )
    assert_refused(world)
    assert world.conditions["younger", "Accepted"][0] == "Conflicted"


@pytest.mark.parametrize(
    ("target", "spec", "problem"),
    [
        pytest.param(
            {"group": "", "kind": "Service", "name": "s"},
            {"basicAuth": BASIC},
            "spec.targetRefs[0]: kind Service is not supported",
            id="Service",
        ),
        pytest.param(
            {"group": "x.example", "kind": "Gateway", "name": "gw"},
            {"basicAuth": BASIC},
            "spec.targetRefs[0]: kind x.example/Gateway is not supported",
            id="kind of another group",
        ),
    ],
)
def test_invalid_target_is_rejected_by_the_crd_and_without_it(
    target: Object, spec: Object, problem: str
) -> None:
    assert_invalid(target, spec, problem)
