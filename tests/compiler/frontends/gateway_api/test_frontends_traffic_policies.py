"""TrafficPolicies: what they set, for which objects, and what they share with other policies."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from fakes.admission import admitted_objects
from fakes.compiled_objects import engine_with
from fakes.hostile_objects import is_admitted
from gatehouse.apis import traffic_policies as api
from gatehouse.apis.resource_limits import ResourceLimits, parse_limits
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.frontends.gateway_api.extensions.portable_policies import (
    COMPRESSED_TYPES,
    traffic_policy,
)
from gatehouse.compiler.ir import settings as ir
from gatehouse.compiler.ir.gateway import GatewayConfiguration
from gatehouse.compiler.ir.http import Forward, Retry, Route
from gatehouse.compiler.ir.settings import Attribute, Balancing
from gatehouse.dataplane.origin import Origin

Object = dict[str, Any]
GROUP = "gateway.networking.k8s.io"
ROUTE = {"group": GROUP, "kind": "HTTPRoute", "name": "r"}
GATEWAY = {"group": GROUP, "kind": "Gateway", "name": "gw"}
SERVICE = {"group": "", "kind": "Service", "name": "s"}
MIB = 1 << 20


def manifest(group: str, kind: str, name: str, spec: Object, created: int = 0) -> str:
    namespace, _, own = name.rpartition("/")
    metadata = {
        "name": own,
        "creationTimestamp": f"2026-01-01T00:00:{created:02}Z",
        **({"namespace": namespace} if namespace else {}),
    }
    return json.dumps({"apiVersion": group, "kind": kind, "metadata": metadata, "spec": spec})


def policy(name: str, target: Object, created: int = 0, **spec: Any) -> str:
    whole = {"targetRefs": [target], **spec}
    return manifest("gatehouse.dev/v1alpha1", "TrafficPolicy", name, whole, created)


def world(
    *policies: str, limits: str = "", kind: str = "HTTPRoute", **rule: Any
) -> tuple[GatewayConfiguration, dict[str, str]]:
    """Return a Gateway with a route of the namespace ``n``, and the messages of its policies.

    ``rule``: fields of the route's rule.
    """
    parent = {"name": "gw", "namespace": "gh"}
    backends = [{"name": "s", "port": 80}]
    everyone = {"namespaces": {"from": "All"}}
    listener = {"name": "http", "port": 80, "protocol": "HTTP", "allowedRoutes": everyone}
    texts = (
        manifest(f"{GROUP}/v1", "GatewayClass", "c", {"controllerName": "gatehouse.dev/nginx"}),
        manifest(
            f"{GROUP}/v1", "Gateway", "gh/gw", {"gatewayClassName": "c", "listeners": [listener]}
        ),
        manifest(
            f"{GROUP}/v1",
            kind,
            "n/r",
            {"parentRefs": [parent], "rules": [{"backendRefs": backends, **rule}]},
        ),
        manifest("v1", "Service", "n/s", {"ports": [{"name": "p", "port": 80}]}),
        *policies,
    )
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


def test_route_has_its_own_settings_and_those_of_its_gateway() -> None:
    compiled, messages = world(
        policy("gh/outer", GATEWAY, client={"maxBodySize": "1Mi"}, timeouts={"read": "1m30s"}),
        policy("n/inner", ROUTE, client={"maxBodySize": "10M"}, responseBuffering="Disabled"),
    )
    settings = route_settings(compiled)
    assert settings.client.body_size == 10_000_000
    assert settings.proxy.read == 90
    assert settings.proxy.nginx.buffering is False
    assert settings.client.source("body_size") == Origin(
        "TrafficPolicy", "n", "inner", "client.maxBodySize"
    )
    assert settings.proxy.source("read") == Origin("TrafficPolicy", "gh", "outer", "timeouts.read")
    assert messages == dict.fromkeys(("outer", "inner"), "the policy is accepted")


@pytest.mark.parametrize(
    ("compression", "expected"),
    [
        ({"mode": "Disabled"}, (False, 1024, ("text/html", *COMPRESSED_TYPES))),
        (
            {"mode": "Enabled", "types": ["text/a", "text/html"], "minLength": 30},
            (True, 30, ("text/html", "text/a")),
        ),
    ],
)
def test_compression_of_a_route_replaces_that_of_its_gateway(
    compression: Object, expected: tuple[bool, int, tuple[str, ...]]
) -> None:
    outer = {"mode": "Enabled", "types": ["text/b"], "minLength": 99}
    compiled, _ = world(
        policy("gh/outer", GATEWAY, compression=outer),
        policy("n/inner", ROUTE, compression=compression),
    )
    settings = route_settings(compiled).compression
    assert (settings.enabled, settings.min_length, settings.types) == expected
    origin = Origin("TrafficPolicy", "n", "inner", "compression")
    assert settings.sources == (("enabled", origin),)


RETRIED: Object = {"attempts": 2, "codes": [503, 502, 503], "backoff": "50ms"}
RETRIES_FIELD = Origin("TrafficPolicy", "n", "p", "retries")
OF_POLICY = Retry(2, (502, 503), 0.05, RETRIES_FIELD)


@pytest.mark.parametrize(
    ("of_policy", "of_rule", "expected"),
    [
        (RETRIED, {}, OF_POLICY),
        (RETRIED, {"retry": {"attempts": 1}}, Retry(1)),
        (RETRIED, {"retry": {"attempts": 0}}, Retry(0)),
        ({"attempts": 0}, {}, Retry(0, origin=RETRIES_FIELD)),
        ({"attempts": 0}, {"retry": {"attempts": 1}}, Retry(1)),
    ],
)
def test_retries_of_a_policy_are_those_of_rules_that_set_none(
    of_policy: Object, of_rule: Object, expected: Retry | None
) -> None:
    compiled, messages = world(
        policy("gh/outer", GATEWAY, retries={"attempts": 8}),
        policy("n/p", ROUTE, retries=of_policy),
        **of_rule,
    )
    assert retry_of(compiled) == expected
    assert messages == dict.fromkeys(("outer", "p"), "the policy is accepted")


@pytest.mark.parametrize(("kind", "attempts"), [("HTTPRoute", 3), ("GRPCRoute", None)])
def test_retries_of_a_gateway_are_those_of_http_routes(kind: str, attempts: int | None) -> None:
    compiled, _ = world(policy("gh/outer", GATEWAY, retries={"attempts": 3}), kind=kind)
    retry = retry_of(compiled)
    assert (retry and retry.attempts) == attempts


def test_younger_policy_with_retries_yields() -> None:
    first = policy("n/first", ROUTE, 0, retries={"attempts": 3})
    compiled, messages = world(first, policy("n/last", ROUTE, 1, retries={"attempts": 1}))
    assert retry_of(compiled) == Retry(3, origin=Origin("TrafficPolicy", "n", "first", "retries"))
    assert messages["last"].startswith("spec: retries: already set for HTTPRoute r by ")


def test_rates_are_counted_by_key_without_delay() -> None:
    rules = [
        {"requests": 10, "per": "Minute", "burst": 5, "key": {"type": "Header", "name": "X-A"}},
        {"requests": 1, "per": "Second", "key": {"type": "ClientAddress"}},
        {"requests": 2, "per": "Second"},
    ]
    limited = {"local": {"rules": rules}, "statusCode": 429, "dryRun": True}
    compiled, _ = world(policy("n/p", ROUTE, rateLimit=limited))
    rates = route_settings(compiled).rates
    assert [(one.key, one.rate, one.per, one.burst, one.delay) for one in rates.limits] == [
        ((Attribute("http_x_a"),), 10, "minute", 5, None),
        ((Attribute("binary_remote_addr"),), 1, "second", 0, None),
        (("all",), 2, "second", 0, None),
    ]
    assert (rates.status, rates.dry_run) == (429, True)


def test_policies_of_two_kinds_and_one_name_have_counters_of_their_own() -> None:
    own = policy("n/p", ROUTE, rateLimit={"local": {"rules": [{"requests": 1, "per": "Second"}]}})
    rules = [{"key": "all", "rate": "2r/s"}]
    spec = {"targetRefs": [ROUTE], "rateLimit": {"local": {"rules": rules}}}
    compiled, _ = world(own, manifest("gateway.nginx.org/v1alpha1", "RateLimitPolicy", "n/p", spec))
    limits = route_settings(compiled).rates.limits
    assert sorted(limit.rate for limit in limits) == [1, 2]
    assert len({limit.name for limit in limits}) == 2


def test_clusters_of_a_service_have_its_settings() -> None:
    key = {"type": "Cookie", "name": "user"}
    backend = {
        "loadBalancing": {"method": "Hash", "hashKey": key},
        "keepAlive": {"maxIdleConnections": 4, "maxRequests": 5, "idleTimeout": "1m"},
    }
    compiled, _ = world(policy("n/p", SERVICE, backend=backend))
    [cluster] = compiled.clusters
    assert cluster.settings.balancing == Balancing("hash", consistent=True)
    assert cluster.settings.key == Attribute("cookie_user")
    assert (cluster.settings.connections, cluster.settings.requests) == (4, 5)
    assert (cluster.settings.idle, cluster.settings.lifetime) == (60, None)


def test_clusters_of_a_service_have_the_limits_of_its_policies() -> None:
    breaker = {"maxConnections": 4, "maxPendingRequests": 5, "maxParallelRequests": 6}
    apart = {"maxConnectionsPerEndpoint": 7}
    compiled, messages = world(
        policy("n/first", SERVICE, 0, backend={"circuitBreaker": breaker}),
        policy("n/last", SERVICE, 1, backend={"circuitBreaker": apart}),
    )
    [cluster] = compiled.clusters
    assert cluster.settings.breaker == ir.CircuitBreaker(4, 5, 6)
    assert cluster.settings.endpoint_connections == 7
    assert messages == dict.fromkeys(("first", "last"), "the policy is accepted")


def test_endpoints_are_ejected_for_whole_seconds() -> None:
    passive = {"maxFailures": 3, "ejectionTime": "1s1ms"}
    compiled, messages = world(
        policy("n/first", SERVICE, 0, backend={"healthChecks": {"passive": passive}}),
        policy("n/last", SERVICE, 1, backend={"healthChecks": {"passive": {"maxFailures": 1}}}),
    )
    [cluster] = compiled.clusters
    assert cluster.settings.passive_checks == ir.PassiveChecks(3, 2.0)
    field = "spec: backend.healthChecks.passive: already set for Service s"
    assert messages["last"].startswith(field)


def test_active_checks_have_defaults_and_claim_idle_connections() -> None:
    own = policy("n/p", SERVICE, backend={"healthChecks": {"active": {"path": "/ready"}}})
    compiled, _ = world(own)
    [cluster] = compiled.clusters
    assert cluster.settings.active_checks == ir.ActiveChecks("/ready", 10.0, 2.0, 3, 1)
    _, messages = world(own, limits=json.dumps({"keepAliveConnectionsPerNamespace": 99}))
    assert messages["p"].startswith("spec.backend.healthChecks.active: 100 in addition to 0")


def test_limits_of_a_service_are_those_of_one_policy() -> None:
    first = policy("n/first", SERVICE, 0, backend=broken_at(maxConnections=4))
    compiled, messages = world(
        first, policy("n/last", SERVICE, 1, backend=broken_at(maxParallelRequests=5))
    )
    [cluster] = compiled.clusters
    assert cluster.settings.breaker == ir.CircuitBreaker(4)
    assert messages["last"].startswith("spec: backend.circuitBreaker: already set for Service s")


def test_counts_of_endpoints_claim_memory_of_the_namespace() -> None:
    own = policy("n/p", SERVICE, backend=broken_at(maxConnectionsPerEndpoint=1))
    compiled, messages = world(own, limits=json.dumps({"zoneBytesPerNamespace": MIB - 1}))
    field = "spec.backend.circuitBreaker.maxConnectionsPerEndpoint"
    assert messages["p"].startswith(f"{field}: {MIB} in addition to 0 of older policies")
    [cluster] = compiled.clusters
    assert cluster.settings.endpoint_connections is None
    _, messages = world(own, limits=json.dumps({"zoneBytesPerNamespace": MIB}))
    assert messages["p"] == "the policy is accepted"


@pytest.mark.parametrize("target", [ROUTE, GATEWAY, SERVICE])
def test_policy_has_no_effect_on_objects_of_other_namespaces(target: Object) -> None:
    before, _ = world()
    field = (
        {"backend": {"loadBalancing": {"method": "Random"}, **broken_at(maxConnections=1)}}
        if target is SERVICE
        else {"client": {"maxBodySize": "1"}, "compression": {"mode": "Enabled"}}
    )
    after, _ = world(policy("evil/p", target, **field))
    assert after == before


def test_younger_policy_of_any_kind_yields_and_names_the_older_one() -> None:
    nginx = manifest(
        "gateway.nginx.org/v1alpha1",
        "ClientSettingsPolicy",
        "n/middle",
        {"targetRef": ROUTE, "body": {"maxSize": "2m", "timeout": "1s"}},
        1,
    )
    first = policy("n/first", ROUTE, 0, client={"bodyTimeout": "3s"})
    last = policy("n/last", ROUTE, 2, client={"maxBodySize": "3Mi"})
    compiled, messages = world(first, nginx, last)
    # A conflicted policy sets nothing, so that it is in conflict with no younger one.
    client = route_settings(compiled).client
    assert (client.body_size, client.nginx.body_timeout) == (3 * MIB, 3)
    assert messages == {
        "first": "the policy is accepted",
        "middle": "spec: body.timeout: already set for HTTPRoute r by TrafficPolicy n/first, "
        "which is older or first by name",
        "last": "the policy is accepted",
    }


def test_counters_claim_memory_of_the_namespace_with_those_of_other_kinds() -> None:
    rules = [{"key": "$host", "rate": "1r/s", "zoneSize": "20m"}]
    spec = {"targetRefs": [ROUTE], "rateLimit": {"local": {"rules": rules}}}
    older = manifest("gateway.nginx.org/v1alpha1", "RateLimitPolicy", "n/older", spec)
    limited = {"local": {"rules": [{"requests": 1, "per": "Second"}] * 2}}
    own = policy("n/p", ROUTE, 1, rateLimit=limited)
    ceiling = json.dumps({"zoneBytesPerNamespace": 39 * MIB})
    _, messages = world(older, own, limits=ceiling)
    assert messages["p"].startswith(
        f"spec.rateLimit.local.rules: {20 * MIB} in addition to {20 * MIB} of older policies in "
        "namespace n: "
    )
    assert messages["older"] == "the policy is accepted"
    _, messages = world(older, own)
    assert messages["p"] == "the policy is accepted"


def test_idle_connections_claim_those_of_the_namespace() -> None:
    keep_alive = {"maxIdleConnections": 8}
    ceiling = json.dumps({"keepAliveConnectionsPerNamespace": 7})
    own = policy("n/p", SERVICE, backend={"keepAlive": keep_alive})
    compiled, messages = world(own, limits=ceiling)
    assert messages["p"].startswith("spec.backend.keepAlive.maxIdleConnections: 8 in addition to 0")
    [cluster] = compiled.clusters
    assert cluster.settings.connections is None


def compressed(*types: str, **fields: Any) -> Object:
    return {"compression": {"mode": "Enabled", "types": list(types) or ["text/a"], **fields}}


def broken_at(**limits: int) -> Object:
    return {"circuitBreaker": limits}


def ejecting(**fields: Any) -> Object:
    return {"healthChecks": {"passive": {"maxFailures": 1, **fields}}}


def checked(**fields: Any) -> Object:
    return {"healthChecks": {"active": fields}}


HASHED = {"loadBalancing": {"method": "Hash"}}


@pytest.mark.parametrize(
    ("target", "spec", "problem"),
    [
        (SERVICE, {"timeouts": {}}, "spec.timeouts: may not be set for a Service"),
        (ROUTE, {"backend": {}}, "spec.backend: may be set for Services only"),
        (
            ROUTE | {"kind": "TCPRoute"},
            {},
            f"spec.targetRefs[0]: kind {GROUP}/TCPRoute is not supported",
        ),
        (SERVICE | {"group": GROUP}, {}, f"spec.targetRefs[0]: kind {GROUP}/Service is not"),
        (ROUTE, {"client": {"maxBodySize": "1e99"}}, "spec.client.maxBodySize: must be a whole"),
        (ROUTE, {"client": {"maxBodySize": "a"}}, "spec.client.maxBodySize: invalid value 'a'"),
        (ROUTE, {"client": {"maxBodySize": "-1"}}, "spec.client.maxBodySize: must be a whole"),
        (ROUTE, {"timeouts": {"read": "1"}}, "spec.timeouts.read: invalid value '1'"),
        (ROUTE, {"timeouts": {"read": "10000h"}}, "spec.timeouts.read: must not be longer than"),
        (ROUTE, {"timeouts": {"send": "0s"}}, "spec.timeouts.send: must be greater than 0"),
        (
            ROUTE,
            {"client": {"keepAlive": {"maxRequests": 0}}},
            "spec.client.keepAlive.maxRequests: must be greater than 0",
        ),
        (SERVICE, {"compression": {"mode": "Enabled"}}, "spec.compression: may not be set for a"),
        (ROUTE, {"compression": {"mode": "On"}}, "spec.compression.mode: must be one of Enabled, "),
        (ROUTE, compressed("a b"), "spec.compression.types[0]: must match "),
        (
            ROUTE,
            compressed("a/" + "b" * 45),
            "spec.compression.types[0]: longer than 46 characters",
        ),
        (ROUTE, compressed("application/grpc+json"), "spec.compression.types[0]: messages of gRPC"),
        (ROUTE, compressed(minLength=29), "spec.compression.minLength: must be from 30 to "),
        (SERVICE, {"retries": {"attempts": 1}}, "spec.retries: may not be set for a Service"),
        (
            ROUTE | {"kind": "GRPCRoute"},
            {"retries": {"attempts": 1}},
            "spec.retries: may not be set for a GRPCRoute",
        ),
        (ROUTE, {"retries": {"attempts": 9}}, "spec.retries.attempts: must be from 0 to 8"),
        (ROUTE, {"retries": {**RETRIED, "codes": [200]}}, "spec.retries.codes: must be from 400"),
        (ROUTE, {"retries": {**RETRIED, "backoff": "0s"}}, "spec.retries.backoff: must be greater"),
        (ROUTE, {"retries": {**RETRIED, "backoff": "61s"}}, "spec.retries.backoff: must not be"),
        (ROUTE, {"responseBuffering": "On"}, "spec.responseBuffering: must be one of Enabled, "),
        (ROUTE, {"rateLimit": {"statusCode": 404}}, "spec.rateLimit.statusCode: must be one of 42"),
        (
            SERVICE,
            {"backend": broken_at(maxConnectionsPerEndpoint=0)},
            "spec.backend.circuitBreaker.maxConnectionsPerEndpoint: must be greater than 0",
        ),
        (
            SERVICE,
            {"backend": broken_at(maxPendingRequests=0)},
            "spec.backend.circuitBreaker.maxPendingRequests: must be greater than 0",
        ),
        (
            SERVICE,
            {"backend": ejecting(maxFailures=0)},
            "spec.backend.healthChecks.passive.maxFailures: must be from 1 to 1000",
        ),
        (
            SERVICE,
            {"backend": ejecting(ejectionTime="999ms")},
            "spec.backend.healthChecks.passive.ejectionTime: must be from 1s to 1h",
        ),
        (
            SERVICE,
            {"backend": checked(interval="9s")},
            "spec.backend.healthChecks.active.interval: must be from 10s to 1h",
        ),
        (
            SERVICE,
            {"backend": checked(timeout="11s")},
            "spec.backend.healthChecks.active.timeout: must be from 100ms to 10s",
        ),
        (
            SERVICE,
            {"backend": checked(path="/a b")},
            "spec.backend.healthChecks.active.path: must match ",
        ),
        (
            SERVICE,
            {"backend": checked(minSuccesses=0)},
            "spec.backend.healthChecks.active.minSuccesses: must be from 1 to 100",
        ),
        (SERVICE, {"backend": HASHED}, "spec.backend.loadBalancing.hashKey: must be set for"),
        (
            SERVICE,
            {"backend": {"loadBalancing": {"method": "ip_hash"}}},
            "spec.backend.loadBalancing.method: must be one of RoundRobin, ",
        ),
    ],
)
def test_invalid_value_is_named_with_its_field(target: Object, spec: Object, problem: str) -> None:
    [message] = problems(target, **spec)
    assert message.startswith(problem)


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ({"requests": 0}, "requests: must be from 1 to 1000000"),
        ({"burst": -1}, "burst: must be from 0 to 1000000"),
        ({"per": "Hour"}, "per: must be one of Second, Minute"),
        ({"key": {"type": "Cookie", "name": "a"}}, "key.type: must be one of ClientAddress, "),
        ({"key": {"type": "Header", "name": "a_b"}}, "key.name: must match "),
        ({"key": {"type": "Header", "name": "$host"}}, "key.name: must match "),
        ({"key": {"type": "QueryParameter"}}, "key.name: must match "),
        ({"key": {"type": "ClientAddress", "name": "a"}}, "key.name: may not be set for"),
    ],
)
def test_invalid_rule_is_named_with_its_field(rule: Object, problem: str) -> None:
    rules = [{"requests": 1, "per": "Second", **rule}]
    [message] = problems(rateLimit={"local": {"rules": rules}})
    assert message.startswith(f"spec.rateLimit.local.rules[0].{problem}")


@pytest.mark.parametrize(
    ("target", "spec", "admitted"),
    [
        (ROUTE, {"client": {"maxBodySize": 1024}}, True),
        (SERVICE, {"backend": HASHED}, False),
        (SERVICE, {"backend": {"loadBalancing": {"method": "Random"}}}, True),
        (SERVICE, {"timeouts": {"read": "1s"}}, False),
        (ROUTE, {"backend": {"keepAlive": {"maxRequests": 1}}}, False),
        (ROUTE | {"group": ""}, {}, False),
        (ROUTE | {"kind": "TLSRoute"}, {}, False),
        (ROUTE, {"timeouts": {"read": "1"}}, False),
        (ROUTE, {"client": {"maxBodySize": "1mb"}}, False),
        (SERVICE, {"backend": checked(path="/a?b")}, True),
        (SERVICE, {"backend": checked(path="a")}, False),
        (SERVICE, {"backend": checked(maxFailures=0)}, False),
        (SERVICE, {"backend": ejecting()}, True),
        (SERVICE, {"backend": ejecting(maxFailures=1001)}, False),
        (SERVICE, {"backend": {"healthChecks": {"passive": {"ejectionTime": "1s"}}}}, False),
        (SERVICE, {"backend": broken_at(maxConnections=1)}, True),
        (SERVICE, {"backend": broken_at(maxConnections=0)}, False),
        (ROUTE, {"retries": RETRIED}, True),
        (ROUTE, {"retries": {"attempts": 9}}, False),
        (ROUTE, {"retries": {"attempts": 1, "codes": [399]}}, False),
        (ROUTE | {"kind": "GRPCRoute"}, {"retries": {"attempts": 1}}, False),
        (SERVICE, {"retries": {"attempts": 1}}, False),
        (ROUTE, compressed("text/a", minLength=30), True),
        (ROUTE, compressed("text/*"), False),
        (ROUTE, compressed("a/" + "b" * 45), False),
        (ROUTE, compressed("application/grpc"), False),
        (ROUTE, compressed(minLength=29), False),
        (SERVICE, compressed(), False),
    ],
)
def test_api_server_admits_only_fields_of_the_kind_of_target(
    target: Object, spec: Object, admitted: bool
) -> None:
    assert is_admitted(json.loads(policy("n/p", target, **spec))) == admitted


@pytest.mark.parametrize(
    ("key", "admitted"),
    [
        ({"type": "ClientAddress"}, True),
        ({"type": "ClientAddress", "name": "a"}, False),
        ({"type": "Header", "name": "X-A"}, True),
        ({"type": "Header", "name": "x_a"}, False),
        ({"type": "Header"}, False),
        ({"type": "QueryParameter", "name": "x_a"}, True),
        ({"type": "QueryParameter", "name": "x-a"}, False),
    ],
)
def test_api_server_admits_only_names_that_both_proxies_read(key: Object, admitted: bool) -> None:
    rule = {"requests": 1, "per": "Second", "key": key}
    spec: Object = {"rateLimit": {"local": {"rules": [rule]}}}
    assert is_admitted(json.loads(policy("n/p", ROUTE, **spec))) == admitted
