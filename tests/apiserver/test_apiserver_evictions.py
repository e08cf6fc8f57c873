"""Evictions and the status of PodDisruptionBudgets."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.inprocess import Server
from fakes.patience import until_equal
from gatehouse.apis.resources import DEPLOYMENTS, DISRUPTION_BUDGETS, PODS
from gatehouse.kube import client as kube
from kube_base.types.objects import Object


class Cluster:
    """Pods, one budget, and evictions."""

    def __init__(self, server: Server, client: kube.Client) -> None:
        self._server, self._client = server, client

    async def workload(self, replicas: int) -> Object:
        """Create a Deployment. Return a reference to it."""
        metadata = {"name": "web", "namespace": "default"}
        template = {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "main", "image": "web"}]},
        }
        spec = {"selector": {"matchLabels": {"app": "web"}}, "template": template}
        obj = {"metadata": metadata, "spec": {**spec, "replicas": replicas}}
        uid = (await self._client.create(DEPLOYMENTS, obj))["metadata"]["uid"]
        return {**DEPLOYMENTS.type_meta, "name": "web", "uid": uid, "controller": True}

    async def pod(self, name: str, *, ready: bool = True, owner: Object | None = None) -> None:
        """Create a Pod that runs."""
        metadata: Object = {"name": name, "namespace": "default", "labels": {"app": "web"}}
        if owner is not None:
            metadata["ownerReferences"] = [owner]
        spec = {"containers": [{"name": "main", "image": "web"}]}
        await self._client.create(PODS, {"metadata": metadata, "spec": spec})
        condition = {"type": "Ready", "status": str(ready)}
        status = {"phase": "Running", "conditions": [condition]}
        await self._client.patch(PODS, name, {"status": status}, "default", "status")

    async def budget(self, **spec: Any) -> None:
        """Create or change the budget."""
        metadata = {"name": "guard", "namespace": "default"}
        spec = {"selector": {"matchLabels": {"app": "web"}}, **spec}
        await self._client.create(DISRUPTION_BUDGETS, {"metadata": metadata, "spec": spec})

    async def numbers(self, expected: int, healthy: int, desired: int, allowed: int) -> None:
        """Wait until the status of the budget has these numbers."""
        names = ("expectedPods", "currentHealthy", "desiredHealthy", "disruptionsAllowed")

        async def observed() -> list[int]:
            obj = await self._client.get(DISRUPTION_BUDGETS, "guard", "default")
            status = obj.get("status") or {}
            return [status.get(name, -1) for name in names]

        await until_equal(observed, [expected, healthy, desired, allowed])

    async def evict(self, name: str, query: str = "") -> tuple[int, str]:
        """Evict a Pod. Return the code, and the message of the cause."""
        path = f"/api/v1/namespaces/default/pods/{name}/eviction{query}"
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        async with (
            self._server.raw() as http,
            http.post(path, json=body) as response,
        ):
            status = await response.json()
        causes = (status.get("details") or {}).get("causes") or [{}]
        return response.status, causes[0].get("message", "")

    async def pods(self) -> list[str]:
        """Return the names of all Pods."""
        items = (await self._client.list(PODS, "default")).items
        return sorted(item["metadata"]["name"] for item in items)


@pytest.fixture
async def cluster(server: Server, client: kube.Client) -> Cluster:
    return Cluster(server, client)


async def test_evictions_stop_at_the_budget(cluster: Cluster) -> None:
    await cluster.budget(minAvailable=1)
    await cluster.numbers(0, 0, 1, 0)
    for name in ("a", "b"):
        await cluster.pod(name)
    await cluster.numbers(2, 2, 1, 1)
    assert await cluster.evict("a", "?dryRun=All") == (201, "")
    assert await cluster.evict("a") == (201, "")
    await cluster.numbers(1, 1, 1, 0)
    needs = "The disruption budget guard needs 1 healthy pods and has 1 currently"
    assert await cluster.evict("b") == (429, needs)
    assert await cluster.evict("b", "?dryRun=All") == (429, needs)
    assert await cluster.pods() == ["b"]
    await cluster.pod("c")
    await cluster.numbers(2, 2, 1, 1)
    assert await cluster.evict("b") == (201, "")
    assert await cluster.pods() == ["c"]


@pytest.mark.parametrize(
    ("spec", "desired"),
    [
        ({"minAvailable": 3}, 3),
        ({"minAvailable": "50%"}, 2),
        ({"maxUnavailable": 1}, 2),
        ({"maxUnavailable": "50%"}, 1),
        ({"maxUnavailable": 9}, 0),
        ({}, 1),
    ],
)
async def test_budget_counts_the_pods_that_must_stay(
    cluster: Cluster, spec: dict[str, Any], desired: int
) -> None:
    for name in ("a", "b"):
        await cluster.pod(name)
    await cluster.pod("unready", ready=False)
    await cluster.budget(**spec)
    await cluster.numbers(3, 2, desired, max(2 - desired, 0))


async def test_unready_pod_is_evicted_if_the_budget_permits(cluster: Cluster) -> None:
    await cluster.budget(minAvailable=1, unhealthyPodEvictionPolicy="AlwaysAllow")
    await cluster.pod("a", ready=False)
    await cluster.numbers(1, 0, 1, 0)
    assert await cluster.evict("a") == (201, "")
    await cluster.pod("b", ready=False)
    await cluster.pod("c")
    await cluster.numbers(2, 1, 1, 0)
    assert (await cluster.evict("c"))[0] == 429
    assert await cluster.evict("b") == (201, "")
    assert await cluster.pods() == ["c"]


async def test_unready_pod_is_protected_while_the_budget_is_short(cluster: Cluster) -> None:
    await cluster.budget(minAvailable=1)
    await cluster.pod("a", ready=False)
    await cluster.numbers(1, 0, 1, 0)
    assert (await cluster.evict("a"))[0] == 429
    assert await cluster.pods() == ["a"]


async def test_missing_replica_counts_as_unavailable(cluster: Cluster) -> None:
    workload = await cluster.workload(replicas=3)
    for name in ("a", "b", "c"):
        await cluster.pod(name, owner=workload)
    await cluster.budget(maxUnavailable=1)
    await cluster.numbers(3, 3, 2, 1)
    assert await cluster.evict("a") == (201, "")
    await cluster.numbers(3, 2, 2, 0)
    assert (await cluster.evict("b"))[0] == 429
    assert await cluster.pods() == ["b", "c"]
