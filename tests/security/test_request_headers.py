"""Attacks by headers: a client or the author of a route deceives a backend or a proxy."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from differential import proxies
from differential.proxies import Runner
from fakes import served_objects
from fakes.envoy_serving import backend, listening
from fakes.one_route import BACKEND, Object, conditions, engine, routes
from fakes.patience import until
from fakes.served_objects import HOSTNAMES, RUNNERS, received
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.ir import http as ir


def modifier(direction: str, change: str, name: str, value: str = "x") -> Object:
    """Return a header modifier with one change."""
    changed: Any = name if change == "remove" else {"name": name, "value": value}
    field = f"{direction}HeaderModifier"
    return {"type": f"{field[0].upper()}{field[1:]}", field: {change: [changed]}}


REFUSED = [
    ("request", "set", "X_User", "admin", "underscore"),
    ("request", "add", "x_User", "admin", "underscore"),
    ("request", "add", "Host", "b.example", "Host"),
    ("request", "remove", "hOST", "", "hOST"),
    ("request", "set", "Host", "b.example/../x", "'b.example/../x'"),
    ("request", "set", "Host", "a@b.example", "'a@b.example'"),
    ("request", "set", "Host", "", "''"),
    ("request", "set", ":authority", "b.example", "':authority'"),
    ("request", "set", ":path", "/admin", "':path'"),
    ("request", "remove", ":method", "", "':method'"),
    ("request", "set", "Expect", "100-continue", "connection"),
    ("request", "set", "HTTP2-Settings", "AAMAAABkAAQAAP__", "connection"),
    ("request", "set", "X-Envoy-Original-Path", "/admin", "controls the proxy"),
    ("request", "remove", "x-envoy-internal", "", "controls the proxy"),
    ("request", "set", "X-GH-Scope", "8080/-/b.example", "controls the proxy"),
    ("response", "set", "X-Envoy-Upstream", "x", "controls the proxy"),
    ("response", "set", "X-Accel-Redirect", "/x", "controls the proxy"),
    ("response", "set", ":status", "200", "':status'"),
]


@pytest.mark.parametrize(("direction", "change", "name", "value", "cited"), REFUSED)
@pytest.mark.parametrize("kind", ["HTTPRoute", "GRPCRoute"])
def test_route_author_cannot_change_headers_of_the_proxy_or_message(
    direction: str, change: str, name: str, value: str, cited: str, kind: str
) -> None:
    """The author of a route, through a header modifier: the rule answers 500 on both proxies, and
    the status names field and value."""
    rule = {"filters": [modifier(direction, change, name, value)], "backendRefs": [BACKEND]}
    with engine(kind, [rule]).compile() as ask:
        (route,) = routes(ask)
        assert route.action == ir.Respond(500)
        field = f"rules[0].filters[0].{direction}HeaderModifier.{change}[0]: "
        (finding,) = [
            splitline for splitline in conditions(ask, kind).splitlines() if field in splitline
        ]
        assert cited in finding


@pytest.mark.parametrize("field", ["allowMethods", "allowHeaders", "exposeHeaders"])
def test_cors_lists_hold_tokens_only(field: str) -> None:
    """The author of a route, through a CORS filter: an entry cannot add a header or a list."""
    for value in ("X-A, X-B", "X-A\r\nSet-Cookie: a=b", "", ":path"):
        cors = {"allowOrigins": ["https://a.example"], field: ["X-Mine", value]}
        rule = {"filters": [{"type": "CORS", "cors": cors}], "backendRefs": [BACKEND]}
        with engine("HTTPRoute", [rule]).compile() as ask:
            (route,) = routes(ask)
            assert route.action == ir.Respond(500)
            assert f"rules[0].filters[0].cors.{field}[1]: {value!r}" in conditions(ask, "HTTPRoute")


FORGED = [
    ("Forwarded", "for=10.0.0.1;host=evil.example;proto=https"),
    ("X-Real-IP", "10.0.0.1"),
    ("X-Forwarded-Proto", "https"),
    ("X-Forwarded-Host", "evil.example"),
    ("X-Forwarded-Port", "443"),
    ("X_Forwarded_Proto", "https"),
    ("X_Real_IP", "10.0.0.1"),
    ("HTTP2-Settings", "AAMAAABkAAQAAP__"),
    ("X-Envoy-External-Address", "10.0.0.1"),
    ("X-Envoy-Expected-Rq-Timeout-Ms", "1"),
    ("x-gh-scope", "8080/-/evil.example"),
    ("X-Gh-Other", "forged"),
]


CONTROLLING = ("x-envoy-", "x-gh-")


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("hostnames", HOSTNAMES)
async def test_client_cannot_send_headers_that_only_a_proxy_sends(
    runner: Runner, version: int, hostnames: tuple[str, ...], tmp_path: Path
) -> None:
    """A client, with a request: no backend receives a claim about the connection that the proxy
    did not make, in any spelling."""
    async with backend("s") as endpoint:
        rules = [{"backendRefs": [BACKEND]}]
        compiler = served_objects.engine(rules, endpoint, hostnames=hostnames)
        gateway = served_objects.gateway(compiler)
        async with served_objects.serving(runner, gateway, tmp_path) as client:
            # HTTP/2 does not have the header; only Envoy is controlled by headers.
            forged = [
                header
                for header in FORGED
                if (version == 1 or header[0] != "HTTP2-Settings")
                and (runner is proxies.with_envoy or not header[0].lower().startswith(CONTROLLING))
            ]
            response = await served_objects.get(client, headers=forged, version=version)
    values = {value for _, value in forged}
    assert not [
        header for header in response.backend["headers"] if header[1] in values - {"443", "https"}
    ]
    assert received(response, "x-forwarded-proto") == ["http"]
    assert received(response, "x-forwarded-port") == ["8080"]
    assert not [name for name, _ in response.backend["headers"] if "_" in name]


USER = "https://id.example"
OIDC: Object = {
    "issuer": USER,
    "clientID": "web",
    "clientSecretRef": {"name": "client"},
    "authorization": {"rules": [{"claims": [{"name": "sub", "proxySetHeader": "X-User"}]}]},
}
FILTER = ("AuthenticationFilter", "n", "login")
LOGIN = {
    "type": "ExtensionRef",
    "extensionRef": {"group": "gateway.nginx.org", "kind": FILTER[0], "name": FILTER[2]},
}


def open_and_guarded(*more: Object) -> list[Object]:
    """Return a rule with a login, and an open one with ``more`` filters, to one Service."""
    guarded = {"matches": [{"path": {"value": "/guarded"}}], "filters": [LOGIN]}
    return [guarded | {"backendRefs": [BACKEND]}, {"filters": [*more], "backendRefs": [BACKEND]}]


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
async def test_client_cannot_forge_a_claim_on_a_route_without_login(
    runner: Runner, tmp_path: Path
) -> None:
    """A client, through an open route to a Service that trusts the claim header of a login: the
    header is removed in every spelling, and mirrored copies do not have it either."""
    mirror = {"type": "RequestMirror", "requestMirror": {"backendRef": BACKEND}}
    async with backend("s") as endpoint:
        compiler = served_objects.engine(
            open_and_guarded(mirror), endpoint, (FILTER, {"type": "OIDC", "oidc": OIDC})
        )
        async with served_objects.serving(
            runner, served_objects.gateway(compiler), tmp_path
        ) as client:
            forged = [("X-User", "root"), ("x-uSER", "root"), ("X_User", "root"), ("X-Other", "a")]
            for version in (1, 2):
                response = await served_objects.get(client, headers=forged, version=version)
                assert received(response, "x-other") == ["a"]
                assert not [name for name, value in response.backend["headers"] if value == "root"]


def test_claim_header_is_removed_for_the_own_namespace_of_a_service_only() -> None:
    """The author of a filter, through a route to a Service of another namespace: the filter does
    not decide which headers the Service's own routes pass on."""
    rules = open_and_guarded()
    with engine("HTTPRoute", rules, (FILTER, {"type": "OIDC", "oidc": OIDC})).compile() as ask:
        removed = {route.name: route.request_headers.remove for route in routes(ask)}
    assert removed["n/r/1/0"] == ("x-user",)
    for rule in rules:
        rule["backendRefs"] = [BACKEND | {"namespace": "other"}]
    grant = {
        "from": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": "n"}],
        "to": [{"group": "", "kind": "Service"}],
    }
    others = (
        (FILTER, {"type": "OIDC", "oidc": OIDC}),
        (("Service", "other", "s"), {"ports": [{"name": "p", "port": 80, "protocol": "TCP"}]}),
        (("ReferenceGrant", "other", "g"), grant),
    )
    with engine("HTTPRoute", rules, *others).compile() as ask:
        (opened,) = [route for route in routes(ask) if route.name == "n/r/1/0"]
        assert isinstance(opened.action, ir.Forward)
        assert opened.request_headers.remove == ()


