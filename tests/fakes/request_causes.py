"""Table of causes of failed requests: objects with one fault each, and the first line to expect.

Every case has a hostname of its own, so that one Gateway serves all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]

HTTP_PORT, HTTPS_PORT, TLS_PORT, TCP_PORT, UDP_PORT = 8080, 8443, 8444, 8445, 8446
API = "gateway.networking.k8s.io/v1"


@dataclass(frozen=True)
class CauseCase:
    """Objects with a fault, a request, and the expected first line of its explanation."""

    name: str
    cause: str
    """Text in the first line."""
    objects: list[Object] = field(default_factory=list)
    words: tuple[str, ...] = ()
    """Method, URL and options; empty: GET of the hostname of the case."""
    envoy: str = ""
    """Text at an Envoy, if it differs."""

    def cause_at(self, gateway_class: str) -> str:
        """Return the text in the first line at a proxy."""
        return (gateway_class == "gatehouse-envoy" and self.envoy) or self.cause

    @property
    def arguments(self) -> tuple[str, ...]:
        return self.words or (f"http://{self.name}.example:{HTTP_PORT}/",)


def metadata(name: str, namespace: str = "default") -> Object:
    return {"name": name, "namespace": namespace, "creationTimestamp": "2026-01-01T00:00:00Z"}


def http_route(
    name: str, *rules: Object, kind: str = "HTTPRoute", hostname: str = "", **spec: Any
) -> Object:
    names = (
        {} if kind in ("TCPRoute", "UDPRoute") else {"hostnames": [hostname or f"{name}.example"]}
    )
    return {
        "apiVersion": API, "kind": kind, "metadata": metadata(name),
        "spec": {"parentRefs": [{"name": "web"}], **names, "rules": list(rules), **spec},
    }  # fmt: skip


def to(service: str, port: int = 80, **more: Any) -> Object:
    return {"backendRefs": [{"name": service, "port": port, **more}]}


def matching(rule: Object, **match: Any) -> Object:
    return {**rule, "matches": [match]}


def filtered(rule: Object, *filters: Object) -> Object:
    return {**rule, "filters": list(filters)}


def service(
    service_name: str, port: int = 80, namespace: str = "default", **port_fields: Any
) -> Object:
    return {
        "apiVersion": "v1", "kind": "Service", "metadata": metadata(service_name, namespace),
        "spec": {"ports": [{"port": port, **port_fields}]},
    }  # fmt: skip


def endpoints(
    name: str, address: str, port: int, *, ready: bool = True, namespace: str = "default",
    protocol: str = "TCP",
) -> Object:  # fmt: skip
    labels = {"kubernetes.io/service-name": name}
    return {
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {**metadata(f"{name}-1", namespace), "labels": labels},
        "ports": [{"port": port, "protocol": protocol}],
        "endpoints": [{"addresses": [address], "conditions": {"ready": ready}}],
    }  # fmt: skip


def base(gateway_class: str, backend: tuple[str, int], secret: Object) -> list[Object]:
    """Return a Gateway with a listener of each protocol, and the Service `app`."""
    certificate = {"certificateRefs": [{"name": secret["metadata"]["name"]}]}
    only = {"namespaces": {"from": "Same"}, "kinds": [{"kind": "GRPCRoute"}]}
    gateway = {
        "apiVersion": API, "kind": "Gateway", "metadata": metadata("web"),
        "spec": {
            "gatewayClassName": gateway_class,
            "listeners": [
                {"name": "http", "port": HTTP_PORT, "protocol": "HTTP"},
                {"name": "calls", "port": HTTP_PORT, "protocol": "HTTP",
                 "hostname": "*.calls.test", "allowedRoutes": only},
                {"name": "https", "port": HTTPS_PORT, "protocol": "HTTPS",
                 "hostname": "*.tls.example", "tls": certificate},
                {"name": "other", "port": HTTPS_PORT, "protocol": "HTTPS",
                 "hostname": "one.tls.example", "tls": certificate},
                {"name": "tls", "port": TLS_PORT, "protocol": "TLS",
                 "hostname": "*.raw.example", "tls": {"mode": "Passthrough"}},
                {"name": "tcp", "port": TCP_PORT, "protocol": "TCP"},
                {"name": "nosecret", "port": 8447, "protocol": "HTTPS",
                 "tls": {"certificateRefs": [{"name": "missing"}]}},
            ],
        },
    }  # fmt: skip
    return [secret, gateway, service("app"), endpoints("app", *backend)]


def _header_modifier(name: str) -> Object:
    header = [{"name": name, "value": "v"}]
    return {"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": header}}


def _redirect(**fields: Any) -> Object:
    return {"type": "RequestRedirect", "requestRedirect": fields}


def _cases_of_backends() -> list[CauseCase]:
    idle = [service("idle"), http_route("idle", to("idle"))]
    unready = [service("unready"), endpoints("unready", "127.0.0.1", 9, ready=False)]
    misnamed = [service("misnamed", name="http"), endpoints("misnamed", "127.0.0.1", 9)]
    split = {
        "backendRefs": [{"name": "app", "port": 80, "weight": 3}, {"name": "idle", "port": 80}]
    }
    protocol = service("strange", appProtocol="kafka")
    foreign = to("app", namespace="other")
    named = [matching(to("app"), path={"value": "/ok"}), matching(to("gone"), path={"value": "/"})]
    no_refs = {"matches": [{"path": {"value": "/"}}]}
    return [
        CauseCase("idle", "503: Service default/idle has 0 of 0 ready endpoints", idle),
        CauseCase("unready", "503: Service default/unready has 0 of 1 ready endpoints",
                  [*unready, http_route("unready", to("unready"))]),
        CauseCase("misnamed", "503: Service default/misnamed port 80: no EndpointSlice of the "
                  "Service has the port 'http' (TCP); their ports: without name (TCP)",
                  [*misnamed, http_route("misnamed", to("misnamed"))]),
        CauseCase("gone", "500: rules[0].backendRefs[0]: Service default/gone not found",
                  [http_route("gone", to("gone"))]),
        CauseCase("badport", "500: rules[0].backendRefs[0]: TCP port 81 not found in Service "
                  "default/app", [http_route("badport", to("app", 81))]),
        CauseCase("nogrant", "500: rules[0].backendRefs[0]: Service other/app not allowed by any "
                  "ReferenceGrant", [http_route("nogrant", foreign)]),
        CauseCase("badkind", "500: rules[0].backendRefs[0]: kind ConfigMap is not supported",
                  [http_route("badkind", to("app", kind="ConfigMap"))]),
        CauseCase("strange", "500: rules[0].backendRefs[0]: appProtocol kafka is not supported",
                  [protocol, http_route("strange", to("strange"))]),
        CauseCase("weightless", "500: HTTPRoute default/weightless: the weights of all backendRefs "
                  "are 0", [http_route("weightless", to("app", weight=0))]),
        CauseCase("empty", "500: HTTPRoute default/empty: the rule has no backendRefs",
                  [http_route("empty", no_refs)]),
        CauseCase("split", "503 for some requests: Service default/idle has 0 of 0 ready",
                  [http_route("split", split)]),
        CauseCase("second", "500: rules[1].backendRefs[0]: Service default/gone not found",
                  [http_route("second", *named)]),
    ]  # fmt: skip


def _cases_of_matches() -> list[CauseCase]:
    def url(name: str, path: str = "/") -> str:
        return f"http://{name}.example:{HTTP_PORT}{path}"

    version = [{"name": "x-version", "value": "2"}]
    pattern = [{"name": "q", "type": "RegularExpression", "value": "[a-z]+"}]
    exact = {"type": "Exact", "value": "/api"}
    expression = "RegularExpression"
    return [
        CauseCase("method", "404: no match: HTTPRoute default/method: spec.rules[0].matches[0] "
                  "needs method GET, not 'POST'",
                  [http_route("method", matching(to("app"), method="GET"))],
                  ("POST", url("method"))),
        CauseCase("header", "needs header x-version '2', which the request does not have",
                  [http_route("header", matching(to("app"), headers=version))]),
        CauseCase("headervalue", "needs header x-version '2', not '1'",
                  [http_route("headervalue", matching(to("app"), headers=version))],
                  (url("headervalue"), "-H", "X-Version: 1")),
        CauseCase("query", "needs query parameter q that matches '[a-z]+', not '1'",
                  [http_route("query", matching(to("app"), queryParams=pattern))],
                  (url("query", "/?q=1"),)),
        CauseCase("pattern", "404: HTTPRoute default/pattern: spec.rules[1].matches[0]: path: "
                  "regular expression is not valid for RE2: missing ): /a(b",
                  [http_route("pattern", matching(to("app"), path=exact),
                              matching(to("app"), path={"type": expression, "value": "/a(b"}))],
                  (url("pattern", "/ab"),)),
        CauseCase("headerpattern", "404: HTTPRoute default/headerpattern: spec.rules[0].matches[0]:"
                  " header x: regular expression is not valid for RE2: missing ]: [a",
                  [http_route("headerpattern", matching(to("app"), headers=[
                      {"type": expression, "name": "x", "value": "[a"}]))],
                  (url("headerpattern"), "-H", "X: a")),
        CauseCase("path", "needs path '/api', not '/api/v1'",
                  [http_route("path", matching(to("app"), path=exact))],
                  (url("path", "/api/v1"),)),
        CauseCase("paths", "404: no match: 2 matches of routes for paths.example need other "
                  "paths than '/none'",
                  [http_route("paths", matching(to("app"), path=exact),
                              matching(to("app"), path={**exact, "value": "/v1"}))],
                  (url("paths", "/none"),)),
        CauseCase("nearest", "spec.rules[1].matches[0] needs method GET, not 'POST'",
                  [http_route("nearest", matching(to("app"), path=exact),
                              matching(to("app"), method="GET"))],
                  ("POST", url("nearest"))),
        CauseCase("unknown", "404: no route has a hostname for unknown.example on port 8080"),
        CauseCase("dotdot", "400: the path is not valid: /../x", [],
                  (url("unknown", "/../x"),), "404: no route has a hostname for unknown.example"),
    ]  # fmt: skip


def _cases_of_listeners() -> list[CauseCase]:
    def parent(**fields: Any) -> Object:
        return {"parentRefs": [{"name": "web", **fields}]}

    https = http_route("secure", to("app"), hostname="a.tls.example")
    raw = http_route("raw", to("idle"), kind="TLSRoute", hostname="a.raw.example")
    calls = http_route("calls", to("app"), hostname="x.calls.test", **parent(sectionName="calls"))
    section = http_route("section", to("app"), **parent(sectionName="nowhere"))
    tls_only = http_route("tlsonly", to("app"), **parent(sectionName="https"))
    orphan = http_route("orphan", to("app"), parentRefs=[{"name": "wbe"}])
    other = http_route("otherport", to("app"), **parent(port=HTTPS_PORT, sectionName="https"))
    other["spec"]["hostnames"] = ["z.tls.example"]
    here, there = (matching(to("app"), path={"value": path}) for path in ("/here", "/there"))
    elsewhere = [
        http_route("otherpath", here, hostname="y.tls.example"),
        http_route("otherroute", there, hostname="y.tls.example", **parent(sectionName="https")),
    ]
    call = http_route("call", {**to("app"), "matches": [{"method": {"service": "shop.Api",
                      "method": "Get"}}]}, kind="GRPCRoute", hostname="g.calls.test")  # fmt: skip
    foreign = http_route("foreign", to("app"))
    foreign["metadata"]["namespace"] = "other"
    foreign["spec"]["parentRefs"][0]["namespace"] = "default"
    return [
        CauseCase("orphan", "404: HTTPRoute default/orphan is not served here: parentRefs[0]: "
                  "Gateway default/wbe not found", [orphan]),
        CauseCase("otherport", "404: HTTPRoute default/otherport is not served here: attached to "
                  "port 8443 only", [other], (f"http://z.tls.example:{HTTP_PORT}/",)),
        CauseCase("otherpath", "404: no match: HTTPRoute default/otherpath: "
                  "spec.rules[0].matches[0] needs path prefix '/here', not '/none'", elsewhere,
                  (f"http://y.tls.example:{HTTP_PORT}/none",)),
        CauseCase("call", "404: no match: GRPCRoute default/call: spec.rules[0].matches[0] needs "
                  "path '/shop.Api/Get', not '/shop.Api/Put'", [call],
                  ("POST", f"http://g.calls.test:{HTTP_PORT}/shop.Api/Put")),
        CauseCase("section", "404: HTTPRoute default/section is not served here: parentRefs[0]: "
                  "listener with sectionName nowhere not found", [section]),
        CauseCase("foreign", "404: HTTPRoute other/foreign is not served here: parentRefs[0]: "
                  "listener http, https, other, nosecret does not allow HTTPRoute from namespace "
                  "other", [foreign]),
        CauseCase("tlsonly", "404: HTTPRoute default/tlsonly is not served here: parentRefs[0]: "
                  "hostnames: no hostname matches listener https (*.tls.example)", [tls_only]),
        CauseCase("kinds", "404: HTTPRoute default/calls is not served here: parentRefs[0]: "
                  "listener calls does not allow routes of kind HTTPRoute, only GRPCRoute", [calls],
                  (f"http://x.calls.test:{HTTP_PORT}/",)),
        CauseCase("noport", "no answer: no listener on port 8099", [],
                  ("http://noport.example:8099/",)),
        CauseCase("plaintext", "400: listener https on port 8443 is HTTPS", [],
                  (f"http://a.tls.example:{HTTPS_PORT}/",),
                  "no answer: listener https on port 8443 is HTTPS"),
        CauseCase("nosecret", "no answer: listener nosecret: tls.certificateRefs[0]: Secret "
                  "default/missing not found", [],
                  ("https://nosecret.example:8447/",)),
        CauseCase("sni", "no answer: the TLS handshake fails: no listener on port 8443 has a "
                  "hostname for SNI nobody.example", [https],
                  (f"https://a.tls.example:{HTTPS_PORT}/", "--sni", "nobody.example")),
        CauseCase("misdirected", "421: Host one.tls.example belongs to another listener than SNI "
                  "a.tls.example", [],
                  (f"https://one.tls.example:{HTTPS_PORT}/", "--sni", "a.tls.example")),
        CauseCase("raw", "no answer: Service default/idle has 0 of 0 ready endpoints", [raw],
                  (f"https://a.raw.example:{TLS_PORT}/",)),
        CauseCase("rawsni", "no answer: no hostname matches b.example", [],
                  (f"tls://b.example:{TLS_PORT}",)),
        CauseCase("tcp", "no answer: rules[0].backendRefs[0]: Service default/gone not found",
                  [http_route("tcp", to("gone"), kind="TCPRoute")],
                  (f"tcp://a.example:{TCP_PORT}",)),
    ]  # fmt: skip


def _cases_of_filters() -> list[CauseCase]:
    reference = {"group": "gateway.nginx.org", "kind": "AuthenticationFilter", "name": "nowhere"}
    missing = {"type": "ExtensionRef", "extensionRef": reference}
    moved = _redirect(scheme="https", hostname="new.example", statusCode=301)
    cors = {"type": "CORS", "cors": {"allowOrigins": ["https://page.example"]}}
    preflight = ("-H", "Origin: https://page.example", "-H", "Access-Control-Request-Method: PUT")
    url = f"http://preflight.example:{HTTP_PORT}/"
    return [
        CauseCase("nofilter", "500: rules[0].filters[0]: AuthenticationFilter default/nowhere",
                  [http_route("nofilter", filtered(to("app"), missing))]),
        CauseCase("redirect", "301: redirect to https://new.example/",
                  [http_route("redirect", {"filters": [moved]})]),
        CauseCase("preflight", "204: HTTPRoute default/preflight: spec.rules[0].matches[0] answers "
                  "CORS preflight requests",
                  [http_route("preflight", filtered(to("app"), cors))],
                  ("OPTIONS", url, *preflight)),
        CauseCase("fine", "forwarded to Service default/app:80",
                  [http_route("fine", filtered(to("app"), _header_modifier("x-a")))]),
    ]  # fmt: skip


CASES = [
    *_cases_of_backends(), *_cases_of_matches(), *_cases_of_listeners(), *_cases_of_filters()
]  # fmt: skip


def case_objects() -> list[Object]:
    """Return the objects of all cases."""
    return [entry for case in CASES for entry in case.objects]
