"""Matches of headers that proxies change or remove: both see what the client sent, or say so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from differential import proxies
from differential.proxies import Runner
from fakes import served_objects
from fakes.envoy_serving import backend, host, plain, route_to
from fakes.one_route import BACKEND, Object
from fakes.served_objects import RUNNERS
from gatehouse.compiler.backends import envoy, nginx
from gatehouse.compiler.backends.nginx.headers import OWN_HEADER
from gatehouse.compiler.ir import http as ir

MATCHED = {
    "X-Forwarded-For": "203.0.113.9",
    "X-Forwarded-Proto": "https",
    "X-Forwarded-Host": "b.example",
    "X-Forwarded-Port": "443",
    "X-Forwarded-Client-Cert": "Hash=1",
    "X-Real-IP": "203.0.113.9",
    "Forwarded": "for=203.0.113.9",
    "TE": "trailers",
    "User-Agent": "test",
}
INTERNAL = [("x-gh-client-for", "203.0.113.9"), ("x-gh-client-proto", "https")]


def rules(kind: str) -> list[Object]:
    """Return a rule for each header, and one for all other requests."""
    result: list[Object] = []
    for name, value in MATCHED.items():
        matched = {"name": name, "value": value if kind == "Exact" else ".+", "type": kind}
        match = {"path": {"value": f"/{name.lower()}"}, "headers": [matched]}
        result.append({"matches": [match], "backendRefs": [BACKEND]})
    return result


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("kind", ["Exact", "RegularExpression"])
async def test_match_of_a_header_sees_the_value_of_the_client(
    runner: Runner, kind: str, tmp_path: Path
) -> None:
    async with backend("s") as endpoint:
        gateway = served_objects.gateway(served_objects.engine(rules(kind), endpoint))
        async with served_objects.serving(runner, gateway, tmp_path) as client:
            for name, value in MATCHED.items():
                path = f"/{name.lower()}"
                with_header = await served_objects.get(client, path, [(name, value), *INTERNAL])
                assert with_header.status == 200, name
                if runner is proxies.with_envoy:
                    # NGINX has no such headers, and passes on those of the client.
                    received = [key for key, _ in with_header.backend["headers"]]
                    assert not [key for key in received if key.startswith("x-gh-")]
                if name != "User-Agent":
                    # Values of the proxy, and internal headers of a client, do not count.
                    without = await served_objects.get(client, path, INTERNAL)
                    assert without.status == 404, name


UNMATCHED: dict[str, tuple[str, ...]] = {
    "nginx": ("x_user", "X_User"),
    "envoy": (
        "x_user", "X_User", "Connection", "Keep-Alive", "Proxy-Connection", "Transfer-Encoding",
        "Expect", "HTTP2-Settings", "X-Envoy-Peer", "x-gh-scope",
    ),
}  # fmt: skip


def unsupported(proxy: str, gateway: Any) -> list[str]:
    """Return what a proxy cannot serve of a gateway."""
    if proxy == "nginx":
        generator = nginx.NginxGenerator(nginx.NginxCapabilities.parse("1.31.3"))
        return [str(item.reason) for item in generator.generate(gateway).unsupported]
    generated = envoy.EnvoyGenerator(envoy.EnvoyCapabilities()).generate(gateway)
    return [str(item.reason) for item in generated.unsupported]


@pytest.mark.parametrize(
    ("proxy", "name"), [(proxy, name) for proxy, names in UNMATCHED.items() for name in names]
)
def test_match_that_never_holds_is_reported(proxy: str, name: str) -> None:
    match = ir.Match(headers=(ir.ValueMatch(name.lower(), "v"),))
    route = ir.Route("ns/r/0/0", match, route_to("a").action)
    cluster = ir.Cluster("a", (ir.Endpoint("192.0.2.1", 80),))
    reasons = unsupported(proxy, plain([host("a.example", route)], [cluster]))
    assert [reason for reason in reasons if "cannot be matched" in reason] == reasons != []


SET_VALUES = [
    ("$remote_addr", "$remote_addr"),
    ("${request_id}", "${request_id}"),
    ("client=$remote_addr;x", "$remote_addr"),
    ("$http_x_forwarded_for", "$http_x_forwarded_for"),
    ("US$5", ""),
    ("$", ""),
    ("100 $ {x}", ""),
]


@pytest.mark.parametrize("proxy", ["nginx", "envoy"])
@pytest.mark.parametrize(("value", "cited"), SET_VALUES)
@pytest.mark.parametrize("direction", ["request", "response"])
@pytest.mark.parametrize("place", ["rule", "backend"])
def test_value_that_looks_like_a_variable_is_reported(
    proxy: str, value: str, cited: str, direction: str, place: str
) -> None:
    """NGINX Gateway Fabric expands such values, and Gateway API does not know them."""
    edit: dict[str, Any] = {
        f"{direction}_headers": ir.HeaderEdit(set=(ir.HeaderValue("X-A", value),))
    }
    action = ir.Forward((ir.Backend("a", **(edit if place == "backend" else {})),))
    route = ir.Route("ns/r/0/0", ir.Match(), action, **(edit if place == "rule" else {}))
    cluster = ir.Cluster("a", (ir.Endpoint("192.0.2.1", 80),))
    reasons = unsupported(proxy, plain([host("a.example", route)], [cluster]))
    whole = f"{direction} header X-A: {cited} is sent literally: variables are not expanded"
    assert reasons == ([whole] if cited else [])


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
async def test_value_that_looks_like_a_variable_is_sent_literally(
    runner: Runner, tmp_path: Path
) -> None:
    changes = {"set": [{"name": "X-A", "value": "$remote_addr"}]}
    modifier = {"type": "RequestHeaderModifier", "requestHeaderModifier": changes}
    async with backend("s") as endpoint:
        compiled = served_objects.engine(
            [{"filters": [modifier], "backendRefs": [BACKEND]}], endpoint
        )
        async with served_objects.serving(
            runner, served_objects.gateway(compiled), tmp_path
        ) as client:
            response = await served_objects.get(client)
    assert served_objects.received(response, "x-a") == ["$remote_addr"]


@pytest.mark.process
@pytest.mark.parametrize("runner", RUNNERS)
async def test_server_and_date_of_a_response_are_sent_once(runner: Runner, tmp_path: Path) -> None:
    """NGINX always sends its own, and Envoy adds a Date. Both report filters without an effect."""
    names = ("Server", "Date")
    changes: list[Object] = [
        {},
        {"remove": list(names)},
        {"set": [{"name": name, "value": "changed"} for name in names]},
    ]
    filters = [
        [{"type": "ResponseHeaderModifier", "responseHeaderModifier": change}] if change else []
        for change in changes
    ]
    rules = [
        {"matches": [{"path": {"value": f"/{i}"}}], "filters": item, "backendRefs": [BACKEND]}
        for i, item in enumerate(filters)
    ]
    is_nginx = runner is proxies.with_nginx
    async with backend("s") as endpoint:
        gateway = served_objects.gateway(served_objects.engine(rules, endpoint))
        reasons = unsupported("nginx" if is_nginx else "envoy", gateway)
        async with served_objects.serving(runner, gateway, tmp_path) as client:
            responses = [await served_objects.get(client, f"/{i}") for i in range(len(rules))]
    values = {
        name: [
            [value for key, value in response.headers if key == name.lower()]
            for response in responses
        ]
        for name in names
    }
    if is_nginx:
        assert reasons == 2 * [f"response header {name}: {OWN_HEADER}" for name in names]
        assert all(len(item) == 1 for items in values.values() for item in items)
        assert "changed" not in (values["Server"][2][0], values["Date"][2][0])
    else:
        assert reasons == ["response header Date: a response without it gets that of the proxy"]
        assert values["Server"][1:] == [[], ["changed"]]
        assert [len(item) for item in values["Date"]] == [1, 1, 1]
        assert values["Date"][2] == ["changed"]
