"""Bad objects of any kind beside good ones: the output of the good ones is the same to the byte."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fakes.one_route import BACKEND, GATEWAY, engine
from fakes.proxy_output import output
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir import http
from gatehouse.dataplane.origin import Origin
from gatehouse.incremental.query import Key

Object = dict[str, Any]

SNIPPETS = {"snippets": [{"context": "http.server.location", "value": "add_header X-A b;"}]}
FILTER: Key = ("SnippetsFilter", "n", "rejected")
REFERENCE = {"group": "gateway.nginx.org", "kind": FILTER[0], "name": FILTER[2]}
EXTENSION = {"type": "ExtensionRef", "extensionRef": REFERENCE}


def path(value: str, kind: str = "PathPrefix") -> Object:
    return {"matches": [{"path": {"type": kind, "value": value}}], "backendRefs": [BACKEND]}


def headers(kind: str, *values: Object) -> Object:
    name = f"{kind}HeaderModifier"
    filters = [{"type": name[0].upper() + name[1:], name: {"set": [*values]}}]
    return path("/") | {"filters": filters}


GOOD: list[Object] = [
    path("/"),
    path("/a", "Exact"),
    path("/[0-9]+", "RegularExpression"),
    headers("response", {"name": "X-Good", "value": "1"}),
    path("/weighted") | {"backendRefs": [BACKEND | {"weight": 3}, BACKEND | {"weight": 1}]},
]
BAD: dict[str, Object] = {
    "expression": path("/(", "RegularExpression"),
    "expression of PCRE": path("/(?<=a+)b", "RegularExpression"),
    "path type": path("/", "Unknown"),
    "missing Service": path("/") | {"backendRefs": [{"name": "missing", "port": 80}]},
    "kind of backend": path("/") | {"backendRefs": [BACKEND | {"kind": "Job", "group": "batch"}]},
    "reserved header": headers("request", {"name": "Content-Length", "value": "1"}),
    "header value": headers("response", {"name": "X-Bad", "value": "a\nb: c"}),
    "header name": headers("response", {"name": "a b", "value": "c"}),
    "lone surrogate": headers("response", {"name": "X-Bad", "value": "\ud800"}),
    "null byte": path("/\x00"),
    "timeout": path("/") | {"timeouts": {"request": "soon"}},
    "filter of another namespace": path("/") | {"filters": [EXTENSION | {"type": "Unknown"}]},
    "rejected filter": path("/") | {"filters": [EXTENSION]},
}


def compiled(rules: dict[str, Object], hostname: str = "") -> ir.GatewayConfiguration:
    """Compile routes, each for a hostname of its own or all for one. A filter is rejected."""
    compiler = engine("HTTPRoute", [path("/")], (FILTER, SNIPPETS))
    settings = gateway_api.ControllerSettings(bind="any", snippets=True)
    snippets: Any = gateway_api.decode_gateway_api_object(
        FILTER[0], {"metadata": {}, "spec": SNIPPETS}
    )
    rejected = gateway_api.RejectedObject(FILTER, snippets.spec, "bad")
    changes: dict[Key, Any] = {
        gateway_api.SETTINGS_KEY: settings,
        gateway_api.rejected_object_key(GATEWAY, FILTER): rejected,
    }
    for name, rule in rules.items():
        metadata = {"name": name, "namespace": "n", "creationTimestamp": "2026-01-01"}
        spec = {
            "parentRefs": [{"name": "gw"}],
            "hostnames": [hostname or f"{name}.example"],
            "rules": [rule],
        }
        raw = {"metadata": metadata, "spec": spec}
        changes["HTTPRoute", "n", name] = gateway_api.decode_gateway_api_object("HTTPRoute", raw)
    compiler.commit(changes)
    with compiler.compile() as ask:
        gateway = ask(gateway_api.compile_gateway, GATEWAY)
    assert gateway is not None
    return gateway


@given(
    st.lists(st.sampled_from(GOOD), min_size=1, max_size=4),
    st.lists(st.sampled_from(sorted(BAD)), min_size=1, max_size=6),
)
def test_invalid_routes_do_not_change_output_of_valid_routes(
    good: list[Object], bad: list[str]
) -> None:
    served = {f"good-{number}": rule for number, rule in enumerate(good)}
    broken = {f"bad-{number}": BAD[kind] for number, kind in enumerate(bad)}
    alone, mixed = output(compiled(served)), output(compiled(broken | served))
    assert {key: mixed.get(key) for key in alone} == alone


@given(st.sampled_from(sorted(BAD)), st.sampled_from(GOOD))
def test_invalid_route_does_not_change_other_routes_of_its_hostname(
    kind: str, good: Object
) -> None:
    origin = Origin("HTTPRoute", "n", "good")

    def routes(rules: dict[str, Object]) -> list[http.Route]:
        gateway = compiled(rules, "shared.example")
        hosts = [host for listener in gateway.listeners for host in listener.virtual_hosts]
        return [route for host in hosts for route in host.routes if route.origin.whole == origin]

    assert routes({"bad": BAD[kind], "good": good}) == routes({"good": good}) != []
