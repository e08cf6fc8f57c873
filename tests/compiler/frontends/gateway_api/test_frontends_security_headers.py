"""Response headers of SecurityPolicies."""

from __future__ import annotations

import pytest

from fakes.policy_manifests import GATEWAY, ROUTE, Object
from fakes.security_policy_world import SERVED, World, assert_invalid, policy


def test_each_header_is_a_field_and_filters_of_a_rule_precede_it() -> None:
    modifier = {"set": [{"name": "X-Frame-Options", "value": "ALLOW-FROM https://a.example"}]}
    rule = {
        **SERVED,
        "filters": [{"type": "ResponseHeaderModifier", "responseHeaderModifier": modifier}],
    }
    transport = {"maxAgeSeconds": 60, "includeSubdomains": True, "preload": True}
    outer = {
        "strictTransportSecurity": transport,
        "frameOptions": "Deny",
        "referrerPolicy": "UnsafeURL",
        "contentTypeOptions": "NoSniff",
    }
    inner = {"referrerPolicy": "SameOrigin", "contentSecurityPolicy": "default-src 'self'"}
    world = World(
        policy("gh/outer", GATEWAY, securityHeaders=outer),
        policy("n/inner", ROUTE, securityHeaders=inner),
        rule=rule,
    )
    edit = world.route().response_headers
    assert {(one.name, one.value) for one in edit.set} == {
        ("Strict-Transport-Security", "max-age=60; includeSubDomains; preload"),
        ("X-Frame-Options", "ALLOW-FROM https://a.example"),
        ("Referrer-Policy", "same-origin"),
        ("X-Content-Type-Options", "nosniff"),
        ("Content-Security-Policy", "default-src 'self'"),
    }
    assert not edit.add


def test_policies_with_different_headers_apply_together() -> None:
    world = World(
        policy("n/a", ROUTE, 0, securityHeaders={"frameOptions": "Deny"}),
        policy("n/b", ROUTE, 1, securityHeaders={"contentTypeOptions": "NoSniff"}),
        policy("n/c", ROUTE, 2, securityHeaders={"frameOptions": "SameOrigin"}),
    )
    headers = {one.name: one.value for one in world.route().response_headers.set}
    assert headers == {"X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff"}
    assert world.conditions["c", "Accepted"] == (
        "Conflicted",
        "spec: securityHeaders.frameOptions: already set for HTTPRoute r by SecurityPolicy n/a, "
        "which is older or first by name",
    )


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        pytest.param(
            {"securityHeaders": {"frameOptions": "Allow"}},
            "spec.securityHeaders.frameOptions: must be one of Deny, SameOrigin",
            id="frame options",
        ),
        pytest.param(
            {"securityHeaders": {"contentSecurityPolicy": "a\nb"}},
            "spec.securityHeaders.contentSecurityPolicy: must be up to 2048 printable characters "
            "of ASCII",
            id="policy of two lines",
        ),
        pytest.param(
            {"securityHeaders": {"strictTransportSecurity": {"maxAgeSeconds": -1}}},
            "spec.securityHeaders.strictTransportSecurity.maxAgeSeconds: must be from 0 to "
            "2147483647",
            id="negative age",
        ),
    ],
)
def test_invalid_header_is_rejected_by_the_crd_and_without_it(spec: Object, problem: str) -> None:
    assert_invalid(ROUTE, spec, problem)
