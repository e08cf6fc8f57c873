"""`gatehouse status`: every problem is named, and the text fits terminals and pipes."""

from __future__ import annotations

import json

import pytest
import yaml

from fakes import request_causes
from fakes.status_objects import (
    CLASS,
    GOOD,
    PARTLY,
    POD,
    Object,
    condition,
    gateway,
    programmed,
    route,
)
from gatehouse.cli import status_rendering
from gatehouse.cli.errors import CLIError
from gatehouse.cli.status import select_objects, with_ancestors
from gatehouse.cli.status_watch import changed_lines
from gatehouse.inspection.object_set import ObjectSet
from gatehouse.inspection.status_report import ReportedObject, report_status


@pytest.fixture
def report() -> tuple[ReportedObject, ...]:
    objects = [
        CLASS,
        programmed("web"),
        gateway("waiting", conditions=[condition("Programmed", "False", "Pending", "no Pod")]),
        gateway("foreign", "elsewhere"),
        request_causes.service("app"),
        request_causes.endpoints("app", "127.0.0.1", 9),
        request_causes.service("idle"),
        request_causes.endpoints("idle", "127.0.0.1", 9, ready=False),
        route("fine", "app", *GOOD),
        route("partly", "app", *GOOD, PARTLY),
        route("idle", "idle", *GOOD),
        route("orphan", "app", parentRefs=[{"name": "wbe"}]),
        route("foreign", "app", parentRefs=[{"name": "foreign"}]),
    ]
    return report_status(ObjectSet(objects, [POD], ()))


def test_every_problem_is_one_line(report: tuple[ReportedObject, ...]) -> None:
    assert list(status_rendering.problem_lines(report)) == [
        "Gateway default/waiting: Programmed is False: no Pod",
        "Gateway default/foreign: no status yet: no controller manages elsewhere",
        "HTTPRoute default/partly at web: PartiallyInvalid is True: Dropped Rule: rules[1]: no",
        "HTTPRoute default/idle: Service default/idle: 0 of 1 endpoints ready",
        "HTTPRoute default/orphan: parentRefs[0]: Gateway default/wbe not found",
        "HTTPRoute default/foreign: parentRefs[0]: Gateway default/foreign has the class elsewhere,"
        " which Gatehouse does not manage",
        "Pod default/web-1: not ready: exit 1",
    ]


def test_service_of_a_mirror_without_endpoints_is_a_problem() -> None:
    obj = route("copied", "app", *GOOD)
    mirror = {"backendRef": {"name": "idle", "port": 80}}
    filters = [{"type": "RequestMirror", "requestMirror": mirror}]
    obj["spec"]["rules"] = [{**rule, "filters": filters} for rule in obj["spec"]["rules"]]
    services = [request_causes.service("app"), request_causes.service("idle")]
    addresses = [request_causes.endpoints("app", "127.0.0.1", 9)]
    result = report_status(ObjectSet([obj, *services, *addresses], [], ()))
    (copied,) = (entry for entry in result if entry.name == "copied")
    assert "HTTPRoute default/copied: Service default/idle: 0 of 0 endpoints ready" in (
        copied.problems
    )


def test_tables_keep_names_whole_in_80_columns(report: tuple[ReportedObject, ...]) -> None:
    lines = list(status_rendering.status_lines(report, wide=False))
    rows = [line for line in lines if not line.startswith("    ! ")]
    assert all(len(line) <= 80 for line in rows), rows
    assert any(line.startswith("default/web ") and " gatehouse-nginx " in line for line in rows)
    assert "    ! Service default/idle: 0 of 1 endpoints ready" in lines
    wide = list(status_rendering.status_lines(report, wide=True))
    assert "    listener http 8080/HTTP: Programmed True, routes 1" in wide


def test_tree_has_class_gateway_listener_route_service(report: tuple[ReportedObject, ...]) -> None:
    lines = list(status_rendering.tree_lines(report))
    start = lines.index("GatewayClass gatehouse-nginx (gatehouse.dev/nginx)")
    assert lines[start + 1 : start + 5] == [
        "  Gateway default/web: Programmed True",
        "    listener http 8080/HTTP: Programmed True, routes 1",
        "    HTTPRoute default/fine fine.example",
        "      Service default/app: 1 of 1 endpoints ready",
    ]
    assert "no Gateway" in lines
    assert lines.index("  HTTPRoute default/orphan orphan.example") > lines.index("no Gateway")


