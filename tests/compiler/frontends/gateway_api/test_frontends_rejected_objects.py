"""Two Gateways share an object, and the proxy of one rejects it: the other serves it as before."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from fakes.rejected_objects import secret
from fakes.rejected_parts import reject_part
from fakes.upstream_worlds import authority
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.ir import gateway as ir
from gatehouse.compiler.ir import http
from gatehouse.compiler.ir.unsupported import Suspect
from gatehouse.controller.quarantine import Quarantine
from gatehouse.dataplane.origin import Origin
from gatehouse.incremental.query import Engine, Key, Snapshot

Object = dict[str, Any]

A, B = ("Gateway", "n", "a"), ("Gateway", "n", "b")
ROUTE, SERVICE = ("HTTPRoute", "n", "r"), ("Service", "n", "s")
GROUP = {"group": "gateway.networking.k8s.io"}
SNIPPET = {"snippets": [{"context": "http.server.location", "value": "x on;"}]}
BASIC = {"type": "Basic", "basic": {"realm": "r", "secretRef": {"name": "users"}}}
USERS = {"data": {"auth": base64.b64encode(b"ann:{SHA}x").decode()}}
TLS = {
    "targetRefs": [{"group": "", "kind": "Service", "name": "s"}],
    "validation": {
        "hostname": "s.example",
        "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "ca"}],
    },
}


def target(kind: str, name: str) -> Object:
    return {
        "targetRef": {**(GROUP if kind != "Service" else {"group": ""}), "kind": kind, "name": name}
    }


RATES = {"rateLimit": {"local": {"rules": [{"rate": "5r/s", "key": "$host"}]}}}
POLICIES: dict[str, tuple[Key, Object]] = {
    kind: ((kind, "n", "shared"), spec)
    for kind, spec in {
        "ClientSettingsPolicy": {**target("HTTPRoute", "r"), "body": {"maxSize": "9m"}},
        "ProxySettingsPolicy": {
            "targetRefs": [target("HTTPRoute", "r")["targetRef"]],
            "buffering": {"disable": True},
        },
        "RateLimitPolicy": {"targetRefs": [target("HTTPRoute", "r")["targetRef"]], **RATES},
        "UpstreamSettingsPolicy": {
            "targetRefs": [{"group": "", "kind": "Service", "name": "s"}],
            "zoneSize": "7m",
        },
        "XBackendTrafficPolicy": {
            "targetRefs": [{"group": "", "kind": "Service", "name": "s"}],
            "sessionPersistence": {"cookie": {"name": "s"}},
            "retryConstraint": {},
        },
        "SnippetsPolicy": {
            "targetRefs": [{**GROUP, "kind": "Gateway", "name": name} for name in "ab"],
            **SNIPPET,
        },
    }.items()
}
FILTERS: dict[str, tuple[Key, Object]] = {
    kind: ((kind, "n", "shared"), spec)
    for kind, spec in (("SnippetsFilter", SNIPPET), ("AuthenticationFilter", BASIC))
}
PARAMETERS = (("NginxProxy", "n", "shared"), {"disableHTTP2": True})
CA = ("ConfigMap", "n", "ca")


class World:
    """Two Gateways with one route, and a quarantine for each."""

    def __init__(self, filters: Sequence[Key] = (), own_classes: bool = False) -> None:
        self.engine = Engine(Snapshot(gateway_api.GATEWAY_API_INDEXES))
        settings = gateway_api.ControllerSettings(bind="any", snippets=True)
        self.engine.commit({gateway_api.SETTINGS_KEY: settings})
        listeners = [{"name": "l", "port": 80, "protocol": "HTTP"}]
        reference = {"group": "gateway.nginx.org", "kind": PARAMETERS[0][0], "name": "shared"}
        self.put(
            ("GatewayClass", "", "c"),
            {
                "controllerName": gateway_api.NGINX,
                "parametersRef": {**reference, "namespace": "n"},
            },
        )
        self.put(("GatewayClass", "", "e"), {"controllerName": gateway_api.ENVOY})
        for key, name in ((A, "c"), (B, "e" if own_classes else "c")):
            self.put(key, {"gatewayClassName": name, "listeners": listeners})
        self.put(SERVICE, {"ports": [{"name": "p", "port": 80, "protocol": "TCP"}]})
        self.put(*PARAMETERS)
        self.store(("Secret", "n", "users"), USERS)
        self.store(CA, {"data": {"ca.crt": authority().pem.decode()}})
        references = [
            {
                "type": "ExtensionRef",
                "extensionRef": {
                    "group": "gateway.nginx.org", "kind": key[0], "name": key[2],
                },
            }
            for key in filters
        ]  # fmt: skip
        rule = {"filters": references, "backendRefs": [{"name": "s", "port": 80}]}
        self.put(ROUTE, {"parentRefs": [{"name": "a"}, {"name": "b"}], "rules": [rule]})

    def put(self, key: Key, spec: Object) -> None:
        self.store(key, {"spec": spec})

    def store(self, key: Key, raw: Object) -> None:
        metadata = {"name": key[2], "namespace": key[1], "creationTimestamp": "2026-01-01"}
        self.engine.commit(
            {key: gateway_api.decode_gateway_api_object(key[0], {"metadata": metadata, **raw})}
        )

    def compiled(self, key: Key) -> ir.GatewayConfiguration:
        with self.engine.compile() as ask:
            compiled = ask(gateway_api.compile_gateway, key)
        assert compiled is not None
        return compiled

    def status(self, key: Key) -> Object:
        with self.engine.compile() as ask:
            desired = ask(gateway_api.gateway_api_status, key)
        assert desired is not None
        merged = gateway_api.GATEWAY_API_FRONT_END.merge_status(None, desired, "T")
        assert merged is not None
        return merged

    def reject(self, gateway: Key, suspect: Suspect, among: Sequence[Origin] = ()) -> Quarantine:
        """Let the proxy of a Gateway reject a part."""
        return reject_part(self.engine, gateway, self.compiled(gateway), suspect, "bad", among)

    def try_again(self, gateway: Key, quarantine: Quarantine) -> None:
        """Let the proxy of a Gateway test again what it rejected."""
        before = quarantine.inputs
        quarantine.verdicts.hurry(0.0)
        quarantine.published("without it", self.compiled(gateway))
        assert quarantine.confirmed(["without it"])
        assert quarantine.retrying
        self.engine.commit({**dict.fromkeys(before), **quarantine.inputs})


def conditions(entries: list[Object], **which: str) -> list[Object]:
    """Return the conditions of the entries about a Gateway or a controller."""
    return [
        condition
        for entry in entries
        for reference in ({**entry, **entry.get("parentRef", {}), **entry.get("ancestorRef", {})},)
        if all(reference.get(field) == value for field, value in which.items())
        for condition in entry["conditions"]
    ]


def origin_of(key: Key) -> Origin:
    kind, namespace, name = key
    return Origin(kind, namespace, name)


def refused(entries: list[Object]) -> str:
    return "; ".join(
        condition["message"] for condition in entries if condition["status"] == "False"
    )


@pytest.mark.parametrize("kind", [*POLICIES, *FILTERS])
def test_rejected_object_is_left_out_of_one_gateway_only(kind: str) -> None:
    key, spec = (POLICIES | FILTERS)[kind]
    world = World([key] if kind in FILTERS else [])
    without, without_b = world.compiled(A), world.compiled(B)
    world.put(key, spec)
    before, of_b = world.compiled(A), world.compiled(B)
    route = conditions(world.status(ROUTE)["parents"], name="b")
    world.reject(A, Suspect(origin_of(key)))
    # As if the object did not exist.
    assert world.compiled(A) == without != before
    assert world.compiled(B) == of_b != without_b
    assert conditions(world.status(ROUTE)["parents"], name="b") == route


@pytest.mark.parametrize(
    "kind", ["UpstreamSettingsPolicy", "XBackendTrafficPolicy", "SnippetsPolicy"]
)
def test_policy_status_tells_ancestors_apart(kind: str) -> None:
    key, spec = POLICIES[kind]
    world = World()
    world.put(key, spec)
    before = world.status(key)["ancestors"]
    world.reject(A, Suspect(origin_of(key)))
    after = world.status(key)["ancestors"]
    assert refused(conditions(after, name="a")) == "rejected by proxy/1: bad"
    assert conditions(after, name="b") == conditions(before, name="b")


@pytest.mark.parametrize("kind", ["ClientSettingsPolicy", *FILTERS])
def test_status_shared_by_gateways_names_the_one(kind: str) -> None:
    key, spec = (POLICIES | FILTERS)[kind]
    world = World([key] if kind in FILTERS else [], own_classes=True)
    world.put(key, spec)
    field = "controllers" if kind in FILTERS else "ancestors"
    before = world.status(key)[field]
    world.reject(A, Suspect(origin_of(key)))
    after = world.status(key)[field]
    message = refused(conditions(after, controllerName=gateway_api.NGINX))
    assert message == "not served by Gateway n/a: rejected by proxy/1: bad"
    of_envoy = {"controllerName": gateway_api.ENVOY}
    assert conditions(after, **of_envoy) == conditions(before, **of_envoy)


def test_younger_policy_is_served_only_where_the_older_one_is_rejected() -> None:
    world, (key, spec) = World(), POLICIES["UpstreamSettingsPolicy"]
    world.put(key, spec)
    younger = (key[0], "n", "younger")
    world.put(younger, {**spec, "zoneSize": "5m"})
    world.reject(A, Suspect(origin_of(key)))
    sizes = [
        next(iter(world.compiled(gateway).clusters)).settings.nginx.memory for gateway in (A, B)
    ]
    assert sizes == [5 << 20, 7 << 20]
    entries = world.status(younger)["ancestors"]
    assert refused(conditions(entries, name="a")) == ""
    assert "already set" in refused(conditions(entries, name="b"))


def test_rejected_parameters_of_a_class_are_left_out_of_one_gateway_only() -> None:
    world = World()
    of_b = world.compiled(B), world.status(B), world.status(("GatewayClass", "", "c"))
    world.reject(A, Suspect(origin_of(PARAMETERS[0])))
    assert world.compiled(A).settings.http2
    compiled = world.compiled(B), world.status(B), world.status(("GatewayClass", "", "c"))
    assert compiled == of_b
    message = refused(world.status(A)["conditions"])
    assert "NginxProxy n/shared: rejected by proxy/1: bad" in message


@pytest.mark.parametrize("named", [False, True], ids=["message", "resource"])
def test_rejected_ca_certificates_are_left_out_of_one_gateway_only(named: bool) -> None:
    """An NGINX names the file in its message, an Envoy the resource, which has origins."""
    world, policy = World(), ("BackendTLSPolicy", "n", "p")
    world.put(policy, TLS)
    (bundle,) = world.compiled(A).trust_bundles
    assert bundle.origins == (origin_of(CA),)
    of_b = world.compiled(B)
    before = world.status(policy)["ancestors"]
    suspect = Suspect(bundle.origins[0], credential=bundle.name)
    world.reject(A, suspect, bundle.origins if named else ())
    (listener,) = world.compiled(A).listeners
    ((route,),) = [host.routes for host in listener.virtual_hosts]
    # As if the reference were missing: the share of the backend gets 500, and none is reached.
    assert getattr(route.action, "backends", ()) == ()
    assert world.compiled(A).trust_bundles == ()
    assert world.compiled(B) == of_b
    after = world.status(policy)["ancestors"]
    assert "ConfigMap n/ca: rejected by proxy/1: bad" in refused(conditions(after, name="a"))
    assert conditions(after, name="b") == conditions(before, name="b")
    world.store(CA, {"data": {"ca.crt": authority().pem.decode() * 2}})
    assert world.compiled(A).trust_bundles != ()


@pytest.mark.parametrize("named", [False, True], ids=["message", "resource"])
def test_rejected_secret_is_left_out_of_one_gateway_only(named: bool) -> None:
    key, spec = FILTERS["AuthenticationFilter"]
    world = World([key])
    world.put(key, spec)
    (users,) = world.compiled(A).secrets
    assert users.origin == Origin("Secret", "n", "users")
    of_b = world.compiled(B)
    suspect = Suspect(users.origin, credential=users.name)
    world.reject(A, suspect, users.origins if named else ())
    assert world.compiled(A).secrets == ()
    assert world.compiled(B) == of_b
    rejected = "Secret n/users: rejected by proxy/1: bad"
    entries = conditions(world.status(key)["controllers"], controllerName=gateway_api.NGINX)
    assert refused(entries) == f"not served by Gateway n/a: {rejected}"
    route = world.status(ROUTE)["parents"]
    assert rejected in refused(conditions(route, name="a"))
    assert refused(conditions(route, name="b")) == ""


@pytest.mark.parametrize("part", ["policy", "Secret"])
def test_route_is_not_served_without_a_security_policy_that_the_proxy_rejected(part: str) -> None:
    key: Key = ("SecurityPolicy", "n", "shared")
    targets = [target("HTTPRoute", "r")["targetRef"]]
    world = World()
    world.put(key, {"targetRefs": targets, "basicAuth": {"secretRef": {"name": "users"}}})
    of_b = world.compiled(B)
    (users,) = of_b.secrets
    suspect = Suspect(users.origin, credential=users.name)
    world.reject(A, suspect if part == "Secret" else Suspect(origin_of(key)))
    (listener,) = world.compiled(A).listeners
    ((route,),) = [host.routes for host in listener.virtual_hosts]
    assert route.action == http.Respond(500)
    assert world.compiled(B) == of_b
    why = "rejected by proxy/1: bad"
    parents = world.status(ROUTE)["parents"]
    assert why in refused(conditions(parents, name="a"))
    assert refused(conditions(parents, name="b")) == ""
    (message,) = [
        condition["message"]
        for condition in conditions(world.status(key)["ancestors"])
        if condition["status"] == "False"
    ]
    named = f"Secret n/users: {why}" if part == "Secret" else why
    assert message == f"not served by Gateway n/a: {named}"


def test_route_reports_a_filter_or_its_secret_that_is_tried_again() -> None:
    for kind, (key, spec) in FILTERS.items():
        world = World([key])
        world.put(key, spec)
        before = world.compiled(A)
        suspects = [Suspect(origin_of(key))]
        suspects += [Suspect(entry.origin, credential=entry.name) for entry in before.secrets]
        for suspect in suspects:
            world = World([key])
            world.put(key, spec)
            quarantine = world.reject(A, suspect)
            reported = conditions(world.status(ROUTE)["parents"], name="a")
            assert "rejected by proxy/1: bad" in refused(reported), kind
            world.try_again(A, quarantine)
            assert world.compiled(A) == before, "the filter is used again"
            assert conditions(world.status(ROUTE)["parents"], name="a") == reported


def test_policy_reports_ca_certificates_that_are_tried_again() -> None:
    world, policy = World(), ("BackendTLSPolicy", "n", "p")
    world.put(policy, TLS)
    before = world.compiled(A)
    (bundle,) = before.trust_bundles
    quarantine = world.reject(A, Suspect(bundle.origins[0], credential=bundle.name))
    message = "ConfigMap n/ca: rejected by proxy/1: bad"
    assert message in refused(conditions(world.status(policy)["ancestors"], name="a"))
    world.try_again(A, quarantine)
    assert world.compiled(A) == before, "the CA certificates are used again"
    assert message in refused(conditions(world.status(policy)["ancestors"], name="a"))


def test_listener_reports_its_certificate_and_client_ca_that_are_tried_again() -> None:
    tls = {"certificateRefs": [{"name": "tls"}]}
    clients = {"caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "ca"}]}
    spec = {
        "gatewayClassName": "c",
        "listeners": [{"name": "l", "port": 443, "protocol": "HTTPS", "tls": tls}],
        "tls": {"frontend": {"default": {"validation": clients}}},
    }
    for number in range(2):
        world = World()
        world.store(("Secret", "n", "tls"), {"data": secret("tls", ec.SECP256R1())["data"]})
        world.put(A, spec)
        before = world.compiled(A)
        entry = before.credentials[number]
        quarantine = world.reject(A, Suspect(entry.origins[0], credential=entry.name))
        message = f"{entry.origins[0]}: rejected by proxy/1: bad"
        assert message in refused(conditions(world.status(A)["listeners"]))
        world.try_again(A, quarantine)
        assert world.compiled(A) == before, "it is used again"
        assert message in refused(conditions(world.status(A)["listeners"]))


def test_route_whose_resource_an_envoy_rejects_is_left_out_of_one_gateway_only() -> None:
    key, spec = POLICIES["ClientSettingsPolicy"]
    world = World()
    world.put(key, spec)
    of_b, status = world.compiled(B), world.status(key)
    origin = Origin(*ROUTE, part="rules[0].matches[0]")
    world.reject(A, Suspect(origin), (origin,))
    (listener,) = world.compiled(A).listeners
    ((route,),) = [host.routes for host in listener.virtual_hosts]
    assert isinstance(route.action, http.Respond)
    assert world.compiled(B) == of_b
    assert world.status(key) == status
