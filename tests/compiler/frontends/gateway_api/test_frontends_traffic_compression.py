"""Compression of TrafficPolicies."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fakes.hostile_objects import is_admitted
from fakes.policy_manifests import GATEWAY, ROUTE, Object
from fakes.traffic_policy_world import SERVICE, policy, problems, route_settings, world
from gatehouse.compiler.frontends.gateway_api.extensions.portable_policies import COMPRESSED_TYPES
from gatehouse.dataplane.origin import Origin


def compressed(*types: str, **fields: Any) -> Object:
    return {"compression": {"mode": "Enabled", "types": list(types) or ["text/a"], **fields}}


@pytest.mark.parametrize(
    ("compression", "expected"),
    [
        ({"mode": "Disabled"}, (False, 1024, ("text/html", *COMPRESSED_TYPES))),
        (
            {"mode": "Enabled", "types": ["text/a", "text/html"], "minLength": 30},
            (True, 30, ("text/html", "text/a")),
        ),
    ],
)
def test_compression_of_a_route_replaces_that_of_its_gateway(
    compression: Object, expected: tuple[bool, int, tuple[str, ...]]
) -> None:
    outer = {"mode": "Enabled", "types": ["text/b"], "minLength": 99}
    compiled, _ = world(
        policy("gh/outer", GATEWAY, compression=outer),
        policy("n/inner", ROUTE, compression=compression),
    )
    settings = route_settings(compiled).compression
    assert (settings.enabled, settings.min_length, settings.types) == expected
    origin = Origin("TrafficPolicy", "n", "inner", "compression")
    assert settings.sources == (("enabled", origin),)


@pytest.mark.parametrize(
    ("target", "spec", "problem"),
    [
        (SERVICE, {"compression": {"mode": "Enabled"}}, "spec.compression: may not be set for a"),
        (ROUTE, {"compression": {"mode": "On"}}, "spec.compression.mode: must be one of Enabled, "),
        (ROUTE, compressed("a b"), "spec.compression.types[0]: must match "),
        (
            ROUTE,
            compressed("a/" + "b" * 45),
            "spec.compression.types[0]: longer than 46 characters",
        ),
        (ROUTE, compressed("application/grpc+json"), "spec.compression.types[0]: messages of gRPC"),
        (ROUTE, compressed(minLength=29), "spec.compression.minLength: must be from 30 to "),
    ],
)
def test_invalid_value_is_named_with_its_field(target: Object, spec: Object, problem: str) -> None:
    [message] = problems(target, **spec)
    assert message.startswith(problem)


@pytest.mark.parametrize(
    ("target", "spec", "admitted"),
    [
        (ROUTE, compressed("text/a", minLength=30), True),
        (ROUTE, compressed("text/*"), False),
        (ROUTE, compressed("a/" + "b" * 45), False),
        (ROUTE, compressed("application/grpc"), False),
        (ROUTE, compressed(minLength=29), False),
        (SERVICE, compressed(), False),
    ],
)
def test_api_server_admits_only_fields_of_the_kind_of_target(
    target: Object, spec: Object, admitted: bool
) -> None:
    assert is_admitted(json.loads(policy("n/p", target, **spec))) == admitted
