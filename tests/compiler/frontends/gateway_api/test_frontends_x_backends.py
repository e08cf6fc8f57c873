"""XBackends: their endpoints and protocols, references to them, and their conditions."""

from __future__ import annotations

import pytest

from fakes.one_route import GATEWAY
from fakes.x_backend_world import (
    ACCEPTED,
    BACKEND,
    GROUP,
    HOST,
    LISTENERS,
    NAME_SERVERS,
    PARENTS,
    REFERENCE,
    RESOLVED,
    ROUTE,
    SELECTOR,
    SERVER_ONLY,
    SYSTEM,
    Object,
    XBackendWorld,
    route_to,
)
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.frontends.gateway_api.backend_problems import (
    backend_problem_key,
    backend_problems,
)
from gatehouse.compiler.frontends.gateway_api.status.types import PolicyStatus
from gatehouse.compiler.ir import http as ir
from gatehouse.dataplane.origin import object_of
from gatehouse.incremental.query import Key


def test_pods_are_selected_by_a_headless_service_of_the_namespace() -> None:
    written = XBackendWorld().service()
    assert written is not None
    metadata = written["metadata"]
    assert metadata["namespace"] == "n"
    assert metadata["labels"] == {"app.kubernetes.io/managed-by": "gatehouse"}
    assert written["spec"] == {
        "clusterIP": "None",
        "selector": {"app": "shop"},
        "ports": [{"port": 8080, "targetPort": 8080, "protocol": "TCP"}],
    }


def test_name_of_the_service_belongs_to_one_backend_of_the_name() -> None:
    world = XBackendWorld()
    first = world.service()
    world.put(BACKEND, SELECTOR, metadata={"uid": "another"})
    second = world.service()
    assert first is not None
    assert second is not None
    assert first["spec"] == second["spec"]
    assert first["metadata"]["name"] != second["metadata"]["name"]
    assert "b" not in first["metadata"]["name"].removeprefix("xbackend").split("-")


def test_service_exists_while_a_gateway_uses_the_backend() -> None:
    world = XBackendWorld()
    world.remove(ROUTE)
    assert world.service() is None
    assert world.status() == []
    world.put(ROUTE, route_to())
    assert world.service() is not None
    world.put(("GatewayClass", "", "c"), {"controllerName": "example.com/other"})
    assert world.service() is None


def test_requests_go_to_the_endpoints_of_the_service() -> None:
    world = XBackendWorld()
    world.serve("10.0.0.2", "10.0.0.1")
    cluster = world.cluster()
    assert cluster.endpoints == (ir.Endpoint("10.0.0.1", 8080), ir.Endpoint("10.0.0.2", 8080))
    assert (cluster.protocol, cluster.tls, cluster.resolution) == ("http", None, None)
    assert cluster.origin == object_of(BACKEND)
    assert world.status() == [ACCEPTED, RESOLVED]
    assert world.resolved() == RESOLVED


def test_backend_is_not_a_service_of_its_name() -> None:
    world = XBackendWorld()
    world.serve("10.0.0.1")
    world.put(("Service", "n", "b"), {"ports": [{"port": 8080}], "clusterIP": "10.9.9.9"})
    own = {"group": "", "kind": "Service", "name": "b", "port": 8080}
    world.put(ROUTE, route_to(REFERENCE, own))
    first, second = sorted(world.clusters, key=lambda cluster: cluster.origin.kind)
    assert first.name != second.name
    assert (first.origin.kind, first.endpoints) == ("Service", ())
    assert second.endpoints == (ir.Endpoint("10.0.0.1", 8080),)


def test_cluster_ip_of_a_service_of_the_name_is_never_used() -> None:
    world = XBackendWorld()
    world.serve("10.0.0.1")
    world.put(("Service", "n", "b"), {"ports": [{"port": 8080}], "clusterIP": "10.9.9.9"})
    world.put(("NginxProxy", "n", "names"), {**NAME_SERVERS, "useClusterIP": True})
    assert world.cluster().endpoints == (ir.Endpoint("10.0.0.1", 8080),)


