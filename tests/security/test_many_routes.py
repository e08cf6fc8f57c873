"""Many HTTPRoutes of one tenant, at the controller.

Who: a tenant whose namespace has no ResourceQuota. Through what: tens of thousands of routes on a
Gateway of its own. The first compile pass over them takes longer than a leader may go without a
renewal of its Lease. What must hold: a controller compiles before it may lead, so that its first
pass as the leader is short; and a leader that was busy stays leader unless another one has the
Lease. Numbers: `make bench-many-routes`.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fakes.inprocess import Server
from fakes.replica import Replica
from gatehouse.compiler.frontends import gateway_api
from gatehouse.controller import leader_election
from gatehouse.controller.compilation import Compilation
from gatehouse.controller.leader_election import Lease
from gatehouse.standalone.state_directory import State

ROUTES = 300


def route(number: int) -> dict[str, Any]:
    rule = {"backendRefs": [{"name": "s", "port": 80}]}
    spec = {
        "parentRefs": [{"name": "gw"}],
        "hostnames": [f"r{number}.test"],
        "rules": [rule],
    }
    return {"metadata": {"name": f"r{number}", "namespace": "ns", "generation": 1}, "spec": spec}


def compilation() -> Compilation:
    result = Compilation(gateway_api.ControllerSettings(bind="any"))
    listener = {"name": "http", "port": 80, "protocol": "HTTP"}
    gateway = {"gatewayClassName": "c", "listeners": [listener]}
    controller = {"controllerName": "gatehouse.dev/nginx"}
    result.put("GatewayClass", ("", "c"), {"metadata": {"name": "c"}, "spec": controller})
    metadata = {"name": "gw", "namespace": "ns", "uid": "u", "generation": 1}
    result.put("Gateway", ("ns", "gw"), {"metadata": metadata, "spec": gateway})
    for number in range(ROUTES):
        result.put("HTTPRoute", ("ns", f"r{number}"), route(number))
    return result


def calls(action: Callable[[], object]) -> int:
    """Return the number of calls of Python functions."""
    counts: Counter[str] = Counter()
    sys.setprofile(lambda _frame, event, _argument: counts.update((event,)))
    try:
        action()
    finally:
        sys.setprofile(None)
    return counts["call"]


def test_first_pass_of_a_prepared_controller_does_not_follow_the_number_of_routes() -> None:
    prepared, unprepared = compilation(), compilation()
    whole = calls(prepared.prepare)
    prepared.put("HTTPRoute", ("ns", f"r{ROUTES}"), route(ROUTES))
    assert calls(prepared.run) < whole / 10
    unprepared.put("HTTPRoute", ("ns", f"r{ROUTES}"), route(ROUTES))
    expected, result = unprepared.run(), prepared.run()
    assert dict(result.statuses) == dict(expected.statuses)
    assert len(result.statuses) > ROUTES


def test_conflict_of_hostnames_costs_nothing_for_other_routes() -> None:
    """A tenant who adds conflicting routes would otherwise slow down the changes of all others."""
    world = compilation()
    world.run()
    statuses: list[Any] = []
    for number in (1, 2):
        conflicting = {**route(number), "kind": "GRPCRoute"}
        conflicting["metadata"] = {**conflicting["metadata"], "name": f"g{number}"}
        world.put("GRPCRoute", ("ns", f"g{number}"), conflicting)
        before = world._engine.runs
        statuses.append(world.run().statuses)
        assert world._engine.runs - before < ROUTES / 3
    lost = [
        key
        for key in (("GRPCRoute", "ns", "g2"), ("HTTPRoute", "ns", "r2"))
        if statuses[0].get(key) != statuses[1][key]
        and statuses[1][key].parents[0].conditions[0].status == "False"
    ]
    assert len(lost) == 1


async def test_controller_compiles_before_it_is_a_candidate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    prepare, elected = Compilation.prepare, leader_election.Leadership.elected

    def recorded_prepare(self: Compilation) -> None:
        order.append("compiled")
        prepare(self)

    async def recorded_elected(self: leader_election.Leadership) -> None:
        order.append("candidate")
        await elected(self)

    monkeypatch.setattr(Compilation, "prepare", recorded_prepare)
    monkeypatch.setattr(leader_election.Leadership, "elected", recorded_elected)
    server = Server(State(tmp_path / "s"))
    async with server.running():
        replica = Replica(server, lease=Lease("default", "controller"))
        await replica.until_ready()
        await replica.stop()
    assert order[:2] == ["compiled", "candidate"]
