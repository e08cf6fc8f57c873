"""Ceilings of memory that objects claim.

Who: the author of policies, routes and parameters in one namespace, beside others on a shared
Gateway. Through what: every setting that makes a proxy allocate memory. What must hold: a value
above the ceiling of the operator is not served, the status of the object names field, value, limit
and the option that sets it, and the objects of all others are served. Claims of one namespace are
added up, and older objects precede younger ones.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from fakes.admission import admitted_objects
from gatehouse.apis.resource_limits import (
    RESOURCE_LIMITS,
    ResourceLimits,
    parse_limits,
)
from gatehouse.compiler.backends.envoy import body_sizes, endpoint_pickers
from gatehouse.compiler.backends.envoy.capabilities import EnvoyCapabilities
from gatehouse.compiler.backends.envoy.route_context import EnvoyRouteContext
from gatehouse.compiler.frontends import combined, gateway_api
from gatehouse.compiler.frontends.gateway_api.extensions.policy_claims import excess_claims
from gatehouse.controller.compilation import Compilation
from gatehouse.incremental import query

BASE = """
apiVersion: v1
kind: Namespace
metadata: {{name: ns}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {{name: c}}
spec: {{controllerName: gatehouse.dev/{proxy}}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: gw}}
spec:
  gatewayClassName: c
  listeners: [{{name: http, port: 80, protocol: HTTP}}]
