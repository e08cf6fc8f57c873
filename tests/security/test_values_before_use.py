"""Tenants of shared Gateways, through values that a proxy may refuse.

Each kind of object ends in one of two ways. Both proxies accept the configuration, or the compiler
refuses the value with a condition that names its field.
"""

from __future__ import annotations

import copy
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import pytest

from fakes.admission import NOW, admitted_objects
from fakes.compiled_objects import CAPABLE_NGINX, engine_with
from fakes.hostile_kinds import KINDS, Tenant, tenants
from fakes.hostile_refusals import REFUSED
from fakes.shared_gateway import shared_gateway
from gatehouse.cli.check_proxies import EnvoyTest, NginxTest, as_tested
from gatehouse.compiler.backends import envoy, nginx
from gatehouse.compiler.frontends import combined, gateway_api
from gatehouse.compiler.ir.gateway import GatewayConfiguration
from gatehouse.controller.outputs import by_subject
from gatehouse.incremental.query import Engine

GATEWAY = ("Gateway", "infra", "gw")
WORLD = """
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: c}
spec:
  controllerName: CONTROLLER
  parametersRef: {group: gateway.nginx.org, kind: NginxProxy, name: c, namespace: infra}
---
apiVersion: gateway.nginx.org/v1alpha2
kind: NginxProxy
metadata: {name: c, namespace: infra}
spec:
  telemetry: {exporter: {endpoint: "http://192.0.2.1:4317"}}
  dnsResolver: {addresses: [{type: IPAddress, value: 192.0.2.53}]}
---
""" + shared_gateway("infra", "c")
CAPABLE_ENVOY = envoy.EnvoyCapabilities("system.pem", authenticators=True, runtime_limits=True)
PROXIES = {"nginx": gateway_api.NGINX, "envoy": gateway_api.ENVOY}


@cache
def all_tenants() -> list[Tenant]:
    return [*tenants()]


def compiled(controller: str, attackers: Sequence[Tenant]) -> tuple[Engine, GatewayConfiguration]:
    objects = [
        *admitted_objects(WORLD.replace("CONTROLLER", controller)),
        *(("Namespace", {"metadata": {"name": tenant.namespace}}) for tenant in attackers),
        *((raw["kind"], copy.deepcopy(raw)) for tenant in attackers for raw in tenant.objects),
    ]
    engine = engine_with(objects, gateway_api.ControllerSettings(bind="any", external_names=("*",)))
    with engine.compile() as ask:
        gateway = ask(combined.compile_combined_gateway, GATEWAY)
    assert gateway is not None
    return engine, as_tested(gateway)


@cache
def compiled_together(controller: str) -> tuple[Engine, GatewayConfiguration]:
    return compiled(controller, all_tenants())


def refusals(proxy: str) -> dict[str, list[str]]:
    """Return the messages of the conditions that refuse a value, by namespace."""
    engine, gateway = compiled_together(PROXIES[proxy])
    generator: Any = (
        nginx.NginxGenerator(CAPABLE_NGINX)
        if proxy == "nginx"
        else envoy.EnvoyGenerator(CAPABLE_ENVOY)
    )
    engine.commit(by_subject(GATEWAY, generator.generate(gateway).unsupported))
    result: dict[str, list[str]] = defaultdict(list)
    with engine.compile() as ask:
        for key in ask(combined.status_subjects, ""):
            status = ask(combined.desired_status, key)
            if status is not None:
                merged = combined.merge_combined_status(key[0], None, status, NOW)
                result[key[1]] += _refusing(merged)
    return result


def _refusing(value: Any) -> Iterator[str]:
    """Yield the message of each condition of a status that refuses its object, or a part of it."""
    if isinstance(value, list):
        for item in value:
            yield from _refusing(item)
    elif isinstance(value, dict):
        refused = {"Accepted": "False", "ResolvedRefs": "False", "PartiallyInvalid": "True"}
        if "reason" in value and value["status"] == refused.get(value["type"]):
            yield value["message"]
        for item in value.values():
            yield from _refusing(item)


@pytest.mark.parametrize("proxy", PROXIES)
def test_value_is_served_or_refused_with_its_field(proxy: str) -> None:
    messages = refusals(proxy)
    differing = {}
    for tenant in all_tenants():
        field = REFUSED[proxy].get(tenant.kind, "")
        own = messages.get(tenant.namespace, [])
        if bool(own) != bool(field) or not any(field in message for message in own or [field]):
            differing[tenant.kind] = own
    assert differing == {}


def test_refused_kinds_exist() -> None:
    assert REFUSED["nginx"].keys() | REFUSED["envoy"].keys() <= KINDS.keys()


def rejected_by_nginx(tester: NginxTest, attackers: Sequence[Tenant]) -> dict[str, str]:
    """Return the kinds whose configuration NGINX rejects, with its message, by halves."""
    error = tester.error(compiled(gateway_api.NGINX, attackers)[1])
    if not error or len(attackers) == 1:
        return {attackers[0].kind: error} if error else {}
    half = len(attackers) // 2
    return rejected_by_nginx(tester, attackers[:half]) | rejected_by_nginx(tester, attackers[half:])


@pytest.mark.process
@pytest.mark.parametrize("binary", ["current", "oldest"])
def test_nginx_accepts_what_the_compiler_accepts(binary: str) -> None:
    """The current NGINX has PCRE 1, and the oldest supported one PCRE2."""
    named = os.environ.get("GATEHOUSE_TEST_NGINX") if binary == "oldest" else None
    if binary == "oldest" and named is None:
        pytest.skip("GATEHOUSE_TEST_NGINX names no NGINX of Debian's unpacked packages")
    tester = NginxTest(named)
    error = tester.error(compiled_together(gateway_api.NGINX)[1])
    assert not error, (error, rejected_by_nginx(tester, all_tenants()))


@pytest.mark.process
async def test_envoy_accepts_what_the_compiler_accepts() -> None:
    _, gateway = compiled_together(gateway_api.ENVOY)
    resources = envoy.EnvoyGenerator(CAPABLE_ENVOY).generate(gateway).resources
    kinds = {tenant.namespace: tenant.kind for tenant in all_tenants()}
    rejected = await EnvoyTest(None).rejected_resources(resources)
    assert [
        (kinds.get(origin.namespace, resource.name), reason)
        for resource, reason in rejected
        for origin in resource.origins
    ] == []
