"""InferencePools as backends: their Pods, references and conditions."""

from __future__ import annotations

import pytest

from fakes.one_route import GATEWAY
from fakes.pool_world import (
    ACCEPTED,
    GROUP,
    PICKER_REFERENCE,
    POOL,
    REFERENCE,
    RESOLVED,
    ROUTE,
    Object,
    World,
    pool,
    route,
    service_slice,
)
from gatehouse.compiler.evaluation.backend_facts import explain_backends
from gatehouse.compiler.evaluation.traffic import traffic_of
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.frontends.gateway_api import backend_problems
from gatehouse.compiler.ir import http as ir
from gatehouse.dataplane.origin import Origin
from gatehouse.incremental.query import Key


def test_pool_is_a_cluster_with_the_picker_of_its_pods() -> None:
    world = World()
    clusters = world.clusters()
    own, picker = clusters["InferencePool"], clusters["Service"]
    assert own.endpoints == (ir.Endpoint("10.0.0.1", 8000),)
    assert (own.protocol, own.tls, own.origin) == ("http", None, Origin("InferencePool", "n", "p"))
    assert world.pickers() == [ir.EndpointPicker(picker.name, fail_open=False)]
    assert own.picker is not None
    assert picker.endpoints == (ir.Endpoint("10.0.0.9", 19002),)
    assert (picker.protocol, picker.is_picker) == ("grpc", True)
    assert isinstance(world.action(), ir.Forward)
    assert world.status() == [ACCEPTED, RESOLVED]
    accepted, resolved = world.status(ROUTE)
    assert accepted.startswith("Accepted True")
    assert resolved == RESOLVED


def test_status_names_gateway_and_controller() -> None:
    world = World()
    with world.engine.compile() as ask:
        outcome = ask(gateway_api.gateway_api_status, POOL)
    assert outcome is not None
    status = gateway_api.GATEWAY_API_FRONT_END.merge_status(None, outcome, "T")
    assert status is not None
    [parent] = status["parents"]
    parent.pop("conditions")
    assert parent == {
        "controllerName": "gatehouse.dev/envoy",
        "parentRef": {
            "group": "gateway.networking.k8s.io",
            "kind": "Gateway",
            "namespace": "n",
            "name": "gw",
        },
    }


@pytest.mark.parametrize(("others", "own"), [(0, 1), (31, 1), (32, 0)])
def test_status_leaves_room_for_the_entries_of_other_controllers(others: int, own: int) -> None:
    entry = {"controllerName": "example.com/c", "conditions": []}
    parents = [{**entry, "parentRef": {"name": f"g{number}"}} for number in range(others)]
    with World().engine.compile() as ask:
        outcome = ask(gateway_api.gateway_api_status, POOL)
    assert outcome is not None
    before = {"parents": parents}
    merged = gateway_api.GATEWAY_API_FRONT_END.merge_status(before, outcome, "T") or before
    assert merged["parents"][:others] == parents
    assert len(merged["parents"]) == others + own


READY = {"addresses": ["10.0.0.1"], "conditions": {"ready": True}}
STARTING = {"addresses": ["10.0.0.2"], "conditions": {"ready": False, "serving": False}}
ENDING = {
    "addresses": ["10.0.0.3"],
    "conditions": {"ready": False, "serving": True, "terminating": True},
}


@pytest.mark.parametrize(
    ("endpoints", "expected"),
    [
        ((READY, STARTING, ENDING), ["10.0.0.1:8000"]),
        ((STARTING, ENDING), ["10.0.0.3:8000"]),
        ((STARTING,), []),
    ],
)
def test_pods_get_requests_by_the_rules_of_services(
    endpoints: tuple[Object, ...], expected: list[str]
) -> None:
    world = World()
    world.serve(*endpoints)
    assert world.endpoints() == expected


def test_pods_have_addresses_of_both_families() -> None:
    world = World()
    world.serve({"addresses": ["2001:db8::1"]}, family="IPv6")
    assert world.endpoints() == ["10.0.0.1:8000", "2001:db8::1:8000"]


def test_every_port_of_a_pod_is_an_endpoint() -> None:
    world = World({POOL: pool(PICKER_REFERENCE, 8001, 8000)})
    world.serve(READY, {"addresses": ["10.0.0.2"]})
    expected = ["10.0.0.1:8000", "10.0.0.1:8001", "10.0.0.2:8000", "10.0.0.2:8001"]
    assert world.endpoints() == expected


def test_pods_come_and_go() -> None:
    world = World()
    assert world.endpoints() == ["10.0.0.1:8000"]
    world.serve(READY, {"addresses": ["10.0.0.2"]})
    assert world.endpoints() == ["10.0.0.1:8000", "10.0.0.2:8000"]
    world.serve({"addresses": ["10.0.0.2"]})
    assert world.endpoints() == ["10.0.0.2:8000"]


def test_pool_without_labels_has_no_pod() -> None:
    world = World({POOL: pool(selector={"matchLabels": {}})})
    assert world.endpoints() == []
    assert world.service() is None