def test_tree_has_listeners_of_listener_sets_with_their_routes() -> None:
    listener = {"name": "extra", "port": 8091, "protocol": "HTTP"}
    more = {
        "kind": "ListenerSet", "metadata": request_causes.metadata("more"),
        "spec": {"parentRef": {"name": "web"}, "listeners": [listener]},
        "status": {"listeners": [{"name": "extra", "attachedRoutes": 2,
                                  "conditions": [condition("Programmed")]}]},
    }  # fmt: skip
    parent = {"name": "more", "kind": "ListenerSet", "group": "gateway.networking.k8s.io"}
    routes = [
        route("all", "app", *GOOD, parentRefs=[parent]),
        route("one", "app", *GOOD, parentRefs=[{**parent, "sectionName": "extra"}]),
    ]
    every = report_status(ObjectSet([CLASS, programmed("web"), more, *routes], [], ()))
    lines = [line for line in status_rendering.tree_lines(every) if "! " not in line]
    assert lines == [
        "GatewayClass gatehouse-nginx (gatehouse.dev/nginx)",
        "  Gateway default/web: Programmed True",
        "    listener http 8080/HTTP: Programmed True, routes 1",
        "    listener default/more/extra 8091/HTTP: Programmed True, routes 2",
        "      HTTPRoute default/one one.example",
        "    HTTPRoute default/all all.example",
    ]
    assert {item.name for item in select_objects(every, "", ("web",))} == {"web", "all", "one"}


def test_tree_of_selected_objects_has_their_gateway_and_class(
    report: tuple[ReportedObject, ...],
) -> None:
    of_gateway = with_ancestors(select_objects(report, "", ("web",)), report)
    lines = list(status_rendering.tree_lines(of_gateway))
    assert lines[0] == "GatewayClass gatehouse-nginx (gatehouse.dev/nginx)"
    assert "    HTTPRoute default/fine fine.example" in lines
    of_route = with_ancestors(select_objects(report, "", ("fine",)), report)
    assert list(status_rendering.tree_lines(of_route))[1:4] == [
        "  Gateway default/web: Programmed True",
        "    listener http 8080/HTTP: Programmed True, routes 1",
        "    HTTPRoute default/fine fine.example",
    ]


def test_table_of_selected_objects_does_not_claim_that_there_are_no_others(
    report: tuple[ReportedObject, ...],
) -> None:
    route_only = select_objects(report, "", ("fine",))
    lines = [*status_rendering.status_lines(route_only, wide=False, selected=True)]
    assert lines[0].startswith("ROUTE ")
    nothing = [*status_rendering.status_lines((), wide=False)]
    assert nothing == ["GATEWAY: none", "", "ROUTE: none"]


def test_structured_outputs_agree(report: tuple[ReportedObject, ...]) -> None:
    document = json.loads(status_rendering.structured_status(report, "json"))
    assert yaml.safe_load(status_rendering.structured_status(report, "yaml")) == document
    (web,) = (item for item in document if (item["kind"], item["name"]) == ("Gateway", "web"))
    assert web["className"] == "gatehouse-nginx"
    assert web["state"] == {"Accepted": "True", "Programmed": "True"}
    assert web["addresses"] == ["127.0.0.9"]
    names = status_rendering.structured_status(report, "name").splitlines()
    assert "httproute.gateway.networking.k8s.io/fine" in names
    assert "pod/web-1" in names


def test_objects_are_selected_by_namespace_and_name(report: tuple[ReportedObject, ...]) -> None:
    assert {item.name for item in select_objects(report, "other", ())} == {"gatehouse-nginx"}
    web = select_objects(report, "", ("default/web",))
    assert {item.kind for item in web} == {"Gateway", "HTTPRoute"}
    assert [item.name for item in select_objects(report, "", ("fine",))] == ["fine"]
    assert [item.kind for item in select_objects(report, "default", ("foreign",))] == [
        "Gateway",
        "HTTPRoute",
    ]
    with pytest.raises(
        CLIError, match="no Gateway, route, kube-apiserver or data plane nope in namespace default"
    ):
        select_objects(report, "default", ("nope",))


LONG_NAMES = ("payments-production", "checkout-api-v2", "gateway-infrastructure", "public-internet")


