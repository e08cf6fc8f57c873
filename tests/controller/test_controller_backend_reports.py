"""Backends without endpoints: messages of routes, Events of Services, and when they come."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fakes import patience
from fakes.authority import Authority
from fakes.gateway_estate import ENVOY, NGINX, Estate, endpoints, route, service
from gatehouse.apis import resources
from gatehouse.compiler.frontends.gateway_api.backend_problems import (
    BackendProblem,
    backend_problem_key,
)
from gatehouse.compiler.frontends.gateway_api.cluster_key import ClusterKey
from gatehouse.controller import backend_reports
from gatehouse.controller.backend_reports import (
    REPORT_INTERVAL_SECONDS,
    REPORT_SECONDS,
    BackendReports,
    Problems,
)
from gatehouse.incremental.query import Key
from gatehouse.incremental.table import Table
from kube_base.types.resource import Resource

GATEWAY: Key = ("Gateway", "default", "web")
CLUSTER = ClusterKey("default", "app", 80, "http")
KEY = backend_problem_key(GATEWAY, CLUSTER)
EMPTY, UNREADY = "app: no endpoints", "app: none is ready"


class World:
    """Reports with a clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.inputs: dict[Key, Any] = {}
        self.events: list[str] = []
        self.reports = BackendReports(
            self._put, lambda _, text: self.events.append(text), lambda: self.now
        )

    def _put(self, key: Key, value: Any) -> bool:
        changed = bool(self.inputs.get(key) != value)
        self.inputs[key] = value
        return changed

    def observe(self, text: str | None, after: float = 0.0) -> str | None:
        """Take in a problem, `after` so many seconds. Return the reported text."""
        self.now += after
        problem = BackendProblem(("Service", "default", "app"), text) if text else None
        problems: Problems = Table({(CLUSTER.name, CLUSTER): problem} if problem else {})
        self._last: Table[Key, Problems] = Table({GATEWAY: problems})
        self.reports.update(self._last)
        return self.inputs.get(KEY)

    def later(self, after: float) -> str | None:
        """Return the reported text after some seconds without a change."""
        self.now += after
        self.reports.update(self._last)
        return self.inputs.get(KEY)


def test_problem_is_reported_after_a_delay_and_its_end_at_once() -> None:
    world = World()
    assert world.observe(None) is None
    assert world.observe(EMPTY) is None
    assert world.reports.next_wakeups() == [REPORT_SECONDS]
    assert world.later(REPORT_SECONDS - 0.1) is None
    assert world.later(0.1) == EMPTY
    assert world.events == [EMPTY]
    assert world.reports.next_wakeups() == []
    assert world.observe(None, 1) is None


def test_problem_that_ends_before_its_report_is_not_reported() -> None:
    world = World()
    world.observe(None)
    world.observe(EMPTY)
    assert world.observe(None, REPORT_SECONDS / 2) is None
    assert world.later(REPORT_SECONDS) is None
    assert (world.events, world.reports.next_wakeups()) == ([], [])


def test_flapping_backend_is_reported_at_most_once_per_minute() -> None:
    world = World()
    world.observe(None)
    reports: list[str | None] = []
    while world.now < 1000.0 + 2.5 * REPORT_INTERVAL_SECONDS:
        world.observe(UNREADY, 1)
        reports += [world.later(REPORT_SECONDS), world.observe(None)]
    assert len(world.events) == 3
    assert reports.count(UNREADY) == 3


def test_problem_of_before_the_start_is_reported_at_once_without_event() -> None:
    world = World()
    assert world.observe(EMPTY) == EMPTY
    assert world.events == []


def test_reports_of_a_deleted_gateway_are_removed() -> None:
    world = World()
    world.observe(EMPTY)
    world.reports.update(Table())
    assert world.inputs == {KEY: None}


@pytest.fixture
async def estate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Estate]:
    """A controller with a Gateway of NGINX and one of Envoy."""
    monkeypatch.setattr(backend_reports, "REPORT_SECONDS", 0.0)
    monkeypatch.setattr(backend_reports, "REPORT_INTERVAL_SECONDS", 0.0)
    result = Estate(Authority(tmp_path))
    async with result.running(2):
        yield result


def events_of(estate: Estate) -> list[tuple[str, str]]:
    aggregated = estate.controller.recorder._aggregator.unwritten()
    return [(key.reason, key.message) for key, _ in aggregated if key.reason == "NoReadyEndpoints"]


