"""Explanations of requests to routes with SecurityPolicies."""

from __future__ import annotations

from typing import Any

import pytest

from fakes import request_causes
from gatehouse.cli import explain_rendering
from gatehouse.compiler.evaluation.explanation import Explanation
from gatehouse.inspection.object_set import ObjectSet
from gatehouse.inspection.request_explanation import explain_target, parse_request_target
from kube_base.types.objects import Object

CLASSES = [
    {"kind": "GatewayClass", "metadata": {"name": f"gatehouse-{proxy}"},
     "spec": {"controllerName": f"gatehouse.dev/{proxy}"}}
    for proxy in ("nginx", "envoy")
]  # fmt: skip
SECRET = {"kind": "Secret", "metadata": {"name": "tls", "namespace": "default"}}


def explained(objects: list[Object], url: str, *headers: str) -> Explanation:
    target = parse_request_target((url,), headers, None, "")
    return explain_target(ObjectSet([*CLASSES, *objects], [], ()), target, "", offline=True)


def secured(name: str, target: Object, **spec: Any) -> Object:
    reference = {"group": "gateway.networking.k8s.io", **target}
    metadata = request_causes.metadata(name)
    whole = {"targetRefs": [reference], **spec}
    return {"kind": "SecurityPolicy", "metadata": metadata, "spec": whole}


@pytest.mark.parametrize("gateway_class", ["gatehouse-nginx", "gatehouse-envoy"])
def test_security_headers_are_named_with_their_values(gateway_class: str) -> None:
    outer = secured(
        "outer", {"kind": "Gateway", "name": "web"},
        securityHeaders={"frameOptions": "Deny", "contentTypeOptions": "NoSniff"},
    )  # fmt: skip
    transport = {"maxAgeSeconds": 60, "includeSubdomains": True}
    inner = secured(
        "inner", {"kind": "HTTPRoute", "name": "a"},
        securityHeaders={"frameOptions": "SameOrigin", "strictTransportSecurity": transport},
    )  # fmt: skip
    removal = {"type": "ResponseHeaderModifier",
               "responseHeaderModifier": {"remove": ["x-content-type-options"]}}  # fmt: skip
    rules = (
        request_causes.to("app"),
        {
            **request_causes.to("app"),
            "filters": [removal],
            "matches": [{"path": {"value": "/own"}}],
        },
    )
    objects = request_causes.base(gateway_class, ("127.0.0.1", 9000), SECRET)
    objects += [request_causes.http_route("a", *rules), outer, inner]
    transported = ("SecurityPolicy default/inner: spec.securityHeaders.strictTransportSecurity",
                   "Strict-Transport-Security: max-age=60; includeSubDomains")  # fmt: skip
    framed = ("SecurityPolicy default/inner: spec.securityHeaders.frameOptions",
              "X-Frame-Options: SAMEORIGIN")  # fmt: skip
    typed = ("SecurityPolicy default/outer: spec.securityHeaders.contentTypeOptions",
             "X-Content-Type-Options: nosniff")  # fmt: skip

    def headers(path: str) -> set[tuple[str, str]]:
        applied = explained(objects, f"http://a.example:8080{path}").applied
        return {(one.source, one.detail) for one in applied if one.type == "SecurityPolicy"}

    assert headers("/") == {transported, framed, typed}
    assert headers("/own") == {transported, framed}
    lines = explain_rendering.explanation_lines(explained(objects, "http://a.example:8080/"), None)
    assert f"  - SecurityPolicy: {framed[0]} ({framed[1]})" in [*lines]


def test_request_without_a_key_is_answered_401() -> None:
    keys = {
        "secretRefs": [{"name": "clients"}],
        "extractFrom": [{"headers": ["X-Key"], "params": ["key"], "cookies": ["sess"]}],
    }
    clients = {
        "kind": "Secret", "metadata": request_causes.metadata("clients"), "data": {"a": "YQ=="}
    }  # fmt: skip
    policy = secured("keys", {"kind": "HTTPRoute", "name": "a"}, apiKeys=keys)
    objects = request_causes.base("gatehouse-envoy", ("127.0.0.1", 9000), SECRET)
    objects += [request_causes.http_route("a", request_causes.to("app")), clients, policy]

    def answer(path: str, *headers: str) -> str:
        return explained(objects, f"http://a.example:8080{path}", *headers).answer.cause

    assert answer("/") == "401: SecurityPolicy default/keys requires credentials"
    assert answer("/?key=", "Authorization: a", "Cookie: sess=").startswith("401: ")
    for path, *sent in (("/", "X-Key: a"), ("/?b&key=a",), ("/", "Cookie: b=1; sess=a")):
        assert answer(path, *sent) == "forwarded to Service default/app:80"


def test_request_without_a_session_leads_to_a_login() -> None:
    login = {
        "issuer": "https://id.example", "clientID": "web", "clientSecretRef": {"name": "client"}
    }  # fmt: skip
    client = {
        "kind": "Secret",
        "metadata": request_causes.metadata("client"),
        "data": {"client-secret": "YQ=="},
    }
    policy = secured("users", {"kind": "HTTPRoute", "name": "a"}, oidc=login)
    objects = request_causes.base("gatehouse-envoy", ("127.0.0.1", 9000), SECRET)
    objects += [request_causes.http_route("a", request_causes.to("app")), client, policy]

    def answer(*headers: str) -> str:
        return explained(objects, "http://a.example:8080/", *headers).answer.cause

    why = "SecurityPolicy default/users requires credentials"
    assert answer() == f"302: {why}"
    assert answer("Sec-Fetch-Mode: cors") == f"401: {why}"
    assert answer("Cookie: session=a") == "forwarded to Service default/app:80"