def _long_names() -> tuple[ReportedObject, ...]:
    namespace, name, infrastructure, gateway_name = LONG_NAMES
    web = programmed(gateway_name)
    web["metadata"]["namespace"] = infrastructure
    item = route(name, "app", *GOOD)
    item["metadata"]["namespace"] = namespace
    item["spec"]["parentRefs"] = [{"name": gateway_name, "namespace": infrastructure}]
    item["spec"]["hostnames"] = ["checkout.payments.example.com"]
    return report_status(ObjectSet([CLASS, web, item, route("fine", "app", *GOOD)], [], ()))


@pytest.mark.parametrize("width", [60, 80, 100])
def test_long_cells_have_lines_of_their_own_on_a_terminal(width: int) -> None:
    namespace, name, infrastructure, gateway_name = LONG_NAMES
    lines = list(status_rendering.status_lines(_long_names(), wide=False, width=width))
    assert all(len(line) <= width for line in lines), lines
    words = " ".join(lines).split()
    for word in (
        f"{namespace}/{name}",
        f"{infrastructure}/{gateway_name}",
        "checkout.payments.example.com",
    ):
        assert word in words


def test_cells_stay_below_their_headers_on_a_narrow_terminal() -> None:
    lines = list(status_rendering.status_lines(_long_names(), wide=False, width=80))
    start = next(index for index, line in enumerate(lines) if line.startswith("ROUTE "))
    header, long_name, rest = lines[start : start + 3]
    assert long_name == "HTTPRoute payments-production/checkout-api-v2"
    assert rest[: header.index("ACCEPTED")].strip() == ""
    assert rest[header.index("ACCEPTED") :].startswith("True")


def test_pipe_has_one_line_for_each_object_and_nothing_is_cut() -> None:
    lines = list(status_rendering.status_lines(_long_names(), wide=False))
    (row,) = (line for line in lines if "checkout-api-v2" in line and "True" in line)
    assert row.split() == [
        "HTTPRoute", "payments-production/checkout-api-v2", "True", "True",
        "gateway-infrastructure/public-internet", "checkout.payments.example.com",
    ]  # fmt: skip


def test_problem_is_wrapped_between_words() -> None:
    line = "    ! " + "Service payments-production/checkout-api-v2: 0 of 1 endpoints ready " * 3
    parts = list(status_rendering.wrapped(line.rstrip(), 60))
    assert " ".join(" ".join(parts).split()) == " ".join(line.split())
    assert all(len(part) <= 60 for part in parts)
    assert all(part.startswith("      ") for part in parts[1:])
    assert list(status_rendering.wrapped(line, 0)) == [line]


def test_tree_lists_endpoints_and_caps_them() -> None:
    many = request_causes.endpoints("app", "127.0.0.1", 9000)
    many["endpoints"] = [
        {"addresses": [f"10.0.0.{n}"], "conditions": {"ready": n != 5}} for n in range(10)
    ]
    objects = [
        CLASS, programmed("web"), request_causes.service("app"), many, route("a", "app", *GOOD)
    ]  # fmt: skip
    lines = list(status_rendering.tree_lines(report_status(ObjectSet(objects, [], ()))))
    start = lines.index("      Service default/app: 9 of 10 endpoints ready")
    assert lines[start + 1 : start + 3] == [
        "        10.0.0.5:9000: not ready",
        "        10.0.0.0:9000: ready",
    ]
    assert lines[start + 9] == "        ... 2 more"
    v6 = request_causes.endpoints("app", "2001:db8::1", 9000)
    (backend,) = report_status(ObjectSet([*objects[:3], v6, objects[4]], [], ()))[2].backends
    assert backend.addresses[0].address == "[2001:db8::1]:9000"


def test_route_is_listed_at_the_default_gateways_that_claimed_it() -> None:
    """Ana has to "enumerate Routes bound to the default Gateways" (GEP-3793)."""
    claimed = route("a", "app", *GOOD, parentRefs=[], useDefaultGateways="All")
    claimed["status"]["parents"][0]["parentRef"]["namespace"] = "default"
    unclaimed = route("b", "app", parentRefs=[], useDefaultGateways="All")
    objects = [
        CLASS, programmed("web"), request_causes.service("app"),
        request_causes.endpoints("app", "127.0.0.1", 9), claimed, unclaimed,
    ]  # fmt: skip
    reported = {item.name: item for item in report_status(ObjectSet(objects, [], ()))}
    assert reported["a"].parents == ("default/web",)
    assert reported["b"].parents == ()
    assert reported["b"].problems == (
        "HTTPRoute default/b: useDefaultGateways: no default Gateway allows the route",
    )


