"""From one version to the next under traffic: controllers first, then every data plane.

Two builds with different versions run as Pods of Deployments that roll as in a cluster. Clients
with new and with kept connections, and over HTTP/2, ask all the time through the Service's address.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fakes.builds import Build, build
from fakes.cluster import NAME, NAMESPACE, Cluster
from fakes.cluster_estate import (
    CLUSTER_MARKS,
    CONTROLLERS,
    PLANES,
    add_route,
    is_ready,
    reachable,
    running_cluster,
    until_answered,
    with_exact_route,
)
from fakes.installation import BACKEND, PORT, address, apply, hello
from fakes.keepalive_load import Load
from fakes.patience import until
from fakes.upgraded_machine import Up
from gatehouse.apis import resources
from gatehouse.kube import client as kube
from gatehouse.standalone import echo

pytestmark = [*CLUSTER_MARKS, pytest.mark.long]

OLD, NEW = "0.1.0", "0.2.0"


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Build]:
    directory = tmp_path_factory.mktemp("builds")
    installed = {version: build(version, directory / version) for version in (OLD, NEW)}
    for version, installation in installed.items():
        assert installation.reported_version() == f"gatehouse, version {version}"
    return installed


@pytest.fixture
async def cluster(builds: dict[str, Build]) -> AsyncIterator[Cluster]:
    async with running_cluster(builds) as result:
        yield result


class Pods:
    """The Pods of one Deployment, by their images' tags."""

    def __init__(self, client: kube.Client, namespace: str, labels: str) -> None:
        self._client, self._namespace, self._labels = client, namespace, labels

    async def tags(self, *, ready: bool = False) -> list[str]:
        pods = await self._client.list(resources.PODS, self._namespace, label_selector=self._labels)
        return sorted(
            pod["spec"]["containers"][0]["image"].rpartition(":")[2]
            for pod in pods.items
            if not ready or is_ready(pod)
        )


@pytest.mark.parametrize(
    ("gateway_class", "proxy"), [("gatehouse-nginx", "nginx"), ("gatehouse-envoy", "envoy")]
)
async def test_up_upgrade_keeps_proxies_running(
    builds: dict[str, Build], gateway_class: str, proxy: str
) -> None:
    with tempfile.TemporaryDirectory(prefix="gh-") as directory:
        up = Up(Path(directory))
        up.start(builds[OLD])
        try:
            async with echo.serve_echo({BACKEND: "app"}):
                await _upgrade_up(up, builds[NEW], gateway_class, proxy)
        finally:
            up.installation.stop()


async def _upgrade_up(up: Up, new: Build, gateway_class: str, proxy: str) -> None:
    async with up.installation.client() as client:
        await apply(client, with_exact_route(hello(gateway_class)))
        where = await address(client)
        await until_answered(where, "/")
    masters = up.proxies(proxy)
    assert masters
    load = Load(where, PORT)
    async with load.running():
        assert await asyncio.to_thread(up.leave) == 0
        before = load.answered.total()
        await until(lambda: _more(load, before + 100))
        up.start(new)
        async with up.installation.client() as client:

            async def upgraded() -> bool:
                with contextlib.suppress(AssertionError):
                    return up.agent_build().startswith(str(new.directory))
                return False

            await until(upgraded)
            await add_route(client, where, "/after-upgrade")
    print(dict(load.answered), dict(load.failed), load.refused_unprocessed)
    assert not load.failed
    assert masters & up.proxies(proxy)


@pytest.mark.parametrize("gateway_class", ["gatehouse-nginx", "gatehouse-envoy"])
async def test_upgrade_drops_no_request_and_delays_no_change(
    cluster: Cluster, gateway_class: str
) -> None:
    async with (
        kube.Client.from_kubeconfig(cluster.server.kubeconfig) as client,
        echo.serve_echo({(cluster.gateway, 9080): "app"}),
    ):
        await cluster.install(client, OLD)
        await apply(client, reachable(cluster, gateway_class))
        where = await address(client)
        await until_answered(where, "/")
        load = Load(where, PORT)
        async with load.running():
            await _upgrade(client, cluster, where, load)
        print(dict(load.answered), dict(load.failed), load.refused_unprocessed)
        assert not load.failed
        assert min(load.answered[kind] for kind in ("new", "kept", "h2")) > 500


async def _upgrade(client: kube.Client, cluster: Cluster, where: str, load: Load) -> None:
    controllers = Pods(client, NAMESPACE, CONTROLLERS)
    planes = Pods(client, "default", PLANES)
    assert await planes.tags(ready=True) == [OLD]

    await _roll(client, cluster.deployment(NEW, OLD))
    await add_route(client, where, "/during-controllers")
    await until(lambda: _are(controllers, [NEW, NEW]))
    await until(lambda: _are(controllers, [NEW, NEW], ready=True))
    await add_route(client, where, "/after-controllers")
    # Nothing of a data plane is touched by another controller.
    assert await planes.tags() == [OLD]

    await _roll(client, cluster.deployment(NEW, NEW))
    await until(lambda: _are(planes, [OLD, NEW]))
    await add_route(client, where, "/during-data-planes")
    await until(lambda: _are(planes, [NEW], ready=True))
    await add_route(client, where, "/after-data-planes")
    await until(lambda: _are(planes, [NEW]))
    before = load.answered.total()
    await until(lambda: _more(load, before + 300))


async def _more(load: Load, count: int) -> bool:
    return load.answered.total() > count


async def _are(pods: Pods, tags: list[str], *, ready: bool = False) -> bool:
    return await pods.tags(ready=ready) == tags


async def _roll(client: kube.Client, desired: dict[str, Any]) -> None:
    patch = {"spec": desired["spec"]}
    await client.patch(resources.DEPLOYMENTS, NAME, patch, NAMESPACE)
