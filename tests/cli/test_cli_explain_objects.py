"""Explanations of objects other than routes, and of Gateways that are not programmed."""

from __future__ import annotations

from typing import Any

import pytest

from fakes import hosted_objects, request_causes
from fakes.hosting import Place
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


def explained(objects: list[Object], *words: str, client: str = "") -> Explanation:
    target = parse_request_target(words, (), None, client)
    return explain_target(ObjectSet([*CLASSES, *objects], [], ()), target, "", offline=True)


def test_hosted_api_server_is_explained_by_sni() -> None:
    place = Place("one", 6443, ("10.1.2.3",))
    objects = [hosted_objects.gateway(), *hosted_objects.served(place)]
    result = explained(objects, "https://api.one.test/")
    assert result.answer.cause == "forwarded to Service default/one"
    assert result.match == "HostedAPIServer default/one"
    assert result.backends[0].endpoints[0].address == "127.0.0.1:6443"
    missing = explained(objects, "https://api.two.test/")
    assert (
        missing.answer.cause == "no answer: no object on port 443 has a hostname for api.two.test"
    )


@pytest.mark.parametrize("url", ["tls://api.one.test", "https://api.one.test/"])
def test_client_outside_the_permitted_ranges_is_rejected(url: str) -> None:
    place = Place("one", 6443, ("10.1.2.3",))
    served = hosted_objects.served(place, allowedSources=["192.0.2.0/24"])
    objects = [hosted_objects.gateway(), *served]
    words = (url,)
    assert explained(objects, *words, client="192.0.2.9").answer.verdict == "forwarded"
    assert explained(objects, *words, client="198.51.100.1").answer.cause == (
        "no answer: client 198.51.100.1 is not in the permitted ranges of HostedAPIServer "
        "default/one"
    )


@pytest.mark.parametrize(
    ("conditions", "cause"),
    [
        ([], "Gateway default/web is not programmed: no status yet; once it is: forwarded to "),
        (
            [{"type": "Programmed", "status": "False", "message": "no Pod"}],
            "Gateway default/web is not programmed: no Pod; once it is: forwarded to ",
        ),
        ([{"type": "Programmed", "status": "True"}], "forwarded to "),
    ],
)
def test_gateway_that_is_not_programmed_is_named_first(
    conditions: list[dict[str, Any]], cause: str
) -> None:
    secret = {"kind": "Secret", "metadata": {"name": "tls", "namespace": "default"}}
    objects = request_causes.base("gatehouse-nginx", ("127.0.0.1", 9000), secret)
    objects[1]["status"] = {"conditions": conditions}
    objects.append(request_causes.http_route("a", request_causes.to("app")))
    target = parse_request_target(("http://a.example:8080/",), (), None, "")
    result = explain_target(ObjectSet([*CLASSES, *objects], [], ()), target, "", offline=False)
    assert result.answer.cause == f"{cause}Service default/app:80"


@pytest.mark.parametrize(
    ("programmed", "cause"),
    [
        ("False", "no answer: Gateway default/web: listener http: cannot bind; once it is "
                  "programmed: forwarded to Service default/app:80"),
        ("True", "forwarded to Service default/app:80"),
    ],
)  # fmt: skip
def test_listener_that_the_proxy_rejected_is_named_first(programmed: str, cause: str) -> None:
    secret = {"kind": "Secret", "metadata": {"name": "tls", "namespace": "default"}}
    objects = request_causes.base("gatehouse-envoy", ("127.0.0.1", 9000), secret)
    rejected = {"type": "Programmed", "status": programmed, "message": "listener http: cannot bind"}
    objects[1]["status"] = {
        "conditions": [{"type": "Programmed", "status": "True"}],
        "listeners": [{"name": "http", "conditions": [rejected]}],
    }
    objects.append(request_causes.http_route("a", request_causes.to("app")))
    target = parse_request_target(("http://a.example:8080/",), (), None, "")
    result = explain_target(ObjectSet([*CLASSES, *objects], [], ()), target, "", offline=False)
    assert result.answer.cause == cause