def _listed_service(service: Object, endpoints: Object) -> tuple[list[str], list[str]]:
    """Return the lines of a Service in the tree, and all problems."""
    objects = [CLASS, programmed("web"), service, endpoints, route("a", "app", *GOOD)]
    reported = report_status(ObjectSet(objects, [], ()))
    lines = list(status_rendering.tree_lines(reported))
    start = next(n for n, line in enumerate(lines) if line.strip().startswith("Service "))
    own = [line.strip() for line in lines[start:]]
    return own, list(status_rendering.problem_lines(reported))


def test_terminating_endpoint_without_ready_ones_is_used_and_no_problem() -> None:
    """Consumers may use endpoints "that are both serving and terminating" if none is ready
    (EndpointConditions of discovery.k8s.io/v1, KEP-1669)."""
    endpoints = request_causes.endpoints("app", "10.0.0.1", 9000)
    leaving = {"ready": False, "serving": True, "terminating": True}
    stopped = {"addresses": ["10.0.0.2"], "conditions": {**leaving, "serving": False}}
    endpoints["endpoints"] = [{"addresses": ["10.0.0.1"], "conditions": leaving}, stopped]
    lines, problems = _listed_service(request_causes.service("app"), endpoints)
    assert lines == [
        "Service default/app: 0 of 2 endpoints ready, 1 used while terminating",
        "10.0.0.1:9000: terminating",
        "10.0.0.2:9000: not ready",
    ]
    assert problems == []
    endpoints["endpoints"].append({"addresses": ["10.0.0.3"]})
    lines, _ = _listed_service(request_causes.service("app"), endpoints)
    assert lines[:2] == [
        "Service default/app: 1 of 3 endpoints ready",
        "10.0.0.1:9000: not ready",
    ]


def test_port_that_no_endpoint_slice_has_is_named() -> None:
    service = request_causes.service("app", name="http")
    lines, problems = _listed_service(service, request_causes.endpoints("app", "127.0.0.1", 9))
    cause = (
        "no EndpointSlice of the Service has the port 'http' (TCP); their ports: without name (TCP)"
    )
    assert lines[0] == f"Service default/app: 1 of 1 endpoints ready; {cause}"
    assert problems == [f"HTTPRoute default/a: Service default/app port 80: {cause}"]


def test_rule_whose_weights_are_all_zero_is_a_problem() -> None:
    message = "the route is accepted; rules[0].backendRefs: all weights are 0, so that no backend"
    accepted = condition("Accepted", message=f"{message} gets requests")
    objects = [CLASS, programmed("web"), route("a", "app", accepted)]
    (problem,) = status_rendering.problem_lines(report_status(ObjectSet(objects, [], ())))
    assert "rules[0].backendRefs: all weights are 0" in problem


def test_endpoints_with_names_do_not_count() -> None:
    """Of addressType: "No semantics are defined for the "FQDN" type" (discovery.k8s.io/v1)."""
    names = {**request_causes.endpoints("app", "backend.example", 80), "addressType": "FQDN"}
    lines, _ = _listed_service(request_causes.service("app"), names)
    assert lines[0] == "Service default/app: 0 of 0 endpoints ready"


@pytest.mark.parametrize(
    ("field", "value", "wish"),
    [
        ("spec", {"trafficDistribution": "PreferSameZone"}, "trafficDistribution PreferSameZone"),
        (
            "metadata",
            {"annotations": {"service.kubernetes.io/topology-mode": "Auto"}},
            "service.kubernetes.io/topology-mode",
        ),
    ],
)
def test_wish_for_near_endpoints_is_shown(field: str, value: Object, wish: str) -> None:
    """Of trafficDistribution: "Implementations can use this field as a hint, but are not required
    to guarantee strict adherence" (Service v1, KEP-4444)."""
    service = request_causes.service("app")
    service[field] = {**service[field], **value}
    lines, problems = _listed_service(service, request_causes.endpoints("app", "127.0.0.1", 9))
    assert lines[0] == f"Service default/app: 1 of 1 endpoints ready; {wish} needs useClusterIP"
    assert problems == []


def test_changed_lines_ignore_alignment() -> None:
    before = "NAME  STATE\na     True\nb     True"
    after = "NAME         STATE\na            False\nb            True\nlong-name    True"
    assert list(changed_lines(before, after)) == [
        "- a True",
        "+ a            False",
        "+ long-name    True",
    ]
