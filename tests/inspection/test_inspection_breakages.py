"""Breakages as an operator meets them: `gatehouse status` or `gatehouse explain` names the cause.

A whole controller writes the statuses, on NGINX and on Envoy.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from fakes import patience
from fakes.authority import DAY, Authority
from fakes.gateway_estate import ENVOY, NGINX, RESOURCES, Estate, endpoints, secret, service
from fakes.request_causes import http_route, to
from gatehouse.apis import resources
from gatehouse.cli import status_rendering
from gatehouse.controller import absences, backend_reports
from gatehouse.inspection.object_set import ObjectSet
from gatehouse.inspection.request_explanation import explain_target, parse_request_target
from gatehouse.inspection.status_report import report_status

Object = dict[str, Any]


@dataclass(frozen=True)
class Breakage:
    """Objects with one fault, and texts of the lines that name the object and the cause."""

    name: str
    objects: list[Object]
    status: str
    """In a line of `gatehouse status --problems`."""
    explained: str = ""
    """Start of the first line of `gatehouse explain`. Empty: requests do not show the fault."""


def of_kind(kind: str, obj: Object) -> Object:
    return {**obj, "kind": kind}


def policy(name: str, route: str, size: str) -> Object:
    target = {"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": route}
    return {
        "kind": "ClientSettingsPolicy", "metadata": {"name": name, "namespace": "default"},
        "spec": {"targetRef": target, "body": {"maxSize": size}},
    }  # fmt: skip


def route(gateway: str, name: str, rule: Object, parent: Object | None = None) -> Object:
    return http_route(name, rule, parentRefs=[parent or {"name": gateway}])


def filtered(gateway: str, name: str, entry: Object) -> Object:
    return route(gateway, name, {**to("app"), "filters": [entry]})


def backend_breakages(gateway: str) -> list[Breakage]:
    """Return breakages of the backends of routes."""
    misnamed = service("misnamed")
    misnamed["spec"]["ports"][0]["name"] = "web"
    empty = {**endpoints("idle"), "endpoints": []}
    zero = {"backendRefs": [{"name": "app", "port": 80, "weight": 0}]}
    external = service("external")
    external["spec"] |= {"type": "ExternalName", "externalName": "elsewhere.example"}
    authorities = [{"group": "", "kind": "ConfigMap", "name": "absent"}]
    secure = {
        "kind": "BackendTLSPolicy", "metadata": {"name": "secure", "namespace": "default"},
        "spec": {
            "targetRefs": [{"group": "", "kind": "Service", "name": "secure"}],
            "validation": {"hostname": "a.example", "caCertificateRefs": authorities},
        },
    }  # fmt: skip
    at = f"at {gateway}: ResolvedRefs is False: rules[0]"
    return [
        Breakage("gone", [route(gateway, "gone", to("gone"))],
                 f"HTTPRoute default/gone {at}.backendRefs[0]: Service default/gone not found",
                 "500: rules[0].backendRefs[0]: Service default/gone not found"),
        Breakage("port", [route(gateway, "port", to("app", 81))],
                 f"default/port {at}.backendRefs[0]: TCP port 81 not found in Service default/app",
                 "500: rules[0].backendRefs[0]: TCP port 81 not found in Service default/app"),
        Breakage("idle", [of_kind("Service", service("idle")), of_kind("EndpointSlice", empty),
                          route(gateway, "idle", to("idle"))],
                 "HTTPRoute default/idle: Service default/idle: 0 of 0 endpoints ready",
                 "503: Service default/idle has 0 of 0 ready endpoints"),
        Breakage("misnamed", [of_kind("Service", misnamed),
                              of_kind("EndpointSlice", endpoints("misnamed", "10.0.0.1")),
                              route(gateway, "misnamed", to("misnamed"))],
                 "Service default/misnamed port 80: no EndpointSlice of the Service has the port",
                 "503: Service default/misnamed port 80: no EndpointSlice of the Service has the"),
        Breakage("zero", [route(gateway, "zero", zero)],
                 "the route is accepted; rules[0].backendRefs: all weights are 0",
                 "500: HTTPRoute default/zero: the weights of all backendRefs are 0"),
        Breakage("grant", [route(gateway, "grant", to("app", namespace="other"))],
                 f"default/grant {at}.backendRefs[0]: Service other/app not allowed by any Ref",
                 "500: rules[0].backendRefs[0]: Service other/app not allowed by any Reference"),
        Breakage("external", [of_kind("Service", external),
                              route(gateway, "external", to("external"))],
                 f"{at}.backendRefs[0]: Service default/external: spec.externalName: 'elsewhere",
                 "500: rules[0].backendRefs[0]: Service default/external: spec.externalName: "),
        Breakage("secure", [of_kind("Service", service("secure")), secure,
                            of_kind("EndpointSlice", endpoints("secure", "10.0.0.1")),
                            route(gateway, "secure", to("secure"))],
                 "validation.caCertificateRefs[0]: ConfigMap default/absent not found",
                 "500: BackendTLSPolicy default/secure: validation.caCertificateRefs[0]: Config"),
    ]  # fmt: skip


def rule_breakages(gateway: str) -> list[Breakage]:
    """Return breakages of parents, filters and matches of routes."""
    reference = {"group": "gateway.nginx.org", "kind": "AuthenticationFilter", "name": "nowhere"}
    missing_filter = {"type": "ExtensionRef", "extensionRef": reference}
    mirror = {"type": "RequestMirror", "requestMirror": {"backendRef": {"name": "no", "port": 80}}}
    pattern = {"path": {"type": "RegularExpression", "value": "/a(b"}}
    elsewhere = {"name": gateway, "sectionName": "no"}
    at = f"at {gateway}: ResolvedRefs is False: rules[0]"
    return [
        Breakage("orphan", [route(gateway, "orphan", to("app"), {"name": "wbe"})],
                 "HTTPRoute default/orphan: parentRefs[0]: Gateway default/wbe not found",
                 "404: HTTPRoute default/orphan is not served here: parentRefs[0]: Gateway def"),
        Breakage("section", [route(gateway, "section", to("app"), elsewhere)],
                 "Accepted is False: parentRefs[0]: listener with sectionName no not found in",
                 "404: HTTPRoute default/section is not served here: parentRefs[0]: listener"),
        Breakage("filter", [filtered(gateway, "filter", missing_filter)],
                 f"default/filter {at}.filters[0]: AuthenticationFilter default/nowhere not found",
                 "500: rules[0].filters[0]: AuthenticationFilter default/nowhere not found"),
        Breakage("mirror", [filtered(gateway, "mirror", mirror)],
                 f"{at}.filters[0].requestMirror.backendRef: Service default/no not found",
                 "rules[0].filters[0].requestMirror.backendRef: Service default/no not found"),
        Breakage("pattern", [route(gateway, "pattern", {**to("app"), "matches": [pattern]})],
                 f"default/pattern at {gateway}: Accepted is False: rules[0]: path: regular exp",
                 "404: HTTPRoute default/pattern: spec.rules[0].matches[0]: path: regular expre"),
    ]  # fmt: skip


def object_breakages(gateway: str) -> list[Breakage]:
    """Return breakages of other objects."""
    unmanaged = {
        "kind": "Gateway", "metadata": {"name": "foreign", "namespace": "default"},
        "spec": {"gatewayClassName": "elsewhere", "listeners": []},
    }  # fmt: skip
    return [
        Breakage("limits", [route(gateway, "limits", to("app")), policy("one", "limits", "1m"),
                            policy("two", "limits", "2m")],
                 "ClientSettingsPolicy default/two at limits: Accepted is False: spec: body.max"),
        Breakage("foreign", [unmanaged],
                 "Gateway default/foreign: no status yet: no controller manages elsewhere"),
    ]  # fmt: skip


def breakages(gateway: str) -> list[Breakage]:
    """Return breakages of routes at a Gateway, and of other objects."""
    parts = (backend_breakages, rule_breakages, object_breakages)
    return [breakage for part in parts for breakage in part(gateway)]


class World:
    """An estate with breakages at one Gateway."""

    def __init__(self, estate: Estate, gateway: str) -> None:
        self._estate, self._gateway = estate, gateway

    def put(self, item: Object) -> None:
        self._estate.store.put(RESOURCES[item["kind"]], item)

    def objects(self) -> ObjectSet:
        stored = self._estate.store.objects.items()
        return ObjectSet([{**item, "kind": key[0]} for key, item in stored], [], ())

    def problems(self) -> list[str]:
        return list(status_rendering.problem_lines(report_status(self.objects())))

    def explained(self, name: str) -> str:
        target = parse_request_target((f"http://{name}.example:8080/",), (), None, "")
        gateway = f"default/{self._gateway}"
        return explain_target(self.objects(), target, gateway, offline=False).answer.cause

    async def has_problem(self, text: str) -> None:
        try:
            await patience.until(lambda: any(text in line for line in self.problems()))
        except TimeoutError:
            pytest.fail("\n".join([text, *self.problems()]))


@pytest.mark.parametrize(("number", "class_name"), [(0, NGINX), (1, ENVOY)], ids=["NGINX", "Envoy"])
async def test_each_breakage_is_named_by_status_and_explain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, class_name: str
) -> None:
    monkeypatch.setattr(backend_reports, "REPORT_SECONDS", 0.2)
    monkeypatch.setattr(absences, "RETURN_SECONDS", 0.2)
    authority, name = Authority(tmp_path), f"g{number}"
    estate = Estate(authority)
    async with estate.running(2, 0):
        world = World(estate, name)
        world.put(of_kind("Service", service("app")))
        world.put(of_kind("EndpointSlice", endpoints("app", "10.0.0.1")))
        for breakage in breakages(name):
            for item in breakage.objects:
                world.put(item)
        for breakage in breakages(name):
            await world.has_problem(breakage.status)
            if breakage.explained:
                assert world.explained(breakage.name).startswith(breakage.explained)
        files = authority.issue("old", x509.DNSName("old.example"), ends=-DAY)
        certificate, key = (base64.b64encode(file.read_bytes()) for file in files)
        estate.store.put(resources.SECRETS, secret(f"{name}-tls", (certificate, key)))
        await world.has_problem(f"Secret default/{name}-tls: the certificate expired at")
        estate.store.drop(resources.SECRETS, f"{name}-tls", "default")
        await world.has_problem(f"Secret default/{name}-tls not found")
        await estate.agents.disconnect(name)
        waiting = "Programmed is False: waiting for the data plane to connect"
        await world.has_problem(f"Gateway default/{name}: {waiting}")
        assert waiting.partition(": ")[2] in world.explained("limits")