@pytest.mark.parametrize(
    ("ports", "expected"),
    [
        ((8000,), [{"port": 8000, "targetPort": 8000, "protocol": "TCP"}]),
        (
            (8001, 8000),
            [
                {"name": f"port-{port}", "port": port, "targetPort": port, "protocol": "TCP"}
                for port in (8000, 8001)
            ],
        ),
    ],
)
def test_service_selects_the_pods_of_a_pool(ports: tuple[int, ...], expected: Object) -> None:
    written = World({POOL: pool(PICKER_REFERENCE, *ports)}).service()
    assert written is not None
    assert written["spec"] == {
        "clusterIP": "None",
        "selector": {"app": "model"},
        "ports": expected,
    }
    assert written["metadata"]["namespace"] == "n"
    assert written["metadata"]["name"].startswith("inferencepool-")


def test_name_of_the_service_follows_from_the_uid() -> None:
    names = set()
    for uid in ("one", "another"):
        written = World({POOL: {**pool(), "metadata": {"uid": uid}}}).service()
        assert written is not None
        names.add(written["metadata"]["name"])
    assert len(names) == 2


def test_service_is_written_while_a_gateway_serves_the_pool() -> None:
    world = World()
    assert world.service() is not None
    world.engine.commit({ROUTE: None})
    assert world.service() is None
    world.commit({ROUTE: route(hostnames=["b.example"])})
    assert world.service() is not None
    listener = {"name": "l", "port": 80, "protocol": "HTTP", "hostname": "a.example"}
    world.commit({GATEWAY: {"spec": {"gatewayClassName": "c", "listeners": [listener]}}})
    assert world.service() is None


def test_status_names_a_service_that_does_not_exist_yet() -> None:
    world = World()
    written = world.service()
    assert written is not None
    name = written["metadata"]["name"]
    world.engine.commit({("Service", "n", name): None})
    suffix = f"; Service n/{name} for its endpoints does not exist yet"
    assert world.status() == [f"{ACCEPTED}{suffix}", RESOLVED]


@pytest.mark.parametrize("port", [None, 8000])
@pytest.mark.parametrize(
    ("endpoints", "cause"),
    [((), "no Pod has the labels"), ((STARTING,), "none of its endpoints is ready")],
)
def test_pool_without_ready_pods_is_a_problem_of_its_routes(
    port: int | None, endpoints: tuple[Object, ...], cause: str
) -> None:
    world = World({ROUTE: route({**REFERENCE, **({"port": port} if port else {})})})
    world.serve(*endpoints)
    with world.engine.compile() as ask:
        problems = dict(ask(backend_problems.backend_problems, GATEWAY).items())
    ((_, key),) = problems
    [problem] = problems.values()
    assert (problem.backend, problem.text) == (POOL, f"InferencePool n/p: {cause}")
    world.engine.commit({backend_problems.backend_problem_key(GATEWAY, key): problem.text})
    assert world.status(ROUTE)[1] == f"{RESOLVED}; {problem.text}"


@pytest.mark.parametrize(
    ("kind", "protocol", "expected"),
    [
        ("HTTPRoute", "http", "http"),
        ("HTTPRoute", "kubernetes.io/h2c", "h2c"),
        ("GRPCRoute", "http", "grpc"),
    ],
)
def test_protocol_is_that_of_pool_or_route(kind: str, protocol: str, expected: str) -> None:
    world = World({POOL: pool(appProtocol=protocol), (kind, "n", "r"): route()})
    if kind != "HTTPRoute":
        world.engine.commit({ROUTE: None})
    assert world.clusters()["InferencePool"].protocol == expected


@pytest.mark.parametrize("port", [None, 8000, 1])
def test_port_of_a_reference_has_no_meaning(port: int | None) -> None:
    reference = {**REFERENCE, **({"port": port} if port else {})}
    world = World({ROUTE: route(reference)})
    assert world.endpoints() == ["10.0.0.1:8000"]


def test_pool_without_picker_is_balanced_by_the_proxy() -> None:
    world = World({POOL: pool(None)})
    assert [*world.clusters()] == ["InferencePool"]
    assert world.pickers() == [None]
    assert world.clusters()["InferencePool"].picker is None
    assert world.status() == [ACCEPTED, RESOLVED]


def test_missing_pool_is_named() -> None:
    world = World()
    world.engine.commit({POOL: None})
    assert world.action() == ir.Respond(500)
    message = "rules[0].backendRefs[0]: InferencePool n/p not found"
    assert world.status(ROUTE)[1] == f"ResolvedRefs False BackendNotFound {message}"


def test_missing_definition_is_named() -> None:
    world = World()
    world.engine.commit({POOL: None, gateway_api.unavailable_kind_key("InferencePool"): "no CRD"})
    assert world.action() == ir.Respond(500)
    message = "InferencePool n/p not found: kind InferencePool is not available: no CRD"
    assert world.status(ROUTE)[1].endswith(message)


