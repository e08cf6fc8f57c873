"""SecurityPolicies: which checks a route has, whose, and that none is ever left out."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest

from fakes.admission import admitted_objects
from fakes.compiled_objects import engine_with
from fakes.hostile_objects import is_admitted
from gatehouse.apis import security_policies as api
from gatehouse.apis.resource_limits import ResourceLimits
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.frontends.gateway_api.extensions.security_policies import security_policy
from gatehouse.compiler.ir.authentication import Basic, ClientNetworks, Jwt
from gatehouse.compiler.ir.gateway import GatewayConfiguration
from gatehouse.compiler.ir.http import Forward, Respond, Route
from gatehouse.dataplane.origin import Origin

Object = dict[str, Any]
Conditions = dict[tuple[str, str], tuple[str, str]]
"""Reasons and messages by name of the object and type."""
GROUP = "gateway.networking.k8s.io"
ROUTE = {"group": GROUP, "kind": "HTTPRoute", "name": "r"}
GATEWAY = {"group": GROUP, "kind": "Gateway", "name": "gw"}
BASIC = {"secretRef": {"name": "users"}}
TOKENS = {"secretRef": {"name": "keys"}}
KEYS = json.dumps({"keys": [{"kty": "oct", "k": "c2VjcmV0"}]})
ACCEPTED = "the policy is accepted"


def server(namespace: str = "n", **http: Any) -> Object:
    settings = {"allowedResponseHeaders": ["X-User"], **http}
    reference = {"name": "s", "namespace": namespace, "port": 80}
    return {"protocol": "HTTP", "backendRef": reference, "http": settings}


def manifest(group: str, kind: str, name: str, created: int = 0, **fields: Any) -> str:
    namespace, _, own = name.rpartition("/")
    metadata = {
        "name": own,
        "creationTimestamp": f"2026-01-01T00:00:{created:02}Z",
        **({"namespace": namespace} if namespace else {}),
    }
    return json.dumps({"apiVersion": group, "kind": kind, "metadata": metadata, **fields})


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


SERVED = {"backendRefs": [{"name": "s", "port": 80}]}


class World:
    """A Gateway of the namespace ``gh`` with routes, by default one of the namespace ``n``."""

    def __init__(self, *objects: str, rule: Object = SERVED) -> None:
        everyone = {"namespaces": {"from": "All"}}
        listener = {"name": "http", "port": 80, "protocol": "HTTP", "allowedRoutes": everyone}
        gateway = {"gatewayClassName": "c", "listeners": [listener]}
        texts = (
            manifest(
                f"{GROUP}/v1", "GatewayClass", "c", spec={"controllerName": "gatehouse.dev/nginx"}
            ),
            manifest(f"{GROUP}/v1", "Gateway", "gh/gw", spec=gateway),
            http_route("n/r", rule),
            manifest("v1", "Service", "n/s", spec={"ports": [{"name": "p", "port": 80}]}),
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


def test_route_has_the_checks_of_its_gateway_that_it_does_not_set() -> None:
    world = World(
        policy("gh/outer", GATEWAY, basicAuth=BASIC, externalAuth=server("gh")),
        manifest("v1", "Service", "gh/s", spec={"ports": [{"name": "p", "port": 80}]}),
        policy("n/inner", ROUTE, jwt=TOKENS | {"leeway": "5s"}),
    )
    route = world.route()
    tokens = route.authentication
    assert isinstance(tokens, Jwt)
    assert (tokens.realm, tokens.leeway) == ("Restricted", 5)
    assert tokens.origin == Origin("SecurityPolicy", "n", "inner", "jwt")
    assert route.external_auth is not None
    assert route.external_auth.origin == Origin("SecurityPolicy", "gh", "outer", "externalAuth")
    assert route.external_auth.cluster in {cluster.name for cluster in world.compiled.clusters}
    assert world.accepted("outer") == world.accepted("inner") == ACCEPTED


@pytest.mark.parametrize(
    "rule",
    [
        SERVED,
        {"filters": [{"type": "RequestRedirect", "requestRedirect": {"hostname": "b.example"}}]},
        {"backendRefs": [{"name": "gone", "port": 80}]},
        {},
    ],
    ids=["backend", "redirect", "without the backend", "without backends"],
)
@pytest.mark.parametrize("name", ["gh/p", "n/p"])
def test_every_kind_of_answer_is_behind_the_checks(rule: Object, name: str) -> None:
    target = ROUTE if name == "n/p" else GATEWAY
    route = World(policy(name, target, basicAuth=BASIC | {"realm": "members"}), rule=rule).route()
    assert isinstance(route.authentication, Basic)
    assert route.authentication.realm == "members"


def test_calls_are_behind_the_checks_too() -> None:
    def calls(name: str) -> str:
        parents, hosts = [{"name": "gw", "namespace": "gh"}], [f"{name}.example"]
        spec = {"parentRefs": parents, "hostnames": hosts, "rules": [SERVED]}
        return manifest(f"{GROUP}/v1", "GRPCRoute", f"n/{name}", spec=spec)

    target = {"group": GROUP, "kind": "GRPCRoute", "name": "checked"}
    checked = policy("n/p", target, basicAuth=BASIC, externalAuth=server())
    world = World(calls("checked"), calls("open"), checked)
    route = world.route("n/checked/0/0")
    assert isinstance(route.authentication, Basic)
    assert route.external_auth is not None
    assert world.route("n/open/0/0").authentication is None


def test_filter_of_a_rule_replaces_the_check_of_the_same_kind() -> None:
    reference = {"group": "gateway.nginx.org", "kind": "AuthenticationFilter", "name": "own"}
    own = {**SERVED, "filters": [{"type": "ExtensionRef", "extensionRef": reference}]}
    spec = {"type": "Basic", "basic": {"realm": "own", "secretRef": {"name": "users"}}}
    world = World(
        manifest("gateway.nginx.org/v1alpha1", "AuthenticationFilter", "n/own", spec=spec),
        policy("gh/outer", GATEWAY, jwt=TOKENS),
        policy("n/p", ROUTE, externalAuth=server()),
        rule=own,
    )
    route = world.route()
    assert isinstance(route.authentication, Basic)
    assert route.authentication.realm == "own"
    assert route.external_auth is not None


@pytest.mark.parametrize("target", [ROUTE, GATEWAY])
def test_policy_has_no_effect_on_objects_of_other_namespaces(target: Object) -> None:
    checked = policy("evil/p", target, basicAuth={"secretRef": {"name": "users"}})
    assert World(checked).compiled == World().compiled


def test_policy_reads_only_secrets_of_its_own_namespace() -> None:
    # The Secret exists in the namespace of the route, and not in that of the policy's Gateway.
    world = World(
        secret("n/staff", "bob:{PLAIN}b"),
        policy("gh/p", GATEWAY, basicAuth={"secretRef": {"name": "staff"}}),
    )
    assert world.accepted("p") == "spec.basicAuth.secretRef: Secret gh/staff not found"
    assert_refused(world)


FAILING: dict[str, tuple[Object, str]] = {
    "no Secret": (
        {"basicAuth": {"secretRef": {"name": "gone"}}},
        "spec.basicAuth.secretRef: Secret n/gone not found",
    ),
    "no users": (
        {"basicAuth": {"secretRef": {"name": "empty"}}},
        "spec.basicAuth.secretRef: data[auth] must have a line name:hash for each user",
    ),
    "no keys": (
        {"jwt": {"secretRef": {"name": "users"}}},
        "spec.jwt.secretRef: data[auth]: must be a JSON Web Key Set with a supported key",
    ),
    "keys that are not fetched yet": (
        {"jwt": {"remote": {"uri": "https://id.example/keys"}}},
        "spec.jwt.remote.uri: https://id.example/keys is not fetched yet",
    ),
    "wrong header": (
        {"externalAuth": server(allowedHeaders=["X A"])},
        "spec.externalAuth.http.allowedHeaders[0]: 'X A' must be a token",
    ),
}


@pytest.mark.parametrize("spec", FAILING)
def test_routes_answer_500_without_a_check_that_they_need(spec: str) -> None:
    fields, message = FAILING[spec]
    world = World(policy("n/p", ROUTE, **fields))
    reason, message_here = world.conditions["p", "Accepted"]
    assert (reason, message_here.startswith(message)) == ("Invalid", True)
    assert_refused(world)
    reason, message_here = world.of_routes["r", "ResolvedRefs"]
    assert (reason, message_here.startswith(f"SecurityPolicy n/p: {message}")) == (
        "InvalidFilter",
        True,
    )


def test_route_of_another_namespace_does_not_learn_why_its_gateway_fails() -> None:
    world = World(policy("gh/p", GATEWAY, basicAuth={"secretRef": {"name": "hidden"}}))
    assert_refused(world)
    assert world.of_routes["r", "ResolvedRefs"] == (
        "InvalidFilter",
        "SecurityPolicy gh/p: is not served: see its status",
    )


def test_own_check_of_a_route_replaces_one_of_its_gateway_that_fails() -> None:
    world = World(
        policy("gh/outer", GATEWAY, basicAuth={"secretRef": {"name": "gone"}}),
        policy("n/inner", ROUTE, basicAuth=BASIC),
    )
    assert isinstance(world.route().action, Forward)
    assert isinstance(world.route().authentication, Basic)


def test_server_of_another_namespace_needs_a_grant_for_the_policy() -> None:
    checked = policy("n/p", ROUTE, externalAuth=server("other"))
    world = World(checked)
    why = "spec.externalAuth.backendRef: Service other/s not allowed by any ReferenceGrant"
    assert world.conditions["p", "ResolvedRefs"] == ("RefNotPermitted", why)
    assert_refused(world)

    def grant(group: str, kind: str) -> str:
        source = {"group": group, "kind": kind, "namespace": "n"}
        spec = {"from": [source], "to": [{"group": "", "kind": "Service"}]}
        return manifest(f"{GROUP}/v1beta1", "ReferenceGrant", "other/g", spec=spec)

    assert_refused(World(checked, grant(GROUP, "HTTPRoute")))
    assert_refused(World(checked, grant(GROUP, "SecurityPolicy")))
    granted = World(checked, grant("gatehouse.dev", "SecurityPolicy"))
    assert granted.conditions["p", "ResolvedRefs"][0] == "ResolvedRefs"
    assert granted.route().external_auth is not None


def test_older_policy_wins_and_the_other_fields_of_the_younger_one_stay() -> None:
    world = World(
        policy("n/older", ROUTE, 0, externalAuth=server(path="/older")),
        policy("n/younger", ROUTE, 1, externalAuth=server(path="/younger"), basicAuth=BASIC),
    )
    route = world.route()
    assert route.external_auth is not None
    assert route.external_auth.path == "/older"
    assert isinstance(route.authentication, Basic)
    assert world.conditions["younger", "Accepted"] == (
        "Conflicted",
        "spec: externalAuth: already set for HTTPRoute r by SecurityPolicy n/older, which is "
        "older or first by name",
    )


def test_passwords_and_tokens_of_two_policies_are_in_conflict() -> None:
    world = World(policy("n/a", ROUTE, basicAuth=BASIC), policy("n/b", ROUTE, jwt=TOKENS))
    assert isinstance(world.route().authentication, Basic)
    assert world.conditions["b", "Accepted"] == (
        "Conflicted",
        "spec: basicAuth or jwt: already set for HTTPRoute r by SecurityPolicy n/a, which is "
        "older or first by name",
    )


def test_accepted_policy_precedes_an_older_one_that_is_in_conflict() -> None:
    world = World(
        policy("n/first", ROUTE, 0, externalAuth=server()),
        policy("n/second", ROUTE, 1, externalAuth=server(), basicAuth=BASIC),
        policy("n/third", ROUTE, 2, jwt=TOKENS),
    )
    assert [world.conditions[name, "Accepted"][0] for name in ("first", "second", "third")] == [
        "Accepted",
        "Conflicted",
        "Accepted",
    ]
    assert isinstance(world.route().authentication, Jwt)


def test_failing_older_policy_is_not_replaced_by_a_younger_one() -> None:
    world = World(
        policy("n/older", ROUTE, 0, basicAuth={"secretRef": {"name": "gone"}}),
        policy("n/younger", ROUTE, 1, basicAuth=BASIC),
    )
    assert_refused(world)
    assert world.conditions["younger", "Accepted"][0] == "Conflicted"


def test_keys_are_fetched_at_the_interval_of_the_policy() -> None:
    remote = {"uri": "https://id.example/keys"}
    world = World(policy("n/p", ROUTE, jwt={"remote": remote, "refreshInterval": "1m"}))
    [fetch] = world.fetches
    assert (fetch.url, fetch.every) == ("https://id.example/keys", 60)


def test_headers_of_the_server_come_from_no_client_on_other_routes() -> None:
    world = World(
        http_route("n/open", SERVED),
        http_route("other/open", {"backendRefs": [{"name": "s", "port": 80}]}),
        policy("n/p", ROUTE, externalAuth=server()),
    )
    assert world.route("n/open/0/0").request_headers.remove == ("x-user",)
    assert world.route("n/r/0/0").request_headers.remove == ()
    # Only the namespace of a Service decides which headers it trusts.
    assert world.route("other/open/0/0").request_headers.remove == ()


def test_required_claims_must_all_have_one_of_their_values() -> None:
    claims = [{"name": "aud", "values": ["a", "b"]}, {"name": "scope", "values": ["read"]}]
    tokens = World(policy("n/p", ROUTE, jwt=TOKENS | {"requiredClaims": claims})).route()
    assert isinstance(tokens.authentication, Jwt)
    [requirement] = tokens.authentication.authorization.requirements
    assert requirement.every
    assert [(one.name, one.values, one.regex, one.header) for one in requirement.claims] == [
        ("aud", ("a", "b"), False, ""),
        ("scope", ("read",), False, ""),
    ]


def test_addresses_are_networks_and_those_of_a_route_replace_those_of_its_gateway() -> None:
    world = World(
        policy("gh/outer", GATEWAY, clientAddresses={"allow": ["10.0.0.0/8"]}, basicAuth=BASIC),
        policy(
            "n/inner",
            ROUTE,
            clientAddresses={"allow": ["::/0", "192.0.2.1"], "deny": ["2001:DB8::/32"]},
        ),
    )
    route = world.route()
    assert route.client_addresses == ClientNetworks(
        allow=("::/0", "192.0.2.1/32"),
        deny=("2001:db8::/32",),
        origin=Origin("SecurityPolicy", "n", "inner", "clientAddresses"),
    )
    assert isinstance(route.authentication, Basic)


@pytest.mark.parametrize(
    "text", ["10.0.0.1/8", "10.0.0.0/33", "a.example", "fe80::1%eth0", "", "::ffff:192.0.2.0/120"]
)
def test_address_that_is_no_network_makes_routes_answer_500(text: str) -> None:
    raw = policy("n/p", ROUTE, clientAddresses={"deny": [text]})
    engine = World(raw) if is_admitted(json.loads(raw)) else None
    view = msgspec.convert(json.loads(raw), api.SecurityPolicy)
    [problem] = security_policy(view, ResourceLimits()).problems
    assert problem.startswith(f"spec.clientAddresses.deny[0]: invalid value {text!r}: ")
    if engine is not None:
        assert_refused(engine)
        assert engine.accepted("p") == problem


def test_each_header_is_a_field_and_filters_of_a_rule_precede_it() -> None:
    modifier = {"set": [{"name": "X-Frame-Options", "value": "ALLOW-FROM https://a.example"}]}
    rule = {
        **SERVED,
        "filters": [{"type": "ResponseHeaderModifier", "responseHeaderModifier": modifier}],
    }
    transport = {"maxAgeSeconds": 60, "includeSubdomains": True, "preload": True}
    outer = {
        "strictTransportSecurity": transport,
        "frameOptions": "Deny",
        "referrerPolicy": "UnsafeURL",
        "contentTypeOptions": "NoSniff",
    }
    inner = {"referrerPolicy": "SameOrigin", "contentSecurityPolicy": "default-src 'self'"}
    world = World(
        policy("gh/outer", GATEWAY, securityHeaders=outer),
        policy("n/inner", ROUTE, securityHeaders=inner),
        rule=rule,
    )
    edit = world.route().response_headers
    assert {(one.name, one.value) for one in edit.set} == {
        ("Strict-Transport-Security", "max-age=60; includeSubDomains; preload"),
        ("X-Frame-Options", "ALLOW-FROM https://a.example"),
        ("Referrer-Policy", "same-origin"),
        ("X-Content-Type-Options", "nosniff"),
        ("Content-Security-Policy", "default-src 'self'"),
    }
    assert not edit.add


def test_policies_with_different_headers_apply_together() -> None:
    world = World(
        policy("n/a", ROUTE, 0, securityHeaders={"frameOptions": "Deny"}),
        policy("n/b", ROUTE, 1, securityHeaders={"contentTypeOptions": "NoSniff"}),
        policy("n/c", ROUTE, 2, securityHeaders={"frameOptions": "SameOrigin"}),
    )
    headers = {one.name: one.value for one in world.route().response_headers.set}
    assert headers == {"X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff"}
    assert world.conditions["c", "Accepted"] == (
        "Conflicted",
        "spec: securityHeaders.frameOptions: already set for HTTPRoute r by SecurityPolicy n/a, "
        "which is older or first by name",
    )


INVALID: dict[str, tuple[Object, Object, tuple[str, ...]]] = {
    "Service": (
        {"group": "", "kind": "Service", "name": "s"},
        {"basicAuth": BASIC},
        ("spec.targetRefs[0]: kind Service is not supported",),
    ),
    "kind of another group": (
        {"group": "x.example", "kind": "Gateway", "name": "gw"},
        {"basicAuth": BASIC},
        ("spec.targetRefs[0]: kind x.example/Gateway is not supported",),
    ),
    "both": (
        ROUTE,
        {"basicAuth": BASIC, "jwt": TOKENS},
        ("spec.jwt: may not be set with basicAuth",),
    ),
    "no keys": (ROUTE, {"jwt": {}}, ("spec.jwt: needs either secretRef or remote",)),
    "keys twice": (
        ROUTE,
        {"jwt": TOKENS | {"remote": {"uri": "https://id.example/keys"}}},
        ("spec.jwt: needs either secretRef or remote",),
    ),
    "interval without fetches": (
        ROUTE,
        {"jwt": TOKENS | {"refreshInterval": "1m"}},
        ("spec.jwt.refreshInterval: may be set with remote only",),
    ),
    "leeway without a unit": (
        ROUTE,
        {"jwt": TOKENS | {"leeway": "5"}},
        ("spec.jwt.leeway: invalid value '5': must be a duration such as 500ms or 10s",),
    ),
    "no addresses": (
        ROUTE,
        {"clientAddresses": {}},
        ("spec.clientAddresses: needs allow or deny",),
    ),
    "frame options": (
        ROUTE,
        {"securityHeaders": {"frameOptions": "Allow"}},
        ("spec.securityHeaders.frameOptions: must be one of Deny, SameOrigin",),
    ),
    "policy of two lines": (
        ROUTE,
        {"securityHeaders": {"contentSecurityPolicy": "a\nb"}},
        (
            "spec.securityHeaders.contentSecurityPolicy: must be up to 2048 printable characters "
            "of ASCII",
        ),
    ),
    "negative age": (
        ROUTE,
        {"securityHeaders": {"strictTransportSecurity": {"maxAgeSeconds": -1}}},
        (
            "spec.securityHeaders.strictTransportSecurity.maxAgeSeconds: must be from 0 to "
            "2147483647",
        ),
    ),
    "claim without values": (
        ROUTE,
        {"jwt": TOKENS | {"requiredClaims": [{"name": "aud", "values": []}]}},
        ("spec.jwt.requiredClaims[0]: needs a name and values",),
    ),
}


@pytest.mark.parametrize("case", INVALID)
def test_invalid_policy_is_rejected_by_the_crd_and_without_it(case: str) -> None:
    target, spec, expected = INVALID[case]
    raw = {"metadata": {"name": "p", "namespace": "n"}, "spec": {"targetRefs": [target], **spec}}
    view = msgspec.convert(raw, api.SecurityPolicy)
    assert security_policy(view, ResourceLimits()).problems == expected
    whole = {"apiVersion": "gatehouse.dev/v1alpha1", "kind": "SecurityPolicy", **raw}
    assert not is_admitted(whole)
