"""Addresses of clients in SecurityPolicies."""

from __future__ import annotations

import json

import msgspec
import pytest

from fakes.hostile_objects import is_admitted
from fakes.policy_manifests import GATEWAY, ROUTE
from fakes.security_policy_world import BASIC, World, assert_invalid, assert_refused, policy
from gatehouse.apis import security_policies as api
from gatehouse.apis.resource_limits import ResourceLimits
from gatehouse.compiler.frontends.gateway_api.extensions.security_policies import security_policy
from gatehouse.compiler.ir.authentication import Basic, ClientNetworks
from gatehouse.dataplane.origin import Origin


def test_addresses_are_networks_and_those_of_a_route_replace_those_of_its_gateway() -> None:
    world = World(
        policy("gh/outer", GATEWAY, clientAddresses={"allow": ["10.0.0.0/8"]}, basicAuth=BASIC),
        policy(
            "n/inner",
            ROUTE,
            clientAddresses={"allow": ["::/0", "192.0.2.1"], "deny": ["2001:DB8::/32"]},
        ),
    )
    route = world.route()
    assert route.client_addresses == ClientNetworks(
        allow=("::/0", "192.0.2.1/32"),
        deny=("2001:db8::/32",),
        origin=Origin("SecurityPolicy", "n", "inner", "clientAddresses"),
    )
    assert isinstance(route.authentication, Basic)


@pytest.mark.parametrize(
    "text", ["10.0.0.1/8", "10.0.0.0/33", "a.example", "fe80::1%eth0", "", "::ffff:192.0.2.0/120"]
)
def test_address_that_is_no_network_makes_routes_answer_500(text: str) -> None:
    raw = policy("n/p", ROUTE, clientAddresses={"deny": [text]})
    engine = World(raw) if is_admitted(json.loads(raw)) else None
    view = msgspec.convert(json.loads(raw), api.SecurityPolicy)
    [problem] = security_policy(view, ResourceLimits()).problems
    assert problem.startswith(f"spec.clientAddresses.deny[0]: invalid value {text!r}: ")
    if engine is not None:
        assert_refused(engine)
        assert engine.accepted("p") == problem


def test_invalid_list_is_rejected_by_the_crd_and_without_it() -> None:
    assert_invalid(ROUTE, {"clientAddresses": {}}, "spec.clientAddresses: needs allow or deny")
