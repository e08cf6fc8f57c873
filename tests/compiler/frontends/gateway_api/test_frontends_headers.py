"""Reserved headers, which delimit messages or belong to one connection, in users' objects."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.one_route import BACKEND, Object, conditions, engine, routes
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.ir import http as ir

RESERVED = (
    "Connection",
    "Content-Length",
    "Keep-Alive",
    "Proxy-Authenticate",
    "Proxy-Authorization",
    "Proxy-Connection",
    "TE",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade",
)


def modifier(direction: str, change: str, *names: str) -> Object:
    values: list[Any] = [{"name": name, "value": "0"} for name in names]
    if change == "remove":
        values = list(names)
    field = f"{direction}HeaderModifier"
    kind = f"{field[0].upper()}{field[1:]}"
    return {"type": kind, field: {change: values}}


SPELLINGS = st.tuples(st.sampled_from(RESERVED), st.lists(st.booleans(), min_size=19)).map(
    lambda pair: "".join(
        letter.upper() if up else letter.lower()
        for letter, up in zip(pair[0], pair[1], strict=False)
    )
)


@pytest.mark.parametrize("kind", ["GRPCRoute", "HTTPRoute"])
@pytest.mark.parametrize("name", RESERVED)
@pytest.mark.parametrize("change", ["set", "add", "remove"])
@pytest.mark.parametrize("direction", ["request", "response"])
def test_rule_that_changes_a_reserved_header_is_rejected(
    kind: str, name: str, change: str, direction: str
) -> None:
    rule = {"filters": [modifier(direction, change, "X-Mine", name)], "backendRefs": [BACKEND]}
    with engine(kind, [rule]).compile() as ask:
        (route,) = routes(ask)
        assert route.action == ir.Respond(500)
        assert not route.request_headers
        assert not route.response_headers
        field = f"rules[0].filters[0].{direction}HeaderModifier.{change}[1]"
        assert f"{field}: header {name} " in conditions(ask, kind)


@pytest.mark.parametrize("change", ["set", "add", "remove"])
@pytest.mark.parametrize("direction", ["request", "response"])
def test_backend_with_a_filter_on_a_reserved_header_gets_no_requests(
    change: str, direction: str
) -> None:
    broken = BACKEND | {"filters": [modifier(direction, change, "content-length")]}
    rule = {"backendRefs": [broken, BACKEND]}
    with engine("HTTPRoute", [rule]).compile() as ask:
        (route,) = routes(ask)
        assert isinstance(route.action, ir.Forward)
        (good,) = route.action.backends
        assert not good.request_headers
        assert not good.response_headers
        assert (good.weight, route.action.failing) == (1, 1)
        field = f"rules[0].backendRefs[0].filters[0].{direction}HeaderModifier.{change}[0]"
        assert f"{field}: header content-length " in conditions(ask, "HTTPRoute")


@given(SPELLINGS)
def test_reserved_headers_are_case_insensitive(name: str) -> None:
    rule = {"filters": [modifier("request", "set", name)], "backendRefs": [BACKEND]}
    with engine("HTTPRoute", [rule]).compile() as ask:
        (route,) = routes(ask)
        assert route.action == ir.Respond(500)


@pytest.mark.parametrize("name", ["X-Connection", "Content-Lengths", "Host", "Trailers", "Cookie"])
def test_unreserved_headers_are_changed(name: str) -> None:
    rule = {"filters": [modifier("request", "set", name)], "backendRefs": [BACKEND]}
    with engine("HTTPRoute", [rule]).compile() as ask:
        (route,) = routes(ask)
        assert route.request_headers == ir.HeaderEdit(set=(ir.HeaderValue(name, "0"),))
        assert "Accepted=True" in conditions(ask, "HTTPRoute")


def test_session_name_of_a_reserved_header_is_rejected() -> None:
    session = {"type": "Header", "sessionName": "Content-Length"}
    rule = {"sessionPersistence": session, "backendRefs": [BACKEND]}
    with engine("HTTPRoute", [rule]).compile() as ask:
        (route,) = routes(ask)
        assert route.action == ir.Respond(500)
        field = "rules[0].sessionPersistence.sessionName"
        assert f"{field}: header Content-Length " in conditions(ask, "HTTPRoute")


def test_cookie_can_have_the_name_of_a_reserved_header() -> None:
    session = {"type": "Cookie", "sessionName": "Upgrade"}
    rule = {"sessionPersistence": session, "backendRefs": [BACKEND]}
    with engine("HTTPRoute", [rule]).compile() as ask:
        (route,) = routes(ask)
        assert isinstance(route.action, ir.Forward)
        assert route.action.backends[0].persistence is not None


def test_claim_in_a_reserved_header_is_rejected() -> None:
    claim = {"name": "sub", "values": ["x"], "proxySetHeader": "content-Length"}
    keys = {"source": "File", "file": {"secretRef": {"name": "keys"}}, "realm": "r"}
    authorization = {"rules": [{"claims": [claim | {"proxySetHeader": "X-Sub"}, claim]}]}
    filtered = {"type": "JWT", "jwt": keys | {"authorization": authorization}}
    reference = {"group": "gateway.nginx.org", "kind": "AuthenticationFilter", "name": "a"}
    rule = {
        "filters": [{"type": "ExtensionRef", "extensionRef": reference}],
        "backendRefs": [BACKEND],
    }
    compiler = engine("HTTPRoute", [rule], (("AuthenticationFilter", "n", "a"), filtered))
    secret = {"metadata": {"name": "keys", "namespace": "n"}, "data": {"auth": KEYS}}
    compiler.commit(
        {("Secret", "n", "keys"): gateway_api.decode_gateway_api_object("Secret", secret)}
    )
    with compiler.compile() as ask:
        (route,) = routes(ask)
        assert route.action == ir.Respond(500)
        field = "spec.jwt.authorization.rules[0].claims[1].proxySetHeader"
        assert f"{field}: header content-Length " in conditions(ask, "HTTPRoute")


KEYS = "eyJrZXlzIjogW3sia3R5IjogIm9jdCIsICJrIjogIll6Y3daRE5tWmpVMSJ9XX0="
"""A JSON Web Key Set with one symmetric key, in base64."""
