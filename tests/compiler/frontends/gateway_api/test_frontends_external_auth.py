"""ExternalAuth filters: what reaches the IR, and conditions that name an invalid field."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.one_route import BACKEND, Object, conditions, engine, routes
from gatehouse.compiler.ir import http as ir
from gatehouse.compiler.ir.authentication import ExternalAuth
from gatehouse.dataplane.origin import Origin

AUTH = (("Service", "n", "auth"), {"ports": [{"name": "p", "port": 80, "protocol": "TCP"}]})
OTHER = (("Service", "o", "auth"), {"ports": [{"name": "p", "port": 80, "protocol": "TCP"}]})
FIELD = "rules[0].filters[0].externalAuth"
HTTP = {"backendRef": {"name": "auth", "port": 80}, "protocol": "HTTP", "http": {}}


def external(spec: Object) -> Object:
    return {"type": "ExternalAuth", "externalAuth": spec}


def rule(*filters: Object, **fields: Any) -> Object:
    return {"filters": [*filters], "backendRefs": [BACKEND], **fields}


def http(**fields: Any) -> Object:
    return HTTP | {"http": fields}


def test_fields_reach_the_ir() -> None:
    fields = http(
        path="check/%C3%A9/", allowedHeaders=["X-B", "host", "x-b", "X-A"],
        allowedResponseHeaders=["X-User"],
    )  # fmt: skip
    filters = rule(external(fields | {"forwardBody": {"maxSize": 7}}))
    with engine("HTTPRoute", [filters], AUTH).compile() as ask:
        (route,) = routes(ask)
        assert route.external_auth is not None
        assert route.external_auth == ExternalAuth(
            cluster=route.external_auth.cluster,
            protocol="http",
            path="/check/%C3%A9",
            request_headers=("X-A", "X-B"),
            response_headers=("X-User",),
            body_size=7,
            origin=Origin("HTTPRoute", "n", "r", FIELD),
        )
        assert isinstance(route.action, ir.Forward)
        assert route.clusters == {*route.action.clusters, route.external_auth.cluster}
        assert "Accepted=True" in conditions(ask, "HTTPRoute")


def test_server_by_grpc_is_a_cluster_of_its_own() -> None:
    filters = rule(external({"backendRef": BACKEND, "protocol": "GRPC", "grpc": {}}))
    with engine("HTTPRoute", [filters]).compile() as ask:
        (route,) = routes(ask)
        assert route.external_auth is not None
        assert isinstance(route.action, ir.Forward)
        assert route.external_auth.protocol == "grpc"
        assert len(route.clusters) == 2


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (HTTP | {"protocol": "SMTP"}, ".protocol: SMTP is not supported"),
        (http(path="/a/../b"), ".http.path: '/a/../b' must not contain empty or dot segments"),
        (http(path="/a/%2E%2e"), ".http.path: '/a/%2E%2e' must not contain empty or dot segments"),
        (http(path="/a//b"), ".http.path: '/a//b' must not contain empty or dot segments"),
        (http(path="/a?b"), ".http.path: '/a?b' contains characters"),
        (http(path="/a%0d%0aX: y"), ".http.path: '/a%0d%0aX: y' contains characters"),
        (http(path="/a%0d%0a"), ".http.path: '/a%0d%0a' contains encoded characters"),
        (http(path="/a%3fb"), ".http.path: '/a%3fb' contains encoded characters"),
        (http(path="/%ff"), ".http.path: '/%ff' must be UTF-8 when decoded"),
        (http(path=f"/{'a' * 1024}"), "must not be longer than 1024 characters"),
        (http(allowedHeaders=["X-A", "a b"]), ".http.allowedHeaders[1]: 'a b' must be a token"),
        (http(allowedHeaders=["x" * 257]), ".http.allowedHeaders[0]: must not be longer than 256"),
        (http(allowedHeaders=["te"]), ".http.allowedHeaders[0]: header te belongs to"),
        (http(allowedHeaders=["x"] * 65), ".http.allowedHeaders: must not have more than 64"),
        (
            http(allowedResponseHeaders=["HOST"]),
            ".http.allowedResponseHeaders[0]: header HOST must not be copied",
        ),
        (
            http(allowedResponseHeaders=["Transfer-Encoding"]),
            ".http.allowedResponseHeaders[0]: header Transfer-Encoding belongs to",
        ),
        (
            http(allowedResponseHeaders=["X_User"]),
            ".http.allowedResponseHeaders[0]: header X_User contains an underscore",
        ),
        (HTTP | {"forwardBody": {"maxSize": -1}}, ".forwardBody.maxSize: must not be negative"),
        (HTTP | {"forwardBody": {"maxSize": 2**40}}, ".forwardBody.maxSize: 1099511627776 is more"),
        (
            {"backendRef": BACKEND, "protocol": "GRPC", "grpc": {"allowedHeaders": [":path"]}},
            ".grpc.allowedHeaders[0]: ':path' must be a token",
        ),
    ],
)
def test_invalid_field_is_named_and_its_rule_answers_500(spec: Object, message: str) -> None:
    with engine("HTTPRoute", [rule(external(spec))], AUTH).compile() as ask:
        (route,) = routes(ask)
        assert route.action == ir.Respond(500)
        reported = conditions(ask, "HTTPRoute")
        assert "Accepted=False UnsupportedValue" in reported
        assert FIELD in reported
        assert message in reported


@pytest.mark.parametrize(
    ("reference", "reason", "message"),
    [
        ({"name": "none", "port": 80}, "BackendNotFound", "Service n/none not found"),
        ({"name": "auth", "port": 81}, "BackendNotFound", "TCP port 81 not found"),
        ({"name": "auth"}, "BackendNotFound", "port: must be set"),
        ({"name": "auth", "port": 80, "kind": "Pod"}, "InvalidKind", "kind Pod is not supported"),
        ({"name": "auth", "port": 80, "namespace": "o"}, "RefNotPermitted", "ReferenceGrant"),
    ],
)
def test_invalid_reference_is_named_and_its_rule_answers_500(
    reference: Object, reason: str, message: str
) -> None:
    filters = rule(external(HTTP | {"backendRef": reference}))
    with engine("HTTPRoute", [filters], AUTH, OTHER).compile() as ask:
        (route,) = routes(ask)
        assert route.action == ir.Respond(500)
        reported = conditions(ask, "HTTPRoute")
        assert f"ResolvedRefs=False {reason}" in reported
        assert f"{FIELD}.backendRef" in reported
        assert message in reported


def test_server_of_another_namespace_needs_a_grant() -> None:
    grant = {
        "from": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": "n"}],
        "to": [{"group": "", "kind": "Service"}],
    }
    filters = rule(external(HTTP | {"backendRef": {"name": "auth", "namespace": "o", "port": 80}}))
    granted = (("ReferenceGrant", "o", "g"), grant)
    with engine("HTTPRoute", [filters], OTHER, granted).compile() as ask:
        (route,) = routes(ask)
        assert route.external_auth is not None


def test_rule_with_invalid_tls_of_its_server_answers_500() -> None:
    policy = {
        "targetRefs": [{"group": "", "kind": "Service", "name": "auth"}],
        "validation": {
            "hostname": "auth.example",
            "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "missing"}],
        },
    }
    broken = (("BackendTLSPolicy", "n", "p"), policy)
    with engine("HTTPRoute", [rule(external(HTTP))], AUTH, broken).compile() as ask:
        (route,) = routes(ask)
        assert route.action == ir.Respond(500)
        message = f"{FIELD}.backendRef: the BackendTLSPolicy of Service n/auth is invalid"
        assert f"ResolvedRefs=False InvalidFilter: {message}" in conditions(ask, "HTTPRoute")


def test_rule_has_one_filter() -> None:
    filters = rule(external(HTTP), external(HTTP))
    with engine("HTTPRoute", [filters], AUTH).compile() as ask:
        (route,) = routes(ask)
        assert route.action == ir.Respond(500)
        message = "rules[0].filters[1]: a rule must not have more than one ExternalAuth filter"
        assert message in conditions(ask, "HTTPRoute")


def test_filter_of_a_backend_or_grpc_route_is_not_supported() -> None:
    backend = BACKEND | {"filters": [external(HTTP)]}
    with engine("HTTPRoute", [rule(backendRefs=[backend])], AUTH).compile() as ask:
        (route,) = routes(ask)
        assert route.action == ir.Respond(500)
        message = "rules[0].backendRefs[0].filters: ExternalAuth and ExtensionRef are not supported"
        assert message in conditions(ask, "HTTPRoute")
    with engine("GRPCRoute", [rule(external(HTTP))], AUTH).compile() as ask:
        (route,) = routes(ask)
        assert route.action == ir.Respond(500)
        message = "rules[0].filters[0]: type ExternalAuth is not supported"
        assert message in conditions(ask, "GRPCRoute")


def test_other_rules_of_the_service_remove_its_headers() -> None:
    listed = external(http(allowedResponseHeaders=["X-User", "Authorization"]))
    rules = [rule(listed), rule(), rule(external(HTTP)), rule(external(
        http(allowedResponseHeaders=["X-Other"])))]  # fmt: skip
    for number, entry in enumerate(rules):
        entry["matches"] = [{"path": {"type": "PathPrefix", "value": f"/{number}"}}]
    with engine("HTTPRoute", rules, AUTH).compile() as ask:
        removed = {route.match.path.value: route.request_headers.remove for route in routes(ask)}
        assert removed == {
            "/0": ("x-other",), "/1": ("x-other", "x-user"), "/2": (), "/3": ("x-user",),
        }  # fmt: skip
