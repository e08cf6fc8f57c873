"""Passwords and tokens of SecurityPolicies."""

from __future__ import annotations

import pytest

from fakes.policy_manifests import GATEWAY, ROUTE, Object
from fakes.security_policy_world import (
    BASIC,
    TOKENS,
    World,
    assert_invalid,
    assert_refused,
    policy,
    secret,
)
from gatehouse.compiler.ir.authentication import Basic, Jwt


def test_policy_reads_only_secrets_of_its_own_namespace() -> None:
    # The Secret exists in the namespace of the route, and not in that of the policy's Gateway.
    world = World(
        secret("n/staff", "bob:{PLAIN}b"),
        policy("gh/p", GATEWAY, basicAuth={"secretRef": {"name": "staff"}}),
    )
    assert world.accepted("p") == "spec.basicAuth.secretRef: Secret gh/staff not found"
    assert_refused(world)


def test_passwords_and_tokens_of_two_policies_are_in_conflict() -> None:
    world = World(policy("n/a", ROUTE, basicAuth=BASIC), policy("n/b", ROUTE, jwt=TOKENS))
    assert isinstance(world.route().authentication, Basic)
    assert world.conditions["b", "Accepted"] == (
        "Conflicted",
        "spec: basicAuth, jwt, apiKeys or oidc: already set for HTTPRoute r by SecurityPolicy n/a, "
        "which is older or first by name",
    )


def test_keys_are_fetched_at_the_interval_of_the_policy() -> None:
    remote = {"uri": "https://id.example/keys"}
    world = World(policy("n/p", ROUTE, jwt={"remote": remote, "refreshInterval": "1m"}))
    [fetch] = world.fetches
    assert (fetch.url, fetch.every) == ("https://id.example/keys", 60)


def test_required_claims_must_all_have_one_of_their_values() -> None:
    claims = [{"name": "aud", "values": ["a", "b"]}, {"name": "scope", "values": ["read"]}]
    tokens = World(policy("n/p", ROUTE, jwt=TOKENS | {"requiredClaims": claims})).route()
    assert isinstance(tokens.authentication, Jwt)
    [requirement] = tokens.authentication.authorization.requirements
    assert requirement.every
    assert [(one.name, one.values, one.regex, one.header) for one in requirement.claims] == [
        ("aud", ("a", "b"), False, ""),
        ("scope", ("read",), False, ""),
    ]


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        pytest.param(
            {"basicAuth": BASIC, "jwt": TOKENS},
            "spec.jwt: may not be set with basicAuth",
            id="both",
        ),
        pytest.param({"jwt": {}}, "spec.jwt: needs either secretRef or remote", id="no keys"),
        pytest.param(
            {"jwt": TOKENS | {"remote": {"uri": "https://id.example/keys"}}},
            "spec.jwt: needs either secretRef or remote",
            id="keys twice",
        ),
        pytest.param(
            {"jwt": TOKENS | {"refreshInterval": "1m"}},
            "spec.jwt.refreshInterval: may be set with remote only",
            id="interval without fetches",
        ),
        pytest.param(
            {"jwt": TOKENS | {"leeway": "5"}},
            "spec.jwt.leeway: invalid value '5': must be a duration such as 500ms or 10s",
            id="leeway without a unit",
        ),
        pytest.param(
            {"jwt": TOKENS | {"requiredClaims": [{"name": "aud", "values": []}]}},
            "spec.jwt.requiredClaims[0]: needs a name and values",
            id="claim without values",
        ),
    ],
)
def test_invalid_authentication_is_rejected_by_the_crd_and_without_it(
    spec: Object, problem: str
) -> None:
    assert_invalid(ROUTE, spec, problem)