@pytest.mark.parametrize("controller", [gateway_api.NGINX, gateway_api.ENVOY])
def test_both_classes_serve_pools(controller: str) -> None:
    world = World(controller=controller)
    assert isinstance(world.action(), ir.Forward)
    assert world.status(ROUTE)[1] == RESOLVED
    assert world.status() == [ACCEPTED, RESOLVED]


def test_pools_share_requests_by_weight() -> None:
    second: Key = ("InferencePool", "n", "q")
    references = {**REFERENCE, "weight": 7}, {**REFERENCE, "name": "q", "weight": 3}
    world = World({second: pool(None), ROUTE: route(*references)})
    action = world.action()
    assert isinstance(action, ir.Forward)
    assert [backend.weight for backend in action.backends] == [7, 3]
    assert len({backend.cluster for backend in action.backends}) == 2
    assert world.status(second)[0].startswith(ACCEPTED)


def test_service_with_the_name_of_a_pool_is_another_backend() -> None:
    name: Key = ("Service", "n", "p")
    references = REFERENCE, {"name": "p", "port": 8000}
    world = World(
        {
            name: {"spec": {"ports": [{"name": "grpc", "port": 8000}]}},
            ("EndpointSlice", "n", "p"): service_slice("p"),
            ROUTE: route(*references),
        }
    )
    action = world.action()
    assert isinstance(action, ir.Forward)
    assert len({backend.cluster for backend in action.backends}) == 2
    assert world.endpoints() == ["10.0.0.1:8000"]


GRANT: dict[Key, Object] = {
    ("ReferenceGrant", "n", "g"): {
        "spec": {
            "from": [
                {"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": "other"}
            ],
            "to": [{"group": GROUP, "kind": "InferencePool"}],
        }
    }
}


@pytest.mark.parametrize("granted", [False, True])
def test_pool_elsewhere_needs_a_grant(granted: bool) -> None:
    across: Key = ("HTTPRoute", "other", "r")
    objects = {across: route({**REFERENCE, "namespace": "n"}), **(GRANT if granted else {})}
    world = World(objects)
    world.engine.commit({ROUTE: None})
    assert isinstance(world.action(), ir.Forward) == granted
    # A pool does not tell who asks for it in vain.
    assert world.status() == ([ACCEPTED, RESOLVED] if granted else [])
    refused = "InferencePool n/p not allowed by any ReferenceGrant"
    expected = f"ResolvedRefs False RefNotPermitted rules[0].backendRefs[0]: {refused}"
    assert world.status(across)[1] == (RESOLVED if granted else expected)


def test_pool_of_rejected_routes_is_not_accepted_until_one_is() -> None:
    world = World()
    listener = {"name": "l", "port": 80, "protocol": "HTTP", "hostname": "a.example"}
    world.commit(
        {
            GATEWAY: {"spec": {"gatewayClassName": "c", "listeners": [listener]}},
            ROUTE: route(hostnames=["b.example"]),
        }
    )
    why = "the Gateway accepts no route that refers to the InferencePool"
    assert world.status() == [f"Accepted False HTTPRouteNotAccepted {why}", RESOLVED]
    world.commit({("GRPCRoute", "n", "s"): route(hostnames=["a.example"])})
    assert world.status() == [ACCEPTED, RESOLVED]


def test_pool_without_routes_has_no_parent() -> None:
    world = World()
    world.engine.commit({ROUTE: None})
    assert world.status() == []


@pytest.mark.parametrize("kind", ["TCPRoute", "TLSRoute"])
def test_routes_of_connections_have_no_pools(kind: str) -> None:
    listener = {"name": "l", "port": 80, "protocol": kind.removesuffix("Route")}
    if kind == "TLSRoute":
        listener |= {"tls": {"mode": "Passthrough"}}
    own: Key = (kind, "n", "r")
    world = World({own: route()})
    world.engine.commit({ROUTE: None})
    world.commit({GATEWAY: {"spec": {"gatewayClassName": "c", "listeners": [listener]}}})
    assert "InferencePool" not in world.clusters()
    assert "must be Service" in world.status(own)[1]


def test_mirror_to_a_pool_is_refused() -> None:
    mirror = {"type": "RequestMirror", "requestMirror": {"backendRef": REFERENCE}}
    world = World({ROUTE: route(rule={"filters": [mirror]})})
    assert "InvalidKind" in world.status(ROUTE)[1]


def test_explanations_name_pool_and_pods() -> None:
    world = World()
    world.serve(READY, STARTING)
    with world.engine.compile() as ask:
        configuration = ask(gateway_api.compile_gateway, GATEWAY)
        assert configuration is not None
        references = ask.read(ROUTE).spec.rules[0].backend_refs
        [backend] = explain_backends(ask, (GATEWAY, ROUTE), references, "rules[0]", frozenset())
        targets = {target.text for target in traffic_of(configuration).values()}
    assert backend.backend == "InferencePool n/p"
    assert [(one.address, one.ready) for one in backend.endpoints] == [
        ("10.0.0.1:8000", True),
        ("10.0.0.2:8000", False),
    ]
    assert "InferencePool n/p" in targets
