"""Rate limits of TrafficPolicies."""

from __future__ import annotations

import json

import pytest

from fakes.hostile_objects import is_admitted
from fakes.policy_manifests import GATEWAY, ROUTE, Object, manifest
from fakes.traffic_policy_world import MIB, policy, problems, route_settings, world
from gatehouse.compiler.ir.settings import Attribute
from gatehouse.dataplane.origin import Origin


def test_rates_are_counted_by_key_without_delay() -> None:
    rules = [
        {"requests": 10, "per": "Minute", "burst": 5, "key": {"type": "Header", "name": "X-A"}},
        {"requests": 1, "per": "Second", "key": {"type": "ClientAddress"}},
        {"requests": 2, "per": "Second"},
    ]
    limited = {"local": {"rules": rules}, "statusCode": 429, "dryRun": True}
    compiled, _ = world(policy("n/p", ROUTE, rateLimit=limited))
    rates = route_settings(compiled).rates
    assert [(one.key, one.rate, one.per, one.burst, one.delay) for one in rates.limits] == [
        ((Attribute("http_x_a"),), 10, "minute", 5, None),
        ((Attribute("binary_remote_addr"),), 1, "second", 0, None),
        (("all",), 2, "second", 0, None),
    ]
    assert (rates.status, rates.dry_run) == (429, True)


def test_shared_rules_are_beside_the_local_ones_and_claim_no_memory() -> None:
    rule = {"requests": 1, "per": "Second"}
    compiled, messages = world(
        policy("gh/p", GATEWAY, rateLimit={"shared": {"rules": [rule]}, "statusCode": 429}),
        policy("n/p", ROUTE, rateLimit={"local": {"rules": [rule]}}),
        policy("n/q", ROUTE, 1, rateLimit={"shared": {"rules": [rule, rule]}}),
        limits=json.dumps({"zoneBytesPerNamespace": 10 * MIB}),
    )
    rates = route_settings(compiled).rates
    # Those of the route replace those of its Gateway.
    assert [limit.name for limit in rates.shared] == ["TrafficPolicy/n/q/0", "TrafficPolicy/n/q/1"]
    assert [limit.name for limit in rates.limits] == ["TrafficPolicy/n/p/0"]
    assert rates.shared[1].origin == Origin("TrafficPolicy", "n", "q", "rateLimit.shared.rules[1]")
    assert rates.status == 429
    assert {*messages.values()} == {"the policy is accepted"}


def test_policies_of_two_kinds_and_one_name_have_counters_of_their_own() -> None:
    own = policy("n/p", ROUTE, rateLimit={"local": {"rules": [{"requests": 1, "per": "Second"}]}})
    rules = [{"key": "all", "rate": "2r/s"}]
    spec = {"targetRefs": [ROUTE], "rateLimit": {"local": {"rules": rules}}}
    compiled, _ = world(
        own, manifest("gateway.nginx.org/v1alpha1", "RateLimitPolicy", "n/p", spec=spec)
    )
    limits = route_settings(compiled).rates.limits
    assert sorted(limit.rate for limit in limits) == [1, 2]
    assert len({limit.name for limit in limits}) == 2


def test_counters_claim_memory_of_the_namespace_with_those_of_other_kinds() -> None:
    rules = [{"key": "$host", "rate": "1r/s", "zoneSize": "20m"}]
    spec = {"targetRefs": [ROUTE], "rateLimit": {"local": {"rules": rules}}}
    older = manifest("gateway.nginx.org/v1alpha1", "RateLimitPolicy", "n/older", spec=spec)
    limited = {"local": {"rules": [{"requests": 1, "per": "Second"}] * 2}}
    own = policy("n/p", ROUTE, 1, rateLimit=limited)
    ceiling = json.dumps({"zoneBytesPerNamespace": 39 * MIB})
    _, messages = world(older, own, limits=ceiling)
    assert messages["p"].startswith(
        f"spec.rateLimit.local.rules: {20 * MIB} in addition to {20 * MIB} of older policies in "
        "namespace n: "
    )
    assert messages["older"] == "the policy is accepted"
    _, messages = world(older, own)
    assert messages["p"] == "the policy is accepted"


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ({"requests": 0}, "requests: must be from 1 to 1000000"),
        ({"burst": -1}, "burst: must be from 0 to 1000000"),
        ({"per": "Hour"}, "per: must be one of Second, Minute"),
        ({"key": {"type": "Cookie", "name": "a"}}, "key.type: must be one of ClientAddress, "),
        ({"key": {"type": "Header", "name": "a_b"}}, "key.name: must match "),
        ({"key": {"type": "Header", "name": "$host"}}, "key.name: must match "),
        ({"key": {"type": "QueryParameter"}}, "key.name: must match "),
        ({"key": {"type": "ClientAddress", "name": "a"}}, "key.name: may not be set for"),
    ],
)
@pytest.mark.parametrize("counted", ["local", "shared"])
def test_invalid_rule_is_named_with_its_field(rule: Object, problem: str, counted: str) -> None:
    rules = [{"requests": 1, "per": "Second", **rule}]
    [message] = problems(rateLimit={counted: {"rules": rules}})
    assert message.startswith(f"spec.rateLimit.{counted}.rules[0].{problem}")


@pytest.mark.parametrize(
    ("key", "admitted"),
    [
        ({"type": "ClientAddress"}, True),
        ({"type": "ClientAddress", "name": "a"}, False),
        ({"type": "Header", "name": "X-A"}, True),
        ({"type": "Header", "name": "x_a"}, False),
        ({"type": "Header"}, False),
        ({"type": "QueryParameter", "name": "x_a"}, True),
        ({"type": "QueryParameter", "name": "x-a"}, False),
    ],
)
@pytest.mark.parametrize("counted", ["local", "shared"])
def test_api_server_admits_only_names_that_both_proxies_read(
    key: Object, admitted: bool, counted: str
) -> None:
    rule = {"requests": 1, "per": "Second", "key": key}
    spec: Object = {"rateLimit": {counted: {"rules": [rule]}}}
    assert is_admitted(json.loads(policy("n/p", ROUTE, **spec))) == admitted


def test_invalid_status_code_is_named_with_its_field() -> None:
    [message] = problems(rateLimit={"statusCode": 404})
    assert message.startswith("spec.rateLimit.statusCode: must be one of 42")
