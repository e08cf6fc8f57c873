"""Servers that are not ready, from the reports of data planes to a condition."""

from __future__ import annotations

from fakes.upstream_worlds import GATEWAY, World
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.frontends.upstream_cluster.status import MAX_NAMED_SERVERS
from gatehouse.controller.input_set import InputSet
from gatehouse.dataplane.delivery import DataPlaneReport, InstanceReport

NAME = "a.example"
ONE, TWO = "10.0.0.1:6443", "10.0.0.2:6443"


def report(*unready: dict[str, dict[str, str]]) -> DataPlaneReport:
    instances = (
        InstanceReport(f"pod-{number}", unready_servers=servers)
        for number, servers in enumerate(unready)
    )
    return DataPlaneReport("ns/gw", "", tuple(instances))


def test_reports_of_data_planes_are_aggregated() -> None:
    refused, late = "connection refused", "no response within 5 s"
    both = report({NAME: {ONE: refused, TWO: late}}, {NAME: {ONE: refused}}, {})
    assert both.unready_servers == {
        NAME: (
            f"{ONE}: {refused} (at 2 of 3 data planes)",
            f"{TWO}: {late} (at 1 of 3 data planes)",
        )
    }
    assert report({NAME: {ONE: refused}}).unready_servers == {NAME: (f"{ONE}: {refused}",)}


def test_condition_names_servers_and_reasons_while_they_last(world: World) -> None:
    cluster, other = world.cluster(NAME), world.cluster("b.example")
    assert world.condition(cluster, "ServersReady") == ("", "", "")
    inputs = InputSet(lambda key, value: bool(world.engine.commit({key: value})))

    def put(*servers: str) -> None:
        key = gateway_api.unready_servers_key(GATEWAY, NAME)
        inputs.update(GATEWAY, {key: servers} if servers else {})

    put(f"{ONE}: connection refused", f"{TWO}: /readyz: status 500")
    expected = f"{ONE}: connection refused; {TWO}: /readyz: status 500"
    assert world.condition(cluster, "ServersReady") == ("False", "ServersNotReady", expected)
    assert world.condition(cluster, "Accepted")[0] == "True"
    assert world.condition(other, "ServersReady") == ("", "", "")
    put(*(f"10.0.0.{number}:1: x" for number in range(MAX_NAMED_SERVERS + 3)))
    assert world.condition(cluster, "ServersReady")[2].endswith("10.0.0.9:1: x; 3 more")
    put()
    assert world.condition(cluster, "ServersReady") == ("", "", "")
