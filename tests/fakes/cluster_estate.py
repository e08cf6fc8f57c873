"""Set-up that fault tests on a :class:`~fakes.cluster.Cluster` share: objects and questions."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fakes.builds import Build
from fakes.cluster import NAME, NAMESPACE, Cluster
from fakes.installation import HOST_NET, get, hello, route
from fakes.patience import until
from gatehouse.apis import resources
from gatehouse.kube import client as kube

CLUSTER_MARKS = [
    pytest.mark.process,
    pytest.mark.timeout(400),
    pytest.mark.skipif(
        os.geteuid() != 0 or not (shutil.which("ip") and shutil.which("nft")),
        reason="needs root, ip and nft",
    ),
]

CONTROLLERS = f"app.kubernetes.io/name={NAME}"
PLANES = "gateway.networking.k8s.io/gateway-name=web"


@contextlib.asynccontextmanager
async def running_cluster(builds: dict[str, Build]) -> AsyncIterator[Cluster]:
    """Run a cluster. ``builds``: by the tag of their images."""
    # Short, for the sake of Unix sockets.
    with tempfile.TemporaryDirectory(prefix="gh-") as directory:
        cluster = Cluster(Path(directory), builds, f"{HOST_NET}.0/25")
        try:
            await cluster.start()
            yield cluster
        finally:
            cluster.show_logs()
            cluster.stop()


def reachable(cluster: Cluster, gateway_class: str = "gatehouse-nginx") -> list[dict[str, Any]]:
    """Return the example objects with a backend that Pods reach, and an exact route."""
    manifests = with_exact_route(hello(gateway_class))
    for manifest in manifests:
        if manifest["kind"] == "EndpointSlice":
            manifest["endpoints"] = [{"addresses": [cluster.gateway]}]
    return manifests


def with_exact_route(manifests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Let the route of the example take one path, so that a new route is seen."""
    for manifest in manifests:
        if manifest["kind"] == "HTTPRoute":
            exact = {"path": {"type": "Exact", "value": "/"}}
            manifest["spec"]["rules"][0]["matches"] = [exact]
    return manifests


async def answered(where: str, path: str) -> int:
    """Return the status of the response; 0 without one."""
    with contextlib.suppress(OSError):
        return (await get(where, path))[0]
    return 0


async def until_answered(where: str, path: str, status: int = 200) -> None:
    """Wait until a path answers again and again, whichever Pod gets the request."""

    async def everywhere() -> bool:
        return all([await answered(where, path) == status for _ in range(30)])

    await until(everywhere)


async def add_route(client: kube.Client, where: str, path: str) -> None:
    """Add a route, and wait until all Pods serve it."""
    await client.create(resources.HTTP_ROUTES, route(path[1:], path))
    await until_answered(where, path)


def is_ready(pod: dict[str, Any]) -> bool:
    """Return whether a Pod is Ready."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(
        condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions
    )


async def ready_pods(client: kube.Client, namespace: str, labels: str) -> set[str]:
    """Return the UIDs of Pods that are ready."""
    pods = await client.list(resources.PODS, namespace, label_selector=labels)
    return {pod["metadata"]["uid"] for pod in pods.items if is_ready(pod)}


async def delete_controllers(client: kube.Client) -> set[str]:
    """Delete the Pods of the controller. Return the UIDs of those that were ready."""
    before = await ready_pods(client, NAMESPACE, CONTROLLERS)
    pods = await client.list(resources.PODS, NAMESPACE, label_selector=CONTROLLERS)
    for pod in pods.items:
        await client.delete(resources.PODS, pod["metadata"]["name"], NAMESPACE)
    return before


async def until_ready(
    client: kube.Client, namespace: str, labels: str, count: int, *, besides: set[str]
) -> set[str]:
    """Wait until exactly ``count`` Pods are ready and none is among ``besides``. Return them."""
    pods: set[str] = set()

    async def are_ready() -> bool:
        nonlocal pods
        pods = await ready_pods(client, namespace, labels)
        return len(pods) == count and not pods & besides

    await until(are_ready)
    return pods