"""
PROXIES = ["nginx", "envoy"]


def service(name: str, ports: int = 1) -> str:
    listed = [{"name": f"p{number}", "port": 80 + number} for number in range(ports)]
    return f"---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: " + json.dumps(
        {"ports": listed}
    )


def route(name: str, services: list[tuple[str, int]], matches: Any = None) -> str:
    rules = [
        {"backendRefs": [{"name": service_name, "port": port} for service_name, port in services]}
        | ({"matches": matches} if matches else {})
    ]
    spec = {"parentRefs": [{"name": "gw"}], "rules": rules}
    return (
        f"---\napiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: "
        f"{{name: {name}}}\nspec: {json.dumps(spec)}"
    )


def policy(kind: str, name: str, spec: dict[str, Any], created: int = 0) -> str:
    version = "v1alpha2" if kind == "ObservabilityPolicy" else "v1alpha1"
    moment = f"2026-01-01T00:00:{created:02}Z"
    return (
        f"---\napiVersion: gateway.nginx.org/{version}\nkind: {kind}\n"
        f"metadata: {{name: {name}, creationTimestamp: {moment!r}}}\nspec: {json.dumps(spec)}"
    )


class Compiled:
    """A compilation of objects on one Gateway."""

    def __init__(self, *texts: str, proxy: str = "nginx", limits: str = "") -> None:
        settings = gateway_api.ControllerSettings(bind="any", limits=parse_limits(limits))
        self._compilation = Compilation(settings)
        for kind, raw in admitted_objects("\n".join((BASE.format(proxy=proxy), *texts))):
            metadata = raw["metadata"]
            self._compilation.put(kind, (metadata.get("namespace", ""), metadata["name"]), raw)
        self.result = self._compilation.run()

    def conditions(self, kind: str, name: str) -> dict[str, Any]:
        """Return the conditions of an object at the Gateway, by type."""
        status = self.result.statuses[(kind, "ns", name)]
        entries = getattr(status, "ancestors", None) or getattr(status, "parents", None)
        assert entries, status
        return {condition.type: condition for condition in entries[0].conditions}

    def remove(self, kind: str, name: str) -> None:
        self._compilation.put(kind, ("ns", name), None)
        self.result = self._compilation.run()


SERVICE_TARGET = [{"group": "", "kind": "Service", "name": "web"}]
GATEWAY_TARGET = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "gw"}

CLAIMS: list[tuple[str, dict[str, Any], str]] = [
    (
        "UpstreamSettingsPolicy",
        {"targetRefs": SERVICE_TARGET, "keepAlive": {"connections": 1025}},
        "spec.keepAlive.connections: 1025 is more than the limit of 1024 (keepAliveConnections, ",
    ),
    (
        "UpstreamSettingsPolicy",
        {"targetRefs": SERVICE_TARGET, "zoneSize": "33m"},
        "spec.zoneSize: 33m is more than the limit of 33554432 bytes (zoneBytes, ",
    ),
    (
        "RateLimitPolicy",
        {
            "targetRefs": [GATEWAY_TARGET],
            "rateLimit": {
                "local": {
                    "rules": [
                        {"key": "$binary_remote_addr", "rate": "1r/s", "zoneSize": "33m"},
                    ]
                }
            },
        },
        "spec.rateLimit.local.rules[0].zoneSize: 33m is more than the limit of 33554432 bytes (zon",
    ),
    (
        "ClientSettingsPolicy",
        {"targetRef": GATEWAY_TARGET, "body": {"bufferSize": "2m"}},
        "spec.body.bufferSize: 2m is more than the limit of 1048576 bytes (bodyBufferBytes, ",
    ),
    (
        "ProxySettingsPolicy",
        {
            "targetRefs": [GATEWAY_TARGET],
            "buffering": {"buffers": {"number": 256, "size": "16k"}},
        },
        "spec.buffering.buffers: 256 * 16k is more than the limit of 2097152 bytes (responseBuffer",
    ),
    (
        "ProxySettingsPolicy",
        {"targetRefs": [GATEWAY_TARGET], "buffering": {"bufferSize": "3m"}},
        "spec.buffering.bufferSize: 3m is more than the limit of 2097152 bytes (responseBufferByte",
    ),
    (
        "ProxySettingsPolicy",
        {"targetRefs": [GATEWAY_TARGET], "buffering": {"busyBuffersSize": "3m"}},
        "spec.buffering.busyBuffersSize: 3m is more than the limit of 2097152 bytes (responseBuffe",
    ),
]


@pytest.mark.parametrize("proxy", PROXIES)
@pytest.mark.parametrize(("kind", "spec", "message"), CLAIMS)
def test_policy_above_a_ceiling_is_rejected_with_field_value_and_limit(
    kind: str, spec: dict[str, Any], message: str, proxy: str
) -> None:
    objects = (service("web"), route("web", [("web", 80)]), policy(kind, "greedy", spec))
    compiled = Compiled(*objects, proxy=proxy)
    accepted = compiled.conditions(kind, "greedy")["Accepted"]
    assert (accepted.status, accepted.reason) == ("False", "Invalid")
    assert message in accepted.message
    assert accepted.message.endswith("default of --resource-limits)")
    assert compiled.conditions("HTTPRoute", "web")["Accepted"].status == "True"


def test_operator_sets_a_ceiling_and_the_message_names_its_option() -> None:
    kind, spec, _ = CLAIMS[0]
    objects = (service("web"), route("web", [("web", 80)]), policy(kind, "greedy", spec))
    wide = Compiled(*objects, limits='{"keepAliveConnections": 1025}')
    assert wide.conditions(kind, "greedy")["Accepted"].status == "True"
    narrow = Compiled(*objects, limits='{"keepAliveConnections": 10}')
    message = narrow.conditions(kind, "greedy")["Accepted"].message
    assert "1025 is more than the limit of 10 (keepAliveConnections, --resource-limits)" in message


def zones(name: str, size: str, created: int, target: str = "web") -> str:
    rules = [{"key": "$binary_remote_addr", "rate": "1r/s", "zoneSize": size}] * 4
    reference = {"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": target}
    spec = {"targetRefs": [reference], "rateLimit": {"local": {"rules": rules}}}
    return policy("RateLimitPolicy", name, spec, created)


def test_claims_of_a_namespace_are_added_up_and_older_policies_precede() -> None:
    routes = (f"r{number}" for number in range(3))
    objects = [service("web"), *(route(name, [("web", 80)]) for name in routes)]
    objects += [zones(f"p{number}", "30m", 9 - number, f"r{number}") for number in range(3)]
    compiled = Compiled(*objects)
    assert compiled.conditions("RateLimitPolicy", "p2")["Accepted"].status == "True"
    assert compiled.conditions("RateLimitPolicy", "p1")["Accepted"].status == "True"
    youngest = compiled.conditions("RateLimitPolicy", "p0")["Accepted"]
    assert youngest.status == "False"
    claim, older, limit = 4 * (30 << 20), 8 * (30 << 20), 256 << 20
    assert youngest.message == (
        f"spec.rateLimit.local.rules: {claim} in addition to {older} of older policies in "
        f"namespace ns: {claim + older} is more than the limit of {limit} bytes "
        "(zoneBytesPerNamespace, default of --resource-limits)"
    )
    compiled.remove("RateLimitPolicy", "p2")
    assert compiled.conditions("RateLimitPolicy", "p0")["Accepted"].status == "True"


@pytest.mark.parametrize("number", [3, 60])
def test_changed_policy_is_added_up_again_without_the_others(number: int) -> None:
    engine = query.Engine(query.Snapshot(combined.INDEXES))

    def commit(namespace: str, name: str, size: str) -> None:
        [(kind, raw)] = admitted_objects(zones(name, size, 0))
        raw["metadata"]["namespace"] = namespace
        engine.commit({(kind, namespace, name): combined.decode_object(kind, raw)})

    def run() -> int:
        before = engine.runs
        with engine.compile() as ask:
            for namespace in ("a", "b"):
                ask(excess_claims, ResourceLimits(), namespace)
        return engine.runs - before

    for index in range(number):
        commit("a", f"p{index}", "1m")
        commit("b", f"p{index}", "1m")
    run()
    commit("a", "p0", "2m")
    # Its parsing, its claims, and the sum of its namespace.
    assert run() == 3


@pytest.mark.parametrize("ports", [16, 17])
def test_each_port_of_a_service_counts(ports: int) -> None:
    spec = {"targetRefs": SERVICE_TARGET, "keepAlive": {"connections": 1024}}
    objects = (service("web", ports), route("web", [("web", 80)]))
    compiled = Compiled(*objects, policy("UpstreamSettingsPolicy", "greedy", spec))
    accepted = compiled.conditions("UpstreamSettingsPolicy", "greedy")["Accepted"]
    assert accepted.status == str(ports == 16)
    if ports == 17:
        assert "spec.keepAlive.connections: 17408 in addition to 0 of" in accepted.message
        assert "17408 is more than the limit of 16384 (keepAliveConn" in accepted.message


@pytest.mark.parametrize("proxy", PROXIES)
@pytest.mark.parametrize("number", [8, 9])
def test_route_with_too_many_regular_expressions_is_not_served(number: int, proxy: str) -> None:
    matches = [
        {
            "path": {"type": "RegularExpression", "value": f"/a{index}.*"},
            "headers": [{"type": "RegularExpression", "name": "x", "value": "b.*"}],
        }
        for index in range(number)
    ]
    objects = (service("web"), route("greedy", [("web", 80)], matches), route("a", [("web", 80)]))
    compiled = Compiled(*objects, proxy=proxy, limits='{"regularExpressions": 16}')
    assert compiled.conditions("HTTPRoute", "a")["Accepted"].status == "True"
    conditions = compiled.conditions("HTTPRoute", "greedy")
    messages = " ".join(condition.message for condition in conditions.values())
    problem = (
        "rules[0].matches: number of regular expressions up to this rule: 18 is more than the "
        "limit of 16 (regularExpressions, --resource-limits)"
    )
    assert (problem in messages) is (number == 9)


@pytest.mark.parametrize("limit", [1 << 20, 2 << 20])
def test_envoy_holds_no_larger_body_than_the_ceiling(limit: int) -> None:
    spec = {"targetRef": GATEWAY_TARGET, "body": {"maxSize": "2m"}}
    objects = (service("web"), route("web", [("web", 80)]))
    limits = json.dumps({"wholeBodyBytes": limit})
    greedy = policy("ClientSettingsPolicy", "greedy", spec)
    compiled = Compiled(*objects, greedy, proxy="envoy", limits=limits)
    [result] = compiled.result.gateways.values()
    assert result.gateway is not None
    [listener] = result.gateway.listeners
    [host] = listener.virtual_hosts
    [route_ir] = host.routes
    context = EnvoyRouteContext({}, {}, EnvoyCapabilities())
    piece = body_sizes.limit_body(context, route_ir)
    assert piece is not None
    findings = body_sizes.unsupported_body_limit(context, route_ir)
    is_held = limit == 2 << 20
    assert (endpoint_pickers.BODY in piece.fields.typed_per_filter_config) is is_held
    assert [finding.setting.part for finding in findings] == ([] if is_held else ["body.maxSize"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "must be a JSON object of integers by name"),
        ('{"zoneBytes": "1m"}', "zoneBytes: '1m' must be an integer"),
        ('{"zoneBytes": true}', "zoneBytes: True must be an integer"),
        ('{"zones": 1}', "zones: must be one of keepAliveConnections, "),
        ('{"zoneBytes": -1}', "zoneBytes: must not be negative"),
    ],
)
def test_invalid_ceilings_are_rejected(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_limits(text)


def test_default_ceilings_bound_the_memory_of_a_namespace() -> None:
    claimed = sum(
        ResourceLimits().of(name) * (limit.bytes_per_unit or 0)
        for name, limit in RESOURCE_LIMITS.items()
        if name.endswith("PerNamespace")
    )
    assert claimed < 300 << 20
