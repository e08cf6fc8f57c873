"""XTelemetryPolicies: their Gateways, conflicts between them, and the routes that follow them."""

from __future__ import annotations

import pytest

from fakes.one_route import GATEWAY
from fakes.telemetry_world import (
    ACCEPTED,
    GROUP,
    POLICY,
    TARGET,
    TRACED,
    WHOLE,
    Object,
    World,
    enabled,
    fraction,
    policy,
)
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.frontends.gateway_api.status.types import GatewayStatus
from gatehouse.compiler.ir.tracing import Tracing
from gatehouse.incremental.query import Key


@pytest.mark.parametrize(
    ("created", "name", "winner"),
    [
        ("2026-01-02T00:00:00Z", "a", "p"),
        ("2025-01-01T00:00:00Z", "z", "z"),
        ("2026-01-01T00:00:00Z", "a", "a"),
        ("2026-01-01T00:00:00Z", "z", "p"),
    ],
)
def test_oldest_policy_of_a_gateway_wins_then_the_first_by_name(
    created: str, name: str, winner: str
) -> None:
    rival: Key = (POLICY[0], "n", name)
    world = World({POLICY: policy(enabled()), rival: policy({"mode": "Disabled"}, created=created)})
    loser = POLICY if winner == name else rival
    assert (world.export is None) == (winner == name)
    (accepted,) = world.status(loser)
    assert accepted.startswith(
        f"Accepted False Conflicted spec: tracing: already set for Gateway {GATEWAY[2]} by "
        f"XTelemetryPolicy n/{winner}"
    )
    assert world.status((POLICY[0], "n", winner))[0] == ACCEPTED


def test_conflict_at_one_gateway_does_not_matter_at_another() -> None:
    second = {**TARGET, "name": "second"}
    rival: Key = (POLICY[0], "n", "z")
    listener = {"name": "l", "port": 80, "protocol": "HTTP"}
    world = World(
        {
            ("Gateway", "n", "second"): {
                "spec": {"gatewayClassName": "c", "listeners": [listener]}
            },
            POLICY: policy(enabled()),
            rival: policy({"mode": "Disabled"}, TARGET, second),
        }
    )
    first, other, *_ = world.status(rival)
    assert first.startswith("Accepted False Conflicted")
    assert other == ACCEPTED


def test_invalid_policy_does_not_win() -> None:
    rival: Key = (POLICY[0], "n", "z")
    world = World({POLICY: policy(enabled(spanName="$")), rival: policy(enabled())})
    assert world.export is not None
    assert world.status(rival)[0] == ACCEPTED


@pytest.mark.parametrize(
    ("target", "condition"),
    [
        ({**TARGET, "name": "none"}, "Accepted False TargetNotFound targetRef: Gateway n/none"),
        ({**TARGET, "kind": "Other"}, "Accepted False TargetNotFound targetRef: Other n/"),
        (
            {"group": GROUP, "kind": "GatewayClass", "name": "c"},
            "Accepted False TargetNotFound targetRef: GatewayClass n/c",
        ),
    ],
)
def test_missing_target_is_named(target: Object, condition: str) -> None:
    world = World({POLICY: policy(enabled(), target)})
    (accepted,) = world.status()
    assert accepted.startswith(condition)
    assert world.export is None


def test_gateway_of_another_controller_is_left_alone() -> None:
    other = {"spec": {"controllerName": "example.com/other"}}
    world = World({POLICY: policy(enabled()), ("GatewayClass", "", "c"): other})
    assert world.status() == []


def test_gateway_names_the_policy_that_affects_it() -> None:
    world = World({POLICY: policy(enabled())})
    with world.engine.compile() as ask:
        status = ask(gateway_api.gateway_api_status, GATEWAY)
    assert isinstance(status, GatewayStatus)
    affected = [item.message for item in status.conditions if item.type.endswith("Affected")]
    assert affected == ["affected by XTelemetryPolicy p"]


def routes_tracing(world: World) -> Tracing | None:
    with world.engine.compile() as ask:
        configuration = ask(gateway_api.compile_gateway, GATEWAY)
    assert configuration is not None
    hosts = [host for listener in configuration.listeners for host in listener.virtual_hosts]
    (route,) = [route for host in hosts for route in host.routes]
    tracing: Tracing | None = route.settings.tracing
    return tracing


ROUTE: dict[Key, Object] = {
    ("HTTPRoute", "n", "r"): {
        "spec": {
            "parentRefs": [{"name": GATEWAY[2]}],
            "rules": [{"backendRefs": [{"name": "collector", "port": 4317}]}],
        }
    }
}


OWN: dict[Key, Object] = {
    ("ObservabilityPolicy", "n", "own"): {
        "spec": {
            "targetRefs": [{"group": GROUP, "kind": "HTTPRoute", "name": "r"}],
            "tracing": {"strategy": "ratio", "ratio": 7},
        }
    }
}


def test_routes_follow_the_policy_of_the_gateway_unless_they_have_their_own() -> None:
    world = World({POLICY: policy(enabled(samplingRate=fraction(3))), **ROUTE})
    tracing = routes_tracing(world)
    assert tracing is not None
    assert (tracing.percent, tracing.origin) == (3, WHOLE)
    world.commit(OWN)
    tracing = routes_tracing(world)
    assert tracing is not None
    assert (tracing.percent, tracing.origin.kind) == (7, "ObservabilityPolicy")


def test_policy_that_disables_traces_holds_for_policies_of_routes() -> None:
    world = World({**TRACED, POLICY: policy({"mode": "Disabled"}), **ROUTE, **OWN})
    assert routes_tracing(world) is None
    (accepted,) = world.status(("ObservabilityPolicy", "n", "own"))
    assert accepted.startswith("Accepted False NginxProxyConfigNotSet")
    assert accepted.endswith("see XTelemetryPolicy n/p")