def test_policies_are_named_with_the_field_that_applies() -> None:
    secret = {"kind": "Secret", "metadata": {"name": "tls", "namespace": "default"}}
    target = {"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "a"}
    nginx = {
        "kind": "ClientSettingsPolicy",
        "metadata": request_causes.metadata("small"),
        "spec": {"targetRef": target, "body": {"maxSize": "1k"}},
    }
    portable = {
        "kind": "TrafficPolicy",
        "metadata": request_causes.metadata("slow"),
        "spec": {"targetRefs": [target], "timeouts": {"read": "1s"}},
    }
    route = request_causes.http_route("a", request_causes.to("app"))
    base = request_causes.base("gatehouse-nginx", ("127.0.0.1", 9000), secret)
    result = explained([*base, route, nginx, portable], "http://a.example:8080/")
    assert [(item.type, item.source) for item in result.applied] == [
        ("ClientSettingsPolicy", "ClientSettingsPolicy default/small: spec.body.maxSize"),
        ("TrafficPolicy", "TrafficPolicy default/slow: spec.timeouts.read"),
    ]


def test_fields_of_the_rule_and_filters_of_backends_are_named() -> None:
    mirror = {"type": "RequestMirror", "requestMirror": {"backendRef": {"name": "app", "port": 80}}}
    rule = {
        **request_causes.to("app", filters=[mirror]),
        "timeouts": {"request": "2s", "backendRequest": "1s"},
        "retry": {"attempts": 3, "codes": [502, 503]},
        "sessionPersistence": {"type": "Cookie"},
    }
    objects = request_causes.base("gatehouse-nginx", ("127.0.0.1", 9000), _secret())
    route = request_causes.http_route("a", rule)
    result = explained([*objects, route], "http://a.example:8080/")
    place = "HTTPRoute default/a: spec.rules[0]"
    assert [(item.type, item.source, item.detail) for item in result.applied] == [
        ("RequestMirror", f"{place}.backendRefs[0].filters[0]", ""),
        ("timeouts", f"{place}.timeouts", "request 2s, backendRequest 1s"),
        ("retry", f"{place}.retry", "attempts 3, codes 502 503"),
        ("sessionPersistence", f"{place}.sessionPersistence", "Cookie"),
    ]


def test_policy_that_traces_a_route_is_named() -> None:
    owner = {"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "a"}
    policy = {
        "apiVersion": "gateway.nginx.org/v1alpha2", "kind": "ObservabilityPolicy",
        "metadata": request_causes.metadata("traces"),
        "spec": {"targetRefs": [owner], "tracing": {"strategy": "ratio", "ratio": 10}},
    }  # fmt: skip
    endpoint = {"exporter": {"endpoint": "collector.default.svc:4317"}}
    parameters = {
        "apiVersion": "gatehouse.dev/v1alpha1", "kind": "GatewayParameters",
        "metadata": request_causes.metadata("traces"), "spec": {"telemetry": endpoint},
    }  # fmt: skip
    objects = request_causes.base("gatehouse-envoy", ("127.0.0.1", 9000), _secret())
    objects[1]["spec"]["infrastructure"] = {
        "parametersRef": {"group": "gatehouse.dev", "kind": "GatewayParameters", "name": "traces"}
    }
    route = request_causes.http_route("a", request_causes.to("app"))
    collector = request_causes.service("collector", 4317)
    result = explained([*objects, collector, policy, parameters, route], "http://a.example:8080/")
    assert [(item.type, item.source) for item in result.applied] == [
        ("ObservabilityPolicy", "ObservabilityPolicy default/traces")
    ]


def test_gateway_with_the_port_for_kube_apiservers_is_chosen() -> None:
    port = {"name": "api", "port": 6443, "protocol": "gatehouse.dev/KubeAPIServer"}
    apis = {
        "apiVersion": request_causes.API, "kind": "Gateway",
        "metadata": request_causes.metadata("zz-apis"),
        "spec": {"gatewayClassName": "gatehouse-envoy", "listeners": [port]},
    }  # fmt: skip
    objects = request_causes.base("gatehouse-nginx", ("127.0.0.1", 9000), _secret())
    result = explained([*objects, apis], "https://api.prod.example:6443/api/v1/pods")
    assert result.gateway == "default/zz-apis"
    assert result.answer.cause.endswith("see gatehouse explain kube-request")


def _secret() -> Object:
    return {"kind": "Secret", "metadata": {"name": "tls", "namespace": "default"}}


@pytest.mark.parametrize("gateway_class", ["gatehouse-nginx", "gatehouse-envoy"])
def test_matches_tried_before_have_every_reason(gateway_class: str) -> None:
    exact = {"path": {"type": "Exact", "value": "/api"}, "method": "POST"}
    headers = {
        "path": {"value": "/api"},
        "headers": [{"name": "x-a", "value": "1"}, {"name": "x-b", "value": "2"}],
    }
    rules = [{**request_causes.to("app"), "matches": [match]} for match in (exact, headers)]
    objects = request_causes.base(gateway_class, ("127.0.0.1", 9000), _secret())
    objects.append(request_causes.http_route("a", *rules, request_causes.to("app")))
    result = explained(objects, "GET", "http://a.example:8080/api/x")
    assert result.match == "HTTPRoute default/a: spec.rules[2].matches[0]"
    assert [(item.match, item.reasons) for item in result.ruled_out] == [
        (
            "HTTPRoute default/a: spec.rules[0].matches[0]",
            ("needs path '/api', not '/api/x'", "needs method POST, not 'GET'"),
        ),
        (
            "HTTPRoute default/a: spec.rules[1].matches[0]",
            (
                "needs header x-a '1', which the request does not have",
                "needs header x-b '2', which the request does not have",
            ),
        ),
    ]
    lines = list(explain_rendering.explanation_lines(result, None))
    start = lines.index("Tried before:")
    assert lines[start + 1] == (
        "  - HTTPRoute default/a: spec.rules[0].matches[0] needs path '/api', not '/api/x' and "
        "needs method POST, not 'GET'"
    )


def test_long_list_of_matches_is_capped_in_text_only() -> None:
    rules = [
        {**request_causes.to("app"), "matches": [{"path": {"value": f"/{number}"}}]}
        for number in range(16)
    ]
    objects = request_causes.base("gatehouse-nginx", ("127.0.0.1", 9000), _secret())
    objects += [request_causes.http_route(f"r{n}", *rules, hostname="a.example") for n in (1, 2)]
    result = explained(objects, "http://a.example:8080/none")
    assert len(result.ruled_out) == 32
    lines = list(explain_rendering.explanation_lines(result, None))
    assert "  (12 more; -o json has all)" in lines


def _with_udp(*ready: bool) -> list[Object]:
    objects = request_causes.base("gatehouse-envoy", ("127.0.0.1", 9000), _secret())
    objects[1]["spec"]["listeners"].append(
        {"name": "udp", "port": request_causes.UDP_PORT, "protocol": "UDP"}
    )
    objects.append(request_causes.service("dns", 53, protocol="UDP"))
    objects += [
        request_causes.endpoints("dns", "127.0.0.1", 53, ready=value, protocol="UDP")
        for value in ready
    ]
    objects.append(request_causes.http_route("dns", request_causes.to("dns", 53), kind="UDPRoute"))
    return objects


def test_udp_route_is_explained() -> None:
    url = f"udp://any.example:{request_causes.UDP_PORT}"
    result = explained(_with_udp(True), url)
    assert result.answer.cause == "forwarded to Service default/dns:53"
    assert result.match == "UDPRoute default/dns"
    assert result.listener is not None
    assert (result.listener.name, result.listener.protocol) == ("udp", "UDP")
    unready = explained(_with_udp(False), url)
    assert unready.answer.cause == "no answer: Service default/dns has 0 of 1 ready endpoints"
    other = explained(_with_udp(True), "udp://any.example:9999")
    assert other.answer.cause == "no answer: no listener on port 9999 has the protocol UDP"


def test_route_that_a_default_gateway_does_not_allow_is_explained() -> None:
    """A default Gateway that allows its own namespace "MUST accept only" its routes (GEP-3793)."""
    objects = request_causes.base("gatehouse-nginx", ("127.0.0.1", 9000), _secret())
    objects[1]["spec"]["defaultScope"] = "All"
    route = request_causes.http_route(
        "r", request_causes.to("app"), parentRefs=[], useDefaultGateways="All"
    )
    url = f"http://r.example:{request_causes.HTTP_PORT}/"
    assert explained([*objects, route], url).answer.verdict == "forwarded"
    route["metadata"]["namespace"] = "other"
    answer = explained([*objects, route], url).answer
    reason = "useDefaultGateways: no listener allows HTTPRoute from namespace other"
    assert answer.cause == f"404: HTTPRoute other/r is not served here: {reason}"


def test_terminating_endpoint_is_explained_as_used_if_none_is_ready() -> None:
    """Consumers may use endpoints "that are both serving and terminating" if none is ready
    (EndpointConditions of discovery.k8s.io/v1, KEP-1669)."""
    leaving = {"ready": False, "serving": True, "terminating": True}
    endpoints = request_causes.endpoints("dns", "10.0.0.1", 53, protocol="UDP")
    endpoints["endpoints"][0]["conditions"] = leaving
    url = f"udp://any.example:{request_causes.UDP_PORT}"
    result = explained([*_with_udp(), endpoints], url)
    assert result.answer.cause == "forwarded to Service default/dns:53"
    used = "0 of 1 endpoints ready, 1 used while terminating: 10.0.0.1:53 (terminating)"
    assert any(line.endswith(used) for line in explain_rendering.explanation_lines(result, None))
    endpoints["endpoints"].append({"addresses": ["10.0.0.2"]})
    (backend,) = explained([*_with_udp(), endpoints], url).backends
    assert [entry.terminating for entry in backend.endpoints] == [False, False]
    assert backend.ready == 1


@pytest.mark.parametrize("gateway_class", ["gatehouse-nginx", "gatehouse-envoy"])
def test_grpc_route_is_explained(gateway_class: str) -> None:
    rule = {
        **request_causes.to("app"),
        "matches": [{"method": {"service": "shop.Api", "method": "Get"}}],
    }
    objects = request_causes.base(gateway_class, ("127.0.0.1", 9000), _secret())
    objects.append(
        request_causes.http_route("call", rule, kind="GRPCRoute", hostname="g.calls.test")
    )
    result = explained(objects, "POST", "http://g.calls.test:8080/shop.Api/Get")
    assert result.answer.cause == "forwarded to Service default/app:80"
    assert result.answer.grpc
    assert result.match == "GRPCRoute default/call: spec.rules[0].matches[0]"
    assert result.listener is not None
    assert result.listener.name == "calls"


CALLS_HOST, WEB_HOST = "g.calls.test", "a.example"


@pytest.mark.parametrize(
    ("gateway_class", "hostname", "content_type", "is_call"),
    [
        ("gatehouse-nginx", CALLS_HOST, "application/grpc", True),
        ("gatehouse-nginx", CALLS_HOST, "application/grpc+proto", True),
        ("gatehouse-nginx", CALLS_HOST, "application/grpc-web", False),
        ("gatehouse-nginx", CALLS_HOST, "", False),
        # NGINX knows calls where there are GRPCRoutes, and where there is no route at all.
        ("gatehouse-nginx", WEB_HOST, "application/grpc", False),
        ("gatehouse-envoy", WEB_HOST, "application/grpc", True),
        ("gatehouse-nginx", "unknown.test", "application/grpc", True),
        ("gatehouse-envoy", "unknown.test", "application/grpc", True),
    ],
)
def test_call_without_a_route_is_answered_with_a_status_of_grpc(
    gateway_class: str, hostname: str, content_type: str, is_call: bool
) -> None:
    call = {**request_causes.to("app"), "matches": [{"method": {"service": "shop.Api"}}]}
    web = request_causes.matching(request_causes.to("app"), path={"value": "/web"})
    objects = [
        *request_causes.base(gateway_class, ("127.0.0.1", 9000), _secret()),
        request_causes.http_route("call", call, kind="GRPCRoute", hostname=CALLS_HOST),
        request_causes.http_route("web", web, hostname=WEB_HOST),
    ]
    headers = (f"content-type: {content_type}",) if content_type else ()
    words = ("POST", f"http://{hostname}:8080/shop.Other/Get")
    target = parse_request_target(words, headers, None, "")
    known = ObjectSet([*CLASSES, *objects], [], ())
    answer = explain_target(known, target, "", offline=True).answer
    assert (answer.verdict, answer.statuses, answer.grpc) == ("answered", (404,), is_call)
    assert answer.cause.startswith("404 (gRPC status UNIMPLEMENTED): " if is_call else "404: ")


def test_named_gateway_is_explained() -> None:
    objects = request_causes.base("gatehouse-nginx", ("127.0.0.1", 9000), _secret())
    other = {
        "apiVersion": request_causes.API, "kind": "Gateway",
        "metadata": request_causes.metadata("other"),
        "spec": {
            "gatewayClassName": "gatehouse-envoy",
            "listeners": [{"name": "http", "port": 8080, "protocol": "HTTP"}],
        },
    }  # fmt: skip
    objects += [other, request_causes.http_route("a", request_causes.to("app"))]
    target = parse_request_target(("http://a.example:8080/",), (), None, "")

    def at(name: str) -> Explanation:
        return explain_target(ObjectSet([*CLASSES, *objects], [], ()), target, name, offline=True)

    assert (at("").gateway, at("").answer.verdict) == ("default/web", "forwarded")
    assert at("default/other").gateway == "default/other"
    assert at("default/other").answer.cause == (
        "404: no route has a hostname for a.example on port 8080"
    )
