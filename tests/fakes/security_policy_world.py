"""SecurityPolicies of a route and its Gateway, and what becomes of them."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec

from fakes.admission import admitted_objects
from fakes.compiled_objects import engine_with
from fakes.hostile_objects import is_admitted
from fakes.policy_manifests import BACKENDS, GROUP, Object, gateway_with_route, manifest
from gatehouse.apis import security_policies as api
from gatehouse.apis.resource_limits import ResourceLimits
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.frontends.gateway_api.extensions.security_policies import security_policy
from gatehouse.compiler.ir.gateway import GatewayConfiguration
from gatehouse.compiler.ir.http import Respond, Route

Conditions = dict[tuple[str, str], tuple[str, str]]
"""Reasons and messages by name of the object and type."""


BASIC = {"secretRef": {"name": "users"}}
TOKENS = {"secretRef": {"name": "keys"}}
KEYS = json.dumps({"keys": [{"kty": "oct", "k": "c2VjcmV0"}]})
ACCEPTED = "the policy is accepted"
SERVED: Object = {"backendRefs": BACKENDS}


def server(namespace: str = "n", **http: Any) -> Object:
    settings = {"allowedResponseHeaders": ["X-User"], **http}
    reference = {"name": "s", "namespace": namespace, "port": 80}
    return {"protocol": "HTTP", "backendRef": reference, "http": settings}


def policy(name: str, target: Object, created: int = 0, **spec: Any) -> str:
    whole = {"targetRefs": [target], **spec}
    return manifest("gatehouse.dev/v1alpha1", "SecurityPolicy", name, created, spec=whole)


def secret(name: str, content: str) -> str:
    data = {"auth": base64.b64encode(content.encode()).decode()}
    return manifest("v1", "Secret", name, data=data)


def http_route(name: str, *rules: Object) -> str:
    parents = [{"name": "gw", "namespace": "gh"}]
    spec: Object = {"parentRefs": parents, "rules": rules or [{}]}
    return manifest(f"{GROUP}/v1", "HTTPRoute", name, spec=spec)


class World:
    """A Gateway of the namespace ``gh`` with routes, by default one of the namespace ``n``."""

    def __init__(self, *objects: str, rule: Object = SERVED) -> None:
        texts = (
            *gateway_with_route(rule),
            manifest("v1", "Service", "other/s", spec={"ports": [{"name": "p", "port": 80}]}),
            *(secret(f"{own}/users", "alice:{PLAIN}a") for own in ("n", "gh")),
            *(secret(f"{own}/keys", KEYS) for own in ("n", "gh")),
            secret("n/empty", ""),
            *objects,
        )
        settings = gateway_api.ControllerSettings(bind="any")
        engine = engine_with(admitted_objects("\n---\n".join(texts)), settings)
        with engine.compile() as ask:
            compiled = ask(gateway_api.compile_gateway, ("Gateway", "gh", "gw"))
            assert compiled is not None
            self.compiled: GatewayConfiguration = compiled
            self.fetches = ask(gateway_api.fetches)
            keys = ask(gateway_api.gateway_api_subjects)
            statuses = {key: gateway_api.gateway_api_status(ask, key) for key in keys}
        self.conditions: Conditions = {
            (key[2], condition.type): (condition.reason, condition.message)
            for key, status in statuses.items()
            if key[0] == "SecurityPolicy"
            for entry in getattr(status, "ancestors", ())
            for condition in entry.conditions
        }
        self.of_routes: Conditions = {
            (key[2], condition.type): (condition.reason, condition.message)
            for key, status in statuses.items()
            if key[0] == "HTTPRoute"
            for entry in getattr(status, "parents", ())
            for condition in entry.conditions
        }

    def route(self, name: str = "n/r/0/0") -> Route:
        hosts = (host for one in self.compiled.listeners for host in one.virtual_hosts)
        [route] = [route for host in hosts for route in host.routes if route.name == name]
        return route

    def accepted(self, name: str) -> str:
        return self.conditions[name, "Accepted"][1]


def assert_refused(world: World, name: str = "n/r/0/0") -> None:
    route = world.route(name)
    assert route.action == Respond(500)


def assert_invalid(target: Object, spec: Object, expected: str) -> None:
    """Assert that a policy is rejected by the CRD, and without it."""
    raw = {"metadata": {"name": "p", "namespace": "n"}, "spec": {"targetRefs": [target], **spec}}
    view = msgspec.convert(raw, api.SecurityPolicy)
    assert security_policy(view, ResourceLimits()).problems == (expected,)
    whole = {"apiVersion": "gatehouse.dev/v1alpha1", "kind": "SecurityPolicy", **raw}
    assert not is_admitted(whole)