@pytest.mark.parametrize("name", ["X_User", "Host", "X-Envoy-User", "x-gh-user", ":path"])
def test_claim_cannot_be_passed_in_a_header_that_clients_or_proxies_write(name: str) -> None:
    """The author of a filter, through proxySetHeader: the filter is refused with field and name."""
    claims = [{"name": "sub", "proxySetHeader": name}]
    spec = OIDC | {"authorization": {"rules": [{"claims": claims}]}}
    compiler = engine("HTTPRoute", open_and_guarded(), (FILTER, {"type": "OIDC", "oidc": spec}))
    secret = {"metadata": {"name": "client", "namespace": "n"}, "data": {"client-secret": "eA=="}}
    compiler.commit(
        {("Secret", "n", "client"): gateway_api.decode_gateway_api_object("Secret", secret)}
    )
    with compiler.compile() as ask:
        place = "spec.oidc.authorization.rules[0].claims[0].proxySetHeader"
        assert f"{place}: header " in conditions(ask, "HTTPRoute")


@contextlib.asynccontextmanager
async def recording(requests: list[list[list[str]]]) -> AsyncIterator[ir.Endpoint]:
    """Run a backend that appends the headers of each request to ``requests``."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            pairs = (line.partition(":") for line in head.split("\r\n")[1:-2])
            requests.append([[name.lower(), value.strip()] for name, _, value in pairs])
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    async with listening(answer) as endpoint:
        yield endpoint


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
async def test_mirrored_copy_has_no_header_that_the_route_removes(
    runner: Runner, tmp_path: Path
) -> None:
    """A backend that gets copies: it does not receive credentials that the route removes."""
    copies: list[list[list[str]]] = []
    filters = [
        {
            "type": "RequestHeaderModifier",
            "requestHeaderModifier": {
                "remove": ["Authorization"],
                "set": [{"name": "X-Set", "value": "by route"}],
            },
        },
        {"type": "RequestMirror", "requestMirror": {"backendRef": BACKEND}},
    ]
    async with recording(copies) as endpoint:
        compiler = served_objects.engine([{"filters": filters, "backendRefs": [BACKEND]}], endpoint)
        async with served_objects.serving(
            runner, served_objects.gateway(compiler), tmp_path
        ) as client:
            secret = [("Authorization", "Bearer secret")]
            assert (await served_objects.get(client, headers=secret)).status == 200
            await until(lambda: len(copies) == 2)
    for headers in copies:
        assert ["x-set", "by route"] in headers
        assert not [header for header in headers if header[0] == "authorization"]


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
async def test_backend_cannot_redirect_inside_the_proxy(runner: Runner, tmp_path: Path) -> None:
    """A backend, with a response header that NGINX obeys: it does not reach the locations of other
    routes, which may be another user's or internal."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            body = b"direct" if head.startswith(b"GET / ") else b"redirected"
            writer.write(
                b"HTTP/1.1 200 OK\r\nX-Accel-Redirect: /other\r\nContent-Length: %d\r\n\r\n"
                % len(body)
                + body
            )

    async with listening(answer) as endpoint:
        compiler = served_objects.engine([{"backendRefs": [BACKEND]}], endpoint)
        async with served_objects.serving(
            runner, served_objects.gateway(compiler), tmp_path
        ) as client:
            response = await served_objects.get(client)
    assert (response.status, response.body) == (200, b"direct")
