"""TrafficPolicies: what they set, for which objects, and what they share with other policies."""

from __future__ import annotations

import json

import pytest

from fakes.hostile_objects import is_admitted
from fakes.policy_manifests import GATEWAY, GROUP, ROUTE, Object, manifest
from fakes.traffic_policy_world import (
    MIB,
    SERVICE,
    broken_at,
    policy,
    problems,
    route_settings,
    world,
)
from gatehouse.dataplane.origin import Origin


def test_route_has_its_own_settings_and_those_of_its_gateway() -> None:
    compiled, messages = world(
        policy("gh/outer", GATEWAY, client={"maxBodySize": "1Mi"}, timeouts={"read": "1m30s"}),
        policy("n/inner", ROUTE, client={"maxBodySize": "10M"}, responseBuffering="Disabled"),
    )
    settings = route_settings(compiled)
    assert settings.client.body_size == 10_000_000
    assert settings.proxy.read == 90
    assert settings.proxy.nginx.buffering is False
    assert settings.client.source("body_size") == Origin(
        "TrafficPolicy", "n", "inner", "client.maxBodySize"
    )
    assert settings.proxy.source("read") == Origin("TrafficPolicy", "gh", "outer", "timeouts.read")
    assert messages == dict.fromkeys(("outer", "inner"), "the policy is accepted")


def test_maximum_size_of_headers_is_that_of_the_oldest_policy_of_the_gateway() -> None:
    compiled, messages = world(
        policy("gh/first", GATEWAY, 0, client={"maxHeaderSize": "16Ki"}),
        policy("gh/last", GATEWAY, 1, client={"maxHeaderSize": "32Ki"}),
    )
    assert compiled.settings.header_bytes == 16 << 10
    assert compiled.settings.origins == (Origin("TrafficPolicy", "gh", "first"),)
    assert messages["last"].startswith("spec: client.maxHeaderSize: already set for Gateway gw by")


@pytest.mark.parametrize("target", [ROUTE, GATEWAY, SERVICE])
def test_policy_has_no_effect_on_objects_of_other_namespaces(target: Object) -> None:
    before, _ = world()
    field = (
        {"backend": {"loadBalancing": {"method": "Random"}, **broken_at(maxConnections=1)}}
        if target is SERVICE
        else {"client": {"maxBodySize": "1"}, "compression": {"mode": "Enabled"}}
    )
    if target is GATEWAY:
        field["client"]["maxHeaderSize"] = "16Ki"
    after, _ = world(policy("evil/p", target, **field))
    assert after == before


def test_younger_policy_of_any_kind_yields_and_names_the_older_one() -> None:
    nginx = manifest(
        "gateway.nginx.org/v1alpha1",
        "ClientSettingsPolicy",
        "n/middle",
        1,
        spec={"targetRef": ROUTE, "body": {"maxSize": "2m", "timeout": "1s"}},
    )
    first = policy("n/first", ROUTE, 0, client={"bodyTimeout": "3s"})
    last = policy("n/last", ROUTE, 2, client={"maxBodySize": "3Mi"})
    compiled, messages = world(first, nginx, last)
    # A conflicted policy sets nothing, so that it is in conflict with no younger one.
    client = route_settings(compiled).client
    assert (client.body_size, client.nginx.body_timeout) == (3 * MIB, 3)
    assert messages == {
        "first": "the policy is accepted",
        "middle": "spec: body.timeout: already set for HTTPRoute r by TrafficPolicy n/first, "
        "which is older or first by name",
        "last": "the policy is accepted",
    }


@pytest.mark.parametrize(
    ("target", "spec", "problem"),
    [
        (SERVICE, {"timeouts": {}}, "spec.timeouts: may not be set for a Service"),
        (
            ROUTE | {"kind": "TCPRoute"},
            {},
            f"spec.targetRefs[0]: kind {GROUP}/TCPRoute is not supported",
        ),
        (SERVICE | {"group": GROUP}, {}, f"spec.targetRefs[0]: kind {GROUP}/Service is not"),
        (ROUTE, {"client": {"maxBodySize": "1e99"}}, "spec.client.maxBodySize: must be a whole"),
        (ROUTE, {"client": {"maxBodySize": "a"}}, "spec.client.maxBodySize: invalid value 'a'"),
        (ROUTE, {"client": {"maxBodySize": "-1"}}, "spec.client.maxBodySize: must be a whole"),
        (
            GATEWAY,
            {"client": {"maxHeaderSize": 4095}},
            "spec.client.maxHeaderSize: must be a whole number of bytes from 4Ki to 128Ki",
        ),
        (GATEWAY, {"client": {"maxHeaderSize": "129Ki"}}, "spec.client.maxHeaderSize: must be a"),
        (GATEWAY, {"client": {"maxHeaderSize": "16KB"}}, "spec.client.maxHeaderSize: invalid"),
        (
            ROUTE,
            {"client": {"maxHeaderSize": "16Ki"}},
            "spec.client.maxHeaderSize: may be set for Gateways only",
        ),
        (ROUTE, {"timeouts": {"read": "1"}}, "spec.timeouts.read: invalid value '1'"),
        (ROUTE, {"timeouts": {"read": "10000h"}}, "spec.timeouts.read: must not be longer than"),
        (ROUTE, {"timeouts": {"send": "0s"}}, "spec.timeouts.send: must be greater than 0"),
        (
            ROUTE,
            {"client": {"keepAlive": {"maxRequests": 0}}},
            "spec.client.keepAlive.maxRequests: must be greater than 0",
        ),
        (ROUTE, {"responseBuffering": "On"}, "spec.responseBuffering: must be one of Enabled, "),
    ],
)
def test_invalid_value_is_named_with_its_field(target: Object, spec: Object, problem: str) -> None:
    [message] = problems(target, **spec)
    assert message.startswith(problem)


@pytest.mark.parametrize(
    ("target", "spec", "admitted"),
    [
        (ROUTE, {"client": {"maxBodySize": 1024}}, True),
        (SERVICE, {"timeouts": {"read": "1s"}}, False),
        (ROUTE | {"group": ""}, {}, False),
        (ROUTE | {"kind": "TLSRoute"}, {}, False),
        (ROUTE, {"timeouts": {"read": "1"}}, False),
        (ROUTE, {"client": {"maxBodySize": "1mb"}}, False),
        (GATEWAY, {"client": {"maxHeaderSize": "16Ki"}}, True),
        (ROUTE, {"client": {"maxHeaderSize": "16Ki"}}, False),
        (ROUTE, {"client": {}}, True),
    ],
)
def test_api_server_admits_only_fields_of_the_kind_of_target(
    target: Object, spec: Object, admitted: bool
) -> None:
    assert is_admitted(json.loads(policy("n/p", target, **spec))) == admitted