async def message_of(
    estate: Estate,
    name: str,
    kind: str,
    expected: str,
    resource: Resource = resources.HTTP_ROUTES,
) -> dict[str, Any]:
    """Wait for a condition of a route with a message."""
    current: dict[str, Any] = {}
    try:
        async with patience.limit():
            while current.get("message") != expected:
                obj = await estate.store.get(resource, name, "default")
                parents = obj.get("status", {}).get("parents") or [{}]
                conditions = parents[0].get("conditions") or ()
                current = next((entry for entry in conditions if entry["type"] == kind), {})
                await patience.pause()
    except TimeoutError:
        raise AssertionError(f"{name} {kind}: {current.get('message')}, not {expected}") from None
    assert current["status"] == "True"
    return current


def slices(name: str, *, ready: bool = True, **changes: Any) -> dict[str, Any]:
    entry = {**endpoints(name, "10.0.0.1"), **changes}
    entry["endpoints"] = [
        {**endpoint, "conditions": {"ready": ready}} for endpoint in entry["endpoints"]
    ]
    return entry


@pytest.mark.parametrize("name", ["g0-r0", "g1-r0"], ids=["NGINX", "Envoy"])
async def test_route_names_the_cause_while_a_backend_has_no_endpoints(
    estate: Estate, name: str
) -> None:
    resolved = "all references are resolved"
    await message_of(estate, name, "ResolvedRefs", resolved)
    port = f"Service default/{name} port 80"
    wrong = [{"name": "web", "port": 9000, "protocol": "TCP"}]
    cases = {
        f"{port}: none of its endpoints is ready": slices(name, ready=False),
        f"{port}: the Service has no endpoints": slices(name, endpoints=[]),
        f"{port}: no EndpointSlice of the Service has the port 'http' (TCP); their ports: "
        "'web' (TCP)": slices(name, ports=wrong),
        f"{port}: no EndpointSlice of the Service has the port 'http' (TCP); their ports: none": (
            slices(name, ports=[])
        ),
    }
    for cause, entry in cases.items():
        estate.store.put(resources.ENDPOINT_SLICES, entry)
        await message_of(estate, name, "ResolvedRefs", f"{resolved}; {cause}")
        estate.store.put(resources.ENDPOINT_SLICES, slices(name))
        await message_of(estate, name, "ResolvedRefs", resolved)
    assert events_of(estate) == [("NoReadyEndpoints", cause) for cause in cases]


async def test_number_of_unready_endpoints_does_not_rewrite_statuses(estate: Estate) -> None:
    name = "g0-r0"
    for number in range(20):
        estate.store.put(resources.HTTP_ROUTES, route(f"more-{number}", "g0", name))
    for number in (1, 2, 3):
        addresses = [f"10.0.0.{index}" for index in range(1, number + 1)]
        entry = slices(name, ready=False, endpoints=[{"addresses": [item]} for item in addresses])
        estate.store.put(resources.ENDPOINT_SLICES, entry)
        await message_of(
            estate,
            "more-19",
            "ResolvedRefs",
            "all references are resolved; Service default/g0-r0 port 80: none of its endpoints is "
            "ready",
        )
        await estate.rest()
        if number == 1:
            written = estate.store.written["status", "HTTPRoute"]
    assert estate.store.written["status", "HTTPRoute"] == written


async def test_backend_without_weight_is_no_problem(estate: Estate) -> None:
    """A version that gets no requests may have no Pods."""
    estate.store.put(resources.SERVICES, service("green"))
    obj = route("shares", "g0", "g0-r0")
    references = obj["spec"]["rules"][0]["backendRefs"]
    references.append({"name": "green", "port": 80, "weight": 0})
    estate.store.put(resources.HTTP_ROUTES, obj)
    await message_of(estate, "shares", "ResolvedRefs", "all references are resolved")
    await estate.rest()
    await message_of(estate, "shares", "ResolvedRefs", "all references are resolved")
    references[1]["weight"] = 1
    estate.store.put(resources.HTTP_ROUTES, {**obj, "spec": {**obj["spec"]}})
    await message_of(
        estate,
        "shares",
        "ResolvedRefs",
        "all references are resolved; Service default/green port 80: the Service has no endpoints",
    )


FILTERS: dict[str, dict[str, Any]] = {
    "mirror": {"type": "RequestMirror", "requestMirror": {}},
    "authorization": {"type": "ExternalAuth", "externalAuth": {"protocol": "HTTP"}},
}


