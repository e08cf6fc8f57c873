"""TrafficPolicies of a route, its Gateway and a Service, and what becomes of them."""

from __future__ import annotations

from typing import Any

import msgspec

from fakes.admission import admitted_objects
from fakes.compiled_objects import engine_with
from fakes.policy_manifests import BACKENDS, ROUTE, Object, gateway_with_route, manifest
from gatehouse.apis import traffic_policies as api
from gatehouse.apis.resource_limits import ResourceLimits, parse_limits
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.frontends.gateway_api.extensions.portable_policies import traffic_policy
from gatehouse.compiler.ir import settings as ir
from gatehouse.compiler.ir.gateway import GatewayConfiguration
from gatehouse.compiler.ir.http import Forward, Retry, Route

SERVICE = {"group": "", "kind": "Service", "name": "s"}
MIB = 1 << 20


def policy(name: str, target: Object, created: int = 0, **spec: Any) -> str:
    whole = {"targetRefs": [target], **spec}
    return manifest("gatehouse.dev/v1alpha1", "TrafficPolicy", name, created, spec=whole)


def world(
    *policies: str, limits: str = "", kind: str = "HTTPRoute", **rule: Any
) -> tuple[GatewayConfiguration, dict[str, str]]:
    """Return a Gateway with a route of the namespace ``n``, and the messages of its policies.

    ``rule``: fields of the route's rule.
    """
    texts = (*gateway_with_route({"backendRefs": BACKENDS, **rule}, kind), *policies)
    settings = gateway_api.ControllerSettings(bind="any", limits=parse_limits(limits))
    engine = engine_with(admitted_objects("\n---\n".join(texts)), settings)
    with engine.compile() as ask:
        compiled = ask(gateway_api.compile_gateway, ("Gateway", "gh", "gw"))
        assert compiled is not None
        keys = [key for key in ask(gateway_api.gateway_api_subjects) if key[0].endswith("Policy")]
        statuses = {key[2]: gateway_api.gateway_api_status(ask, key) for key in keys}
    return compiled, {
        name: entry.conditions[0].message
        for name, status in statuses.items()
        for entry in getattr(status, "ancestors", ())
    }


def only_route(compiled: GatewayConfiguration) -> Route:
    hosts = (host for listener in compiled.listeners for host in listener.virtual_hosts)
    [route] = [route for host in hosts for route in host.routes]
    return route


def route_settings(compiled: GatewayConfiguration) -> ir.Settings:
    return only_route(compiled).settings


def retry_of(compiled: GatewayConfiguration) -> Retry | None:
    action = only_route(compiled).action
    assert isinstance(action, Forward)
    return action.retry


def problems(target: Object = ROUTE, **spec: Any) -> tuple[str, ...]:
    raw = {"metadata": {"name": "p", "namespace": "n"}, "spec": {"targetRefs": [target], **spec}}
    return traffic_policy(msgspec.convert(raw, api.TrafficPolicy), ResourceLimits()).problems


def broken_at(**limits: int) -> Object:
    return {"circuitBreaker": limits}
