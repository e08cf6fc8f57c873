"""Settings of Services in TrafficPolicies: endpoints, connections, limits and health checks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fakes.hostile_objects import is_admitted
from fakes.policy_manifests import ROUTE, Object
from fakes.traffic_policy_world import MIB, SERVICE, broken_at, policy, problems, world
from gatehouse.compiler.ir import settings as ir
from gatehouse.compiler.ir.settings import Attribute, Balancing


def ejecting(**fields: Any) -> Object:
    return {"healthChecks": {"passive": {"maxFailures": 1, **fields}}}


def checked(**fields: Any) -> Object:
    return {"healthChecks": {"active": fields}}


HASHED = {"loadBalancing": {"method": "Hash"}}


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


def test_idle_connections_claim_those_of_the_namespace() -> None:
    keep_alive = {"maxIdleConnections": 8}
    ceiling = json.dumps({"keepAliveConnectionsPerNamespace": 7})
    own = policy("n/p", SERVICE, backend={"keepAlive": keep_alive})
    compiled, messages = world(own, limits=ceiling)
    assert messages["p"].startswith("spec.backend.keepAlive.maxIdleConnections: 8 in addition to 0")
    [cluster] = compiled.clusters
    assert cluster.settings.connections is None


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


@pytest.mark.parametrize(
    ("target", "spec", "problem"),
    [
        (ROUTE, {"backend": {}}, "spec.backend: may be set for Services only"),
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
    ("target", "spec", "admitted"),
    [
        (SERVICE, {"backend": HASHED}, False),
        (SERVICE, {"backend": {"loadBalancing": {"method": "Random"}}}, True),
        (ROUTE, {"backend": {"keepAlive": {"maxRequests": 1}}}, False),
        (SERVICE, {"backend": checked(path="/a?b")}, True),
        (SERVICE, {"backend": checked(path="a")}, False),
        (SERVICE, {"backend": checked(maxFailures=0)}, False),
        (SERVICE, {"backend": ejecting()}, True),
        (SERVICE, {"backend": ejecting(maxFailures=1001)}, False),
        (SERVICE, {"backend": {"healthChecks": {"passive": {"ejectionTime": "1s"}}}}, False),
        (SERVICE, {"backend": broken_at(maxConnections=1)}, True),
        (SERVICE, {"backend": broken_at(maxConnections=0)}, False),
    ],
)
def test_api_server_admits_only_fields_of_the_kind_of_target(
    target: Object, spec: Object, admitted: bool
) -> None:
    assert is_admitted(json.loads(policy("n/p", target, **spec))) == admitted