@pytest.mark.parametrize("parent", ["g0", "g1"], ids=["NGINX", "Envoy"])
@pytest.mark.parametrize("kind", FILTERS)
async def test_route_names_the_cause_of_a_filter_whose_service_has_no_endpoints(
    estate: Estate, parent: str, kind: str
) -> None:
    estate.store.put(resources.SERVICES, service("other"))
    filter_type = FILTERS[kind]["type"]
    field = filter_type[0].lower() + filter_type[1:]
    spec = {**FILTERS[kind][field], "backendRef": {"name": "other", "port": 80}}
    obj = route("filtered", parent, f"{parent}-r0")
    obj["spec"]["rules"][0]["filters"] = [{"type": filter_type, field: spec}]
    estate.store.put(resources.HTTP_ROUTES, obj)
    resolved = "all references are resolved"
    cause = "Service default/other port 80: the Service has no endpoints"
    await message_of(estate, "filtered", "ResolvedRefs", f"{resolved}; {cause}")
    assert events_of(estate) == [("NoReadyEndpoints", cause)]
    estate.store.put(resources.ENDPOINT_SLICES, slices("other"))
    await message_of(estate, "filtered", "ResolvedRefs", resolved)


@pytest.mark.parametrize("parent", ["g0", "g1"], ids=["NGINX", "Envoy"])
async def test_grpc_route_names_the_cause_of_a_mirror_without_endpoints(
    estate: Estate, parent: str
) -> None:
    estate.store.put(resources.SERVICES, service("other"))
    reference = {"name": "other", "port": 80}
    mirror = {"type": "RequestMirror", "requestMirror": {"backendRef": reference}}
    obj = route("calls", parent, f"{parent}-r0")
    backends = obj["spec"]["rules"][0]["backendRefs"]
    obj["spec"]["rules"] = [{"filters": [mirror], "backendRefs": backends}]
    estate.store.put(resources.GRPC_ROUTES, obj)
    cause = "Service default/other port 80: the Service has no endpoints"
    expected = f"all references are resolved; {cause}"
    await message_of(estate, "calls", "ResolvedRefs", expected, resources.GRPC_ROUTES)


L4_KINDS = {
    "TLS": resources.TLS_ROUTES,
    "TCP": resources.TCP_ROUTES,
    "UDP": resources.UDP_ROUTES,
}


@pytest.mark.parametrize("class_name", [NGINX, ENVOY])
@pytest.mark.parametrize("protocol", L4_KINDS)
async def test_l4_route_names_the_cause_of_a_service_without_endpoints(
    estate: Estate, class_name: str, protocol: str
) -> None:
    target = service("other")
    transport = "UDP" if protocol == "UDP" else "TCP"
    target["spec"]["ports"][0]["protocol"] = transport
    estate.store.put(resources.SERVICES, target)
    listener: dict[str, Any] = {"name": "l4", "port": 9443, "protocol": protocol}
    if protocol == "TLS":
        listener["tls"] = {"mode": "Passthrough"}
    parent = {"metadata": {"name": "streams", "namespace": "default"}}
    spec = {"gatewayClassName": class_name, "listeners": [listener]}
    estate.store.put(resources.GATEWAYS, {**parent, "spec": spec})
    obj = route("stream", "streams", "other")
    obj["spec"]["rules"] = [{"backendRefs": [{"name": "other", "port": 80}]}]
    if protocol != "TLS":
        del obj["spec"]["hostnames"]
    estate.store.put(L4_KINDS[protocol], obj)
    suffix = "/UDP" if protocol == "UDP" else ""
    cause = f"Service default/other port 80{suffix}: the Service has no endpoints"
    expected = f"all references are resolved; {cause}"
    await message_of(estate, "stream", "ResolvedRefs", expected, L4_KINDS[protocol])


async def test_route_names_rules_whose_weights_are_all_zero(estate: Estate) -> None:
    obj = route("nobody", "g0", "g0-r0")
    rule = obj["spec"]["rules"][0]
    none = [{**reference, "weight": 0} for reference in rule["backendRefs"]]
    obj["spec"]["rules"].append({"backendRefs": none})
    estate.store.put(resources.HTTP_ROUTES, obj)
    await message_of(
        estate,
        "nobody",
        "Accepted",
        "the route is accepted; rules[1].backendRefs: all weights are 0, so that no backend gets "
        "requests",
    )