def test_missing_service_is_named() -> None:
    accepted, _ = XBackendWorld().status()
    assert accepted.startswith(f"{ACCEPTED}; Service n/xbackend-")
    assert accepted.endswith(" for its endpoints does not exist yet")


@pytest.mark.parametrize(
    ("kind", "protocol", "expected"),
    [
        ("HTTPRoute", None, "http"),
        ("HTTPRoute", "HTTP", "http"),
        ("HTTPRoute", "HTTP11", "http"),
        ("HTTPRoute", "H2C", "h2c"),
        ("HTTPRoute", "HTTP2", "h2c"),
        ("HTTPRoute", "WSS", "http"),
        ("GRPCRoute", None, "grpc"),
        ("GRPCRoute", "GRPC", "grpc"),
        ("GRPCRoute", "HTTP2", "grpc"),
        ("GRPCRoute", "H2C", "grpc"),
        ("TCPRoute", None, "tcp"),
        ("TCPRoute", "TCP", "tcp"),
        ("HTTPRoute", "TCP", None),
        ("HTTPRoute", "GRPC", None),
        ("GRPCRoute", "HTTP11", None),
        ("GRPCRoute", "WSS", None),
        ("TCPRoute", "HTTP", None),
        ("UDPRoute", None, None),
        ("UDPRoute", "TCP", None),
    ],
)
def test_protocol_depends_on_the_kind_of_the_route_to(
    kind: str, protocol: str | None, expected: str | None
) -> None:
    tls = {"tls": SERVER_ONLY} if protocol in ("HTTP2", "WSS") else {}
    own = {"protocol": protocol} if protocol else {}
    world = XBackendWorld(SELECTOR | own | tls, **{kind: route_to()})
    if kind != "HTTPRoute":
        world.remove(ROUTE)
    key = (kind, "n", "r")
    if expected is not None:
        assert world.cluster().protocol == expected
        assert world.resolved(key) == RESOLVED
        return
    assert world.clusters == []
    assert world.resolved(key) == (
        "ResolvedRefs False UnsupportedProtocol rules[0].backendRefs[0]: XBackend n/b: "
        f"spec.protocol {protocol or '(not set)'} is not supported by {kind}"
    )


def test_host_outside_the_cluster_is_resolved_by_name_and_gets_its_name() -> None:
    world = XBackendWorld(HOST)
    cluster = world.cluster()
    assert cluster.endpoints == (ir.Endpoint("api.example.net", 443),)
    assert cluster.resolution is not None
    (action,) = world.actions()
    assert isinstance(action, ir.Forward)
    assert action.rewrite.hostname == "api.example.net"
    assert world.service() is None
    assert world.status() == [ACCEPTED, RESOLVED]


@pytest.mark.parametrize(
    "hostname",
    [
        "localhost",
        "db.other.svc.cluster.local",
        "db.other.svc",
        "db.other.svc.example.net",
        "metadata.google.internal",
        "169.254.169.254",
        "127.1",
        "example.org",
        "",
    ],
)
def test_host_that_the_operator_does_not_allow_is_refused(hostname: str) -> None:
    world = XBackendWorld(HOST | {"externalHostname": {"hostname": hostname}})
    assert world.clusters == []
    assert world.actions() == [ir.Respond(500)]
    field = f"spec.externalHostname.hostname: {hostname!r}: "
    (accepted, _) = world.status()
    assert accepted.startswith(f"Accepted False Invalid {field}")
    assert world.resolved().startswith(
        f"ResolvedRefs False ExternalNameNotAllowed rules[0].backendRefs[0]: XBackend n/b: {field}"
    )


