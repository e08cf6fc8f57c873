"""Retries of TrafficPolicies."""

from __future__ import annotations

import json

import pytest

from fakes.hostile_objects import is_admitted
from fakes.policy_manifests import GATEWAY, ROUTE, Object
from fakes.traffic_policy_world import SERVICE, policy, problems, retry_of, world
from gatehouse.compiler.ir.http import Retry
from gatehouse.dataplane.origin import Origin

RETRIED: Object = {"attempts": 2, "codes": [503, 502, 503], "backoff": "50ms"}
RETRIES_FIELD = Origin("TrafficPolicy", "n", "p", "retries")
OF_POLICY = Retry(2, (502, 503), 0.05, RETRIES_FIELD)


@pytest.mark.parametrize(
    ("of_policy", "of_rule", "expected"),
    [
        (RETRIED, {}, OF_POLICY),
        (RETRIED, {"retry": {"attempts": 1}}, Retry(1)),
        (RETRIED, {"retry": {"attempts": 0}}, Retry(0)),
        ({"attempts": 0}, {}, Retry(0, origin=RETRIES_FIELD)),
        ({"attempts": 0}, {"retry": {"attempts": 1}}, Retry(1)),
    ],
)
def test_retries_of_a_policy_are_those_of_rules_that_set_none(
    of_policy: Object, of_rule: Object, expected: Retry | None
) -> None:
    compiled, messages = world(
        policy("gh/outer", GATEWAY, retries={"attempts": 8}),
        policy("n/p", ROUTE, retries=of_policy),
        **of_rule,
    )
    assert retry_of(compiled) == expected
    assert messages == dict.fromkeys(("outer", "p"), "the policy is accepted")


@pytest.mark.parametrize(("kind", "attempts"), [("HTTPRoute", 3), ("GRPCRoute", None)])
def test_retries_of_a_gateway_are_those_of_http_routes(kind: str, attempts: int | None) -> None:
    compiled, _ = world(policy("gh/outer", GATEWAY, retries={"attempts": 3}), kind=kind)
    retry = retry_of(compiled)
    assert (retry and retry.attempts) == attempts


def test_younger_policy_with_retries_yields() -> None:
    first = policy("n/first", ROUTE, 0, retries={"attempts": 3})
    compiled, messages = world(first, policy("n/last", ROUTE, 1, retries={"attempts": 1}))
    assert retry_of(compiled) == Retry(3, origin=Origin("TrafficPolicy", "n", "first", "retries"))
    assert messages["last"].startswith("spec: retries: already set for HTTPRoute r by ")


@pytest.mark.parametrize(
    ("target", "spec", "problem"),
    [
        (SERVICE, {"retries": {"attempts": 1}}, "spec.retries: may not be set for a Service"),
        (
            ROUTE | {"kind": "GRPCRoute"},
            {"retries": {"attempts": 1}},
            "spec.retries: may not be set for a GRPCRoute",
        ),
        (ROUTE, {"retries": {"attempts": 9}}, "spec.retries.attempts: must be from 0 to 8"),
        (ROUTE, {"retries": {**RETRIED, "codes": [200]}}, "spec.retries.codes: must be from 400"),
        (ROUTE, {"retries": {**RETRIED, "backoff": "0s"}}, "spec.retries.backoff: must be greater"),
        (ROUTE, {"retries": {**RETRIED, "backoff": "61s"}}, "spec.retries.backoff: must not be"),
    ],
)
def test_invalid_value_is_named_with_its_field(target: Object, spec: Object, problem: str) -> None:
    [message] = problems(target, **spec)
    assert message.startswith(problem)


@pytest.mark.parametrize(
    ("target", "spec", "admitted"),
    [
        (ROUTE, {"retries": RETRIED}, True),
        (ROUTE, {"retries": {"attempts": 9}}, False),
        (ROUTE, {"retries": {"attempts": 1, "codes": [399]}}, False),
        (ROUTE | {"kind": "GRPCRoute"}, {"retries": {"attempts": 1}}, False),
        (SERVICE, {"retries": {"attempts": 1}}, False),
    ],
)
def test_api_server_admits_only_fields_of_the_kind_of_target(
    target: Object, spec: Object, admitted: bool
) -> None:
    assert is_admitted(json.loads(policy("n/p", target, **spec))) == admitted
