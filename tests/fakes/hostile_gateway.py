"""Gateway that tenants share, whose values a proxy may refuse, before the real proxies."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from fakes.admission import admitted_objects
from fakes.compiled_objects import engine_with
from fakes.hostile_tenants import Tenant
from fakes.shared_gateway import shared_gateway
from gatehouse.cli.check_proxies import EnvoyTest, NginxTest, as_tested
from gatehouse.compiler.backends import envoy
from gatehouse.compiler.frontends import combined, gateway_api
from gatehouse.compiler.ir.gateway import GatewayConfiguration
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


def compiled(controller: str, attackers: Sequence[Tenant]) -> tuple[Engine, GatewayConfiguration]:
    """Compile a Gateway of the class of a controller, with the objects of these tenants."""
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


def rejected_by_nginx(tester: NginxTest, attackers: Sequence[Tenant]) -> dict[str, str]:
    """Return the kinds whose configuration NGINX rejects, with its message, by halves."""
    error = tester.error(compiled(gateway_api.NGINX, attackers)[1])
    if not error or len(attackers) == 1:
        return {attackers[0].kind: error} if error else {}
    half = len(attackers) // 2
    return rejected_by_nginx(tester, attackers[:half]) | rejected_by_nginx(tester, attackers[half:])


async def rejected_by_envoy(
    gateway: GatewayConfiguration, attackers: Sequence[Tenant]
) -> list[tuple[str, str]]:
    """Return the kinds of rejected objects, or names of rejected resources, with the reasons."""
    resources = envoy.EnvoyGenerator(CAPABLE_ENVOY).generate(gateway).resources
    kinds = {tenant.namespace: tenant.kind for tenant in attackers}
    return [
        (kinds.get(namespace, resource.name), reason)
        for resource, reason in await EnvoyTest(None).rejected_resources(resources)
        for namespace in {origin.namespace for origin in resource.origins} or {""}
    ]