def test_host_needs_name_servers() -> None:
    world = XBackendWorld(HOST)
    world.put(("NginxProxy", "n", "names"), {})
    assert world.clusters == []
    (accepted, _) = world.status()
    assert "needs spec.dnsResolver in the parameters of the GatewayClass" in accepted
    assert world.resolved().startswith("ResolvedRefs False UnsupportedValue")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"type": "Other"}, "type: 'Other' is not supported"),
        ({"endpointSelector": {"matchLabels": {}}}, "endpointSelector.matchLabels: must not be e"),
        ({"endpointSelector": {}}, "endpointSelector.matchLabels: must not be empty"),
        ({"port": {}}, "port.number: must be set to a port"),
        ({"port": {"number": 65536}}, "port.number: must be set to a port"),
        ({"protocol": "MCP"}, "protocol: MCP is not supported"),
        ({"protocol": "WSS"}, "tls.mode: must not be None with protocol WSS"),
        ({"protocol": "HTTP2"}, "tls.mode: must not be None with protocol HTTP2"),
        ({"protocol": "H2C", "tls": SERVER_ONLY}, "tls.mode: must be None with protocol H2C"),
        ({"tls": {"mode": "Other"}}, "tls.mode: 'Other' is not supported"),
        ({"tls": {"mode": "ServerOnly"}}, "tls.validation: must be set if and only if"),
        ({"tls": {"mode": "None", "validation": SYSTEM}}, "tls.validation: must be set if and on"),
        (
            {"tls": {"mode": "ClientAndServer", "validation": SYSTEM}},
            "tls.clientCertificateRef: must be set if and only if",
        ),
        (
            {"tls": SERVER_ONLY | {"clientCertificateRef": {"name": "x"}}},
            "tls.clientCertificateRef: must be set if and only if",
        ),
    ],
)
def test_invalid_field_is_named_and_nothing_is_forwarded(change: Object, problem: str) -> None:
    world = XBackendWorld(SELECTOR | change)
    assert world.clusters == []
    assert world.actions() == [ir.Respond(500)]
    assert world.service() is None
    (accepted, _) = world.status()
    assert accepted.startswith(f"Accepted False Invalid spec.{problem}")
    assert f"XBackend n/b: spec.{problem}" in world.resolved()


def test_malformed_backend_is_invalid() -> None:
    world = XBackendWorld()
    world.put(BACKEND, {"port": "x"})
    assert world.resolved().endswith("XBackend n/b is invalid")
    assert world.service() is None
    assert world.status() == []


@pytest.mark.parametrize(
    ("reference", "condition"),
    [
        (REFERENCE | {"name": "z"}, "BackendNotFound {}: XBackend n/z not found"),
        (REFERENCE | {"port": 8080}, "BackendNotFound {}.port: must not be set: XBackend n/b has"),
        (
            REFERENCE | {"group": ""},
            "InvalidKind {}: kind XBackend is not supported: must be Service or XBackend",
        ),
        (
            REFERENCE | {"group": "example.com"},
            "InvalidKind {}: kind example.com/XBackend is not supported",
        ),
        (
            {"group": GROUP, "kind": "Service", "name": "b", "port": 80},
            f"InvalidKind {{}}: kind {GROUP}/Service is not supported",
        ),
        (
            REFERENCE | {"namespace": "other"},
            "RefNotPermitted {}: XBackend other/b not allowed by any ReferenceGrant",
        ),
    ],
)
def test_unresolved_reference_is_named(reference: Object, condition: str) -> None:
    world = XBackendWorld()
    world.put(("XBackend", "other", "b"), SELECTOR)
    world.put(ROUTE, route_to(reference))
    assert world.clusters == []
    place = "rules[0].backendRefs[0]"
    assert world.resolved().startswith(f"ResolvedRefs False {condition.format(place)}")
    assert world.status(("XBackend", "other", "b")) == []


def test_kind_that_the_cluster_does_not_serve_is_named() -> None:
    world = XBackendWorld()
    world.remove(BACKEND)
    key = gateway_api.unavailable_kind_key("XBackend")
    world.engine.commit({key: "no such definition"})
    assert world.resolved().endswith(
        "XBackend n/b not found: kind XBackend is not available: no such definition"
    )


def grant(kind: str, group: str) -> Object:
    source = {"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": "n"}
    return {"from": [source], "to": [{"group": group, "kind": kind}]}


@pytest.mark.parametrize(
    ("kind", "group", "allowed"),
    [("XBackend", GROUP, True), ("XBackend", "", False), ("Service", "", False)],
)
def test_reference_to_another_namespace_needs_a_grant_for_the_kind(
    kind: str, group: str, *, allowed: bool
) -> None:
    world = XBackendWorld()
    other: Key = ("XBackend", "other", "b")
    world.put(other, SELECTOR)
    world.put(("ReferenceGrant", "other", "g"), grant(kind, group))
    world.put(ROUTE, route_to(REFERENCE | {"namespace": "other"}))
    assert bool(world.clusters) == allowed
    assert (world.service(other) is not None) == allowed
    assert bool(world.status(other)) == allowed


