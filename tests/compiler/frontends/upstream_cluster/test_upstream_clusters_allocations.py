"""RateLimitConditions for limits that data planes share."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.upstream_worlds import EVERYTHING, GATEWAY, World
from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.frontends.inputs import limit_use_key, replicas_key, sharing_key
from gatehouse.compiler.frontends.upstream_cluster import rate_limit_conditions
from gatehouse.compiler.frontends.upstream_cluster.allocations import MAX_PER_DATA_PLANE_OBJECTS
from gatehouse.compiler.ir.kube_apiserver import DividedLimit, InFlight
from gatehouse.incremental.query import Key

Object = dict[str, Any]

GATE = {"proxy.kubegateway.io/feature-gates": "GlobalRateLimiter=true"}
OTHER: Key = ("Gateway", "ns", "other")
IN_FLIGHT: Object = {
    "name": "flight", "strategy": "globalAllocate",
    "maxRequestsInflight": {"max": 1}, "globalMaxRequestsInflight": {"max": 10},
}  # fmt: skip
BUCKET: Object = {
    "name": "bucket", "strategy": "globalCount",
    "tokenBucket": {"qps": 1, "burst": 1}, "globalTokenBucket": {"qps": 8, "burst": 9},
}  # fmt: skip
LOCAL: Object = {"name": "local", "maxRequestsInflight": {"max": 7}}


def shared(world: World, *schemas: Object, name: str = "a.example", **more: Any) -> Key:
    """Add a cluster with these schemas, each used by a policy."""
    policies = [
        {"rules": [EVERYTHING], "flowControlSchemaName": schema["name"]} for schema in schemas
    ]
    more = {"annotations": GATE, "dispatchPolicies": policies, **more}
    return world.cluster(name, flowControl={"flowControlSchemas": [*schemas]}, **more)


def told(world: World, key: Key) -> dict[str, Object]:
    """Return the RateLimitConditions of a cluster by name."""
    world.run()
    allocation = world.allocated.get(key)
    return {} if allocation is None else dict(rate_limit_conditions(key[2], allocation))


@pytest.fixture
def world() -> World:
    clusters = World(gateway_api.ControllerSettings(bind="any", counter="counter:8081"))
    clusters.gateway()
    clusters.engine.commit({replicas_key(GATEWAY): ("p-1", "p-2", "p-3")})
    return clusters


def test_one_condition_object_per_cluster_and_per_data_plane(world: World) -> None:
    conditions = told(world, shared(world, IN_FLIGHT, LOCAL, BUCKET))
    assert list(conditions) == [
        f"a.example.{suffix}" for suffix in ("state", "ns.p-1", "ns.p-2", "ns.p-3")
    ]
    state, first = conditions["a.example.state"], conditions["a.example.ns.p-1"]
    assert state["spec"] == {
        "upstreamCluster": "a.example",
        "limitItemConfigurations": [
            {"name": "bucket", "tokenBucket": {"qps": 8, "burst": 9}},
            {"name": "flight", "maxRequestsInflight": {"max": 10}},
        ],
    }
    # Three times three: ten cannot be divided by three.
    assert state["status"] == {
        "limitItemStatuses": [
            {"name": "bucket", "tokenBucket": {"qps": 8, "burst": 9}},
            {"name": "flight", "maxRequestsInflight": {"max": 9}},
        ]
    }
    assert first["spec"] == {
        "upstreamCluster": "a.example",
        "instance": "ns.p-1",
        "limitItemConfigurations": [
            {"name": "bucket", "strategy": "globalCount", "tokenBucket": {"qps": 8, "burst": 9}},
            {"name": "flight", "strategy": "globalAllocate", "maxRequestsInflight": {"max": 3}},
        ],
    }
    # The controller does not know the usage of a data plane, so the status has none.
    assert "status" not in first
    assert first["metadata"]["labels"] == {
        "app.kubernetes.io/managed-by": "gatehouse",
        "proxy.kubegateway.io/ratelimitcondition.instance": "ns.p-1",
    }


@pytest.mark.parametrize(
    ("schemas", "more"),
    [
        ([LOCAL], {}),
        ([IN_FLIGHT, BUCKET], {"annotations": {}}),
        ([{**IN_FLIGHT, "strategy": "local"}], {}),
        ([{**IN_FLIGHT, "globalMaxRequestsInflight": {"max": 0}}], {}),
        ([{**LOCAL, "strategy": "globalCount"}], {}),
        ([IN_FLIGHT], {"dispatchPolicies": [{"rules": [EVERYTHING]}]}),
        ([{**LOCAL, "name": "flight"}, IN_FLIGHT], {}),
    ],
    ids=["local", "gate", "strategy", "refused", "nothing global", "unused", "name taken"],
)
def test_no_condition_objects_without_shared_limits(
    world: World, schemas: list[Object], more: Object
) -> None:
    assert told(world, shared(world, *schemas, **more)) == {}


def test_token_bucket_is_not_shared_without_a_counter() -> None:
    world = World()
    world.gateway()
    assert told(world, shared(world, BUCKET)) == {}


def test_allocation_equals_the_limits_of_data_planes(world: World) -> None:
    """All Gateways share a limit, although none knows how much another one uses."""
    key = shared(world, IN_FLIGHT)
    world.gateway("other")
    world.engine.commit({replicas_key(OTHER): ("q-1", "q-2")})
    items = [
        condition["spec"]["limitItemConfigurations"][0]["maxRequestsInflight"]
        for name, condition in told(world, key).items()
        if not name.endswith(".state")
    ]
    assert items == [{"max": 2}] * 5
    for gateway in (GATEWAY, OTHER):
        assert world.served(gateway)["a.example"].schemas[0].limit == InFlight(2)


def test_allocation_follows_the_use_of_data_planes(world: World) -> None:
    key = shared(world, {**IN_FLIGHT, "globalMaxRequestsInflight": {"max": 100}})
    sharing = frozenset(("p-1", "p-2"))
    use = {"p-1": {"flight": 90}, "p-2": {"flight": 0}}
    world.engine.commit({replicas_key(GATEWAY): ("p-1", "p-2"), sharing_key(GATEWAY): sharing})
    world.engine.commit({limit_use_key(GATEWAY, "a.example"): use})
    items = {
        name: condition["spec"]["limitItemConfigurations"][0]["maxRequestsInflight"]["max"]
        for name, condition in told(world, key).items()
    }
    shares = {"p-1": 92, "p-2": 7}
    assert items == {"a.example.state": 100, "a.example.ns.p-1": 92, "a.example.ns.p-2": 7}
    (schema,) = world.served(GATEWAY)["a.example"].schemas
    assert schema.divided == DividedLimit(100, 5, tuple(shares.items()))
    # Data planes whose agents serve no shares have the even one.
    assert schema.limit == InFlight(50)


def test_nothing_is_allocated_without_data_planes(world: World) -> None:
    world.engine.commit({replicas_key(GATEWAY): ()})
    (state,) = told(world, shared(world, IN_FLIGHT, BUCKET)).values()
    assert state["status"]["limitItemStatuses"] == [
        {"name": "bucket", "tokenBucket": {"qps": 0, "burst": 0}},
        {"name": "flight", "maxRequestsInflight": {"max": 0}},
    ]


def test_only_the_total_is_written_for_very_many_data_planes(world: World) -> None:
    world.engine.commit(
        {replicas_key(GATEWAY): tuple(f"p-{n:04}" for n in range(MAX_PER_DATA_PLANE_OBJECTS + 1))}
    )
    assert list(told(world, shared(world, IN_FLIGHT))) == ["a.example.state"]


def test_names_and_labels_are_never_too_long(world: World) -> None:
    pods = tuple(f"{'p' * 240}-{n}" for n in range(2))
    world.engine.commit({replicas_key(GATEWAY): pods})
    conditions = told(world, shared(world, IN_FLIGHT))
    assert len(conditions) == 3
    assert {name for name in conditions if len(name) > 253} == set()
    assert [condition["spec"].get("instance") for condition in conditions.values()][1:] == [
        f"ns.{pod}" for pod in pods
    ]
    for condition in conditions.values():
        assert all(len(value) <= 63 for value in condition["metadata"]["labels"].values())
