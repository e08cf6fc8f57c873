"""Report about a route: matches in order, filters and policies with their sources, backends."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import yaml

from gatehouse.inspection.errors import InspectionError
from gatehouse.inspection.object_set import ObjectSet, assume_missing
from gatehouse.inspection.route_report import RouteReport, report_route

_SHOP = """
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: shop}
spec:
  gatewayClassName: %(class)s
  listeners:
  - {name: http, port: 80, protocol: HTTP}
  - {name: db, port: 5432, protocol: TCP}
---
apiVersion: v1
kind: Service
metadata: {name: old, namespace: shop}
spec: {ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: new, namespace: shop}
spec: {ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: old-1, namespace: shop, labels: {kubernetes.io/service-name: old}}
addressType: IPv4
ports: [{port: 8080}]
endpoints:
- {addresses: [192.0.2.1], conditions: {ready: true}}
- {addresses: [192.0.2.2], conditions: {ready: false}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: app, namespace: shop}
spec:
  parentRefs: [{name: web, sectionName: http}, {name: web, sectionName: gone}]
  hostnames: [shop.example]
  rules:
  - backendRefs: [{name: old, port: 80, weight: 3}, {name: new, port: 80}]
  - matches:
    - {path: {type: Exact, value: /api}, method: POST}
    - {path: {value: /api/v2}, headers: [{name: x-beta, value: "yes"}]}
    filters:
    - {type: RequestHeaderModifier, requestHeaderModifier: {remove: [x-debug]}}
    backendRefs: [{name: old, port: 80}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: other, namespace: shop}
spec:
  parentRefs: [{name: web, sectionName: http}]
  hostnames: [shop.example]
  rules:
  - matches: [{path: {value: /api}}]
    filters: [{type: RequestRedirect, requestRedirect: {statusCode: 301, hostname: api.example}}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: lost, namespace: shop}