def test_mirror_and_authorization_server_may_be_backends() -> None:
    mirror = {"type": "RequestMirror", "requestMirror": {"backendRef": REFERENCE}}
    auth = {"backendRef": REFERENCE, "protocol": "HTTP", "http": {}}
    for filters in ([mirror], [{"type": "ExternalAuth", "externalAuth": auth}]):
        world = XBackendWorld()
        world.put(("Service", "n", "s"), {"ports": [{"port": 80}]})
        rule = {"filters": filters, "backendRefs": [{"name": "s", "port": 80}]}
        world.put(ROUTE, {**PARENTS, "rules": [rule]})
        assert {cluster.origin.kind for cluster in world.clusters} == {"Service", "XBackend"}
        assert world.service() is not None


def test_conditions_have_the_generation_and_the_controller() -> None:
    world = XBackendWorld()
    with world.engine.compile() as ask:
        status = ask(gateway_api.gateway_api_status, BACKEND)
    assert isinstance(status, PolicyStatus)
    (entry,) = status.ancestors
    assert (entry.controller, entry.ancestor) == (gateway_api.ENVOY, GATEWAY)
    assert {one.observed_generation for one in entry.conditions} == {3}


def test_backend_of_another_controller_is_left_alone() -> None:
    world = XBackendWorld()
    world.put(("GatewayClass", "", "c"), {"controllerName": "example.com/other"})
    assert world.status() == []
    assert world.service() is None


def test_labels_that_select_no_ready_pod_are_named_by_the_route() -> None:
    world = XBackendWorld()

    def problem() -> str:
        with world.engine.compile() as ask:
            ((_, cluster), known), *_ = ask(backend_problems, GATEWAY).items()
        assert known.backend == BACKEND
        world.engine.commit({backend_problem_key(GATEWAY, cluster): known.text})
        return known.text

    assert problem() == "XBackend n/b port 8080: no Pod has the labels"
    assert world.resolved() == f"{RESOLVED}; XBackend n/b port 8080: no Pod has the labels"
    world.serve("10.0.0.1", ready=False)
    assert problem() == "XBackend n/b port 8080: none of its endpoints is ready"
    world.serve("10.0.0.1")
    with world.engine.compile() as ask:
        assert not ask(backend_problems, GATEWAY)


def test_gateways_of_both_classes_have_an_entry_each() -> None:
    world = XBackendWorld()
    world.put(("GatewayClass", "", "d"), {"controllerName": gateway_api.NGINX})
    world.put(("Gateway", "n", "second"), {"gatewayClassName": "d", "listeners": LISTENERS})
    both = {"parentRefs": [{"name": "gw"}, {"name": "second"}]}
    world.put(ROUTE, {**route_to(), **both})
    with world.engine.compile() as ask:
        status = ask(gateway_api.gateway_api_status, BACKEND)
    assert isinstance(status, PolicyStatus)
    assert [(entry.ancestor[2], entry.controller) for entry in status.ancestors] == [
        ("gw", gateway_api.ENVOY),
        ("second", gateway_api.NGINX),
    ]


@pytest.mark.parametrize(("others", "own"), [(0, 1), (31, 1), (32, 0)])
def test_status_leaves_room_for_the_entries_of_other_controllers(others: int, own: int) -> None:
    entry = {"controllerName": "example.com/c", "conditions": []}
    ancestors = [{**entry, "ancestorRef": {"name": f"g{number}"}} for number in range(others)]
    with XBackendWorld().engine.compile() as ask:
        outcome = ask(gateway_api.gateway_api_status, BACKEND)
    assert outcome is not None
    before = {"ancestors": ancestors}
    merged = gateway_api.GATEWAY_API_FRONT_END.merge_status(before, outcome, "T") or before
    assert merged["ancestors"][:others] == ancestors
    assert len(merged["ancestors"]) == others + own