spec: {parentRefs: [{name: nowhere}], rules: [{backendRefs: [{name: old, port: 80}]}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: TCPRoute
metadata: {name: db, namespace: shop}
spec:
  parentRefs: [{name: web, sectionName: db}]
  rules: [{backendRefs: [{name: old, port: 80}]}]
---
apiVersion: gateway.nginx.org/v1alpha1
kind: ClientSettingsPolicy
metadata: {name: bodies, namespace: shop}
spec:
  targetRef: {group: gateway.networking.k8s.io, kind: HTTPRoute, name: app}
  body: {maxSize: 1m}
---
apiVersion: gateway.nginx.org/v1alpha1
kind: UpstreamSettingsPolicy
metadata: {name: sticky, namespace: shop}
spec:
  targetRefs: [{group: core, kind: Service, name: old}]
  loadBalancingMethod: least_conn
"""

CLASSES = ("gatehouse-nginx", "gatehouse-envoy")


def shop(gateway_class: str = CLASSES[0]) -> ObjectSet:
    objects: list[dict[str, Any]] = list(yaml.safe_load_all(_SHOP % {"class": gateway_class}))
    assumed, notes = assume_missing(objects)
    return ObjectSet([*objects, *assumed], [], notes)


def report(name: str, kind: str = "HTTPRoute", gateway_class: str = CLASSES[0]) -> RouteReport:
    return report_route(shop(gateway_class), (kind, "shop", name))


@pytest.mark.parametrize("gateway_class", CLASSES)
def test_matches_are_in_the_order_in_which_they_are_tried(gateway_class: str) -> None:
    (host,) = report("app", gateway_class=gateway_class).hostnames
    assert (host.gateway, host.port, host.protocol) == ("shop/web", 80, "HTTP")
    assert (host.hostname, host.total) == ("shop.example", 4)
    assert [(match.place, match.rule, match.needs) for match in host.matches] == [
        (1, 1, "POST = /api"),
        (2, 1, "/api/v2/*, header x-beta: yes"),
        (4, 0, "/*"),
    ]
    assert host.matches[0].match == "HTTPRoute shop/app: spec.rules[1].matches[0]"
    assert (
        host.matches[2].action == "Service shop/old:80 (weight 3), Service shop/new:80 (weight 1)"
    )


def test_answer_of_the_gateway_is_the_action_of_a_redirect() -> None:
    (host,) = report("other").hostnames
    assert [(match.place, match.action) for match in host.matches] == [
        (3, "redirect 301 api.example")
    ]


@pytest.mark.parametrize("gateway_class", CLASSES)
def test_filters_and_policies_name_the_field_that_they_come_from(gateway_class: str) -> None:
    whole, api = report("app", gateway_class=gateway_class).rules
    assert [(item.type, item.source) for item in api.applied] == [
        ("RequestHeaderModifier", "HTTPRoute shop/app: spec.rules[1].filters[0]"),
        ("ClientSettingsPolicy", "ClientSettingsPolicy shop/bodies: spec.body.maxSize"),
        (
            "UpstreamSettingsPolicy",
            "UpstreamSettingsPolicy shop/sticky: spec.loadBalancingMethod",
        ),
    ]
    assert {item.type for item in whole.applied} == {
        "ClientSettingsPolicy", "UpstreamSettingsPolicy",
    }  # fmt: skip


_TRAFFIC: dict[str, Any] = {
    "apiVersion": "gateway.networking.x-k8s.io/v1alpha1",
    "kind": "XBackendTrafficPolicy",
    "metadata": {"name": "carts", "namespace": "shop"},
    "spec": {
        "targetRefs": [{"group": "", "kind": "Service", "name": "old"}],
        "sessionPersistence": {"cookie": {"name": "cart"}},
        "retryConstraint": {},
    },
}


def test_rules_name_the_fields_of_the_policy_of_their_service() -> None:
    objects = shop()
    with_policy = ObjectSet([*objects.objects, _TRAFFIC], [], objects.notes)
    name = "XBackendTrafficPolicy shop/carts"
    for rule in report_route(with_policy, ("HTTPRoute", "shop", "app")).rules:
        fields = [item.source for item in rule.applied if item.type == "XBackendTrafficPolicy"]
        assert sorted(fields) == [
            f"{name}: spec.retryConstraint",
            f"{name}: spec.sessionPersistence",
        ]


def test_backends_have_weights_endpoints_and_the_labels_of_their_metrics() -> None:
    rule, _ = report("app").rules
    old, new = rule.backends
    assert rule.label == "shop/app/0"
    assert (old.backend, old.label, old.weight, old.share) == (
        *("Service shop/old:80", "Service/shop/old"), *(3, 75.0),
    )  # fmt: skip
    assert [(item.address, item.ready) for item in old.endpoints] == [
        ("192.0.2.1:8080", True), ("192.0.2.2:8080", False),
    ]  # fmt: skip
    assert old.problem == ""
    assert new.problem == "Service shop/new has 0 of 0 ready endpoints"


def test_parents_that_refuse_the_route_have_a_reason() -> None:
    (refused,) = report("app").refusals
    assert refused.parent == "Gateway shop/web"
    assert "gone" in refused.reason
    lost = report("lost")
    assert (lost.hostnames, lost.rules) == ((), ())
    assert [(item.parent, item.reason) for item in lost.refusals] == [
        ("", "parentRefs[0]: Gateway shop/nowhere not found")
    ]


@pytest.mark.parametrize("gateway_class", CLASSES)
def test_l4_route_has_one_match_for_all_connections(gateway_class: str) -> None:
    db = report("db", "TCPRoute", gateway_class)
    (host,) = db.hostnames
    assert (host.port, host.protocol, host.hostname, host.total) == (5432, "TCP", "", 1)
    assert [(match.rule, match.needs, match.action) for match in host.matches] == [
        (0, "", "Service shop/old:80")
    ]
    (rule,) = db.rules
    assert (rule.label, rule.backends[0].label) == ("shop/db/0", "Service/shop/old")


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (("HTTPRoute", "shop", "none"), "HTTPRoute shop/none not found"),
        (("HTTPRoute", "bank", "app"), "HTTPRoute bank/app not found"),
        (("Secret", "shop", "app"), "kind must be one of HTTPRoute"),
    ],
)
def test_unknown_route_is_an_error(key: tuple[str, str, str], message: str) -> None:
    with pytest.raises(InspectionError, match=message):
        report_route(shop(), key)


def test_malformed_route_is_an_error() -> None:
    objects = shop()
    route = next(item for item in objects.objects if item["metadata"]["name"] == "app")
    route["spec"]["rules"] = "none"
    with pytest.raises(InspectionError, match="HTTPRoute shop/app is not valid"):
        report_route(objects, ("HTTPRoute", "shop", "app"))


def test_report_is_json() -> None:
    value = msgspec.json.decode(msgspec.json.encode(report("app")))
    assert {*value} == {"route", "hostnames", "rules", "refusals", "notes"}
    assert value["rules"][0]["backends"][0]["label"] == "Service/shop/old"
