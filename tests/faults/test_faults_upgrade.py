"""From one version to the next under traffic: controllers first, then every data plane.

Two builds with different versions run as Pods of Deployments that roll as in a cluster. Clients
with new and with kept connections, and over HTTP/2, ask all the time through the Service's address.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fakes.builds import Build, build
from fakes.cluster import NAME, NAMESPACE, Cluster
from fakes.installation import (
    BACKEND,
    HOST_NET,
    PORT,
    Installation,
    address,
    apply,
    get,
    hello,
    route,
    until,
)
from fakes.keepalive_load import Load
from gatehouse.apis import resources
from gatehouse.kube import client as kube
from gatehouse.standalone import echo

pytestmark = [
    pytest.mark.process,
    pytest.mark.long,
    pytest.mark.timeout(400),
    pytest.mark.skipif(
        os.geteuid() != 0 or not (shutil.which("ip") and shutil.which("nft")),
        reason="needs root, ip and nft",
    ),
]

OLD, NEW = "0.1.0", "0.2.0"


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Build]:
    directory = tmp_path_factory.mktemp("builds")
    made = {version: build(version, directory / version) for version in (OLD, NEW)}
    for version, each in made.items():
        assert each.reported_version() == f"gatehouse, version {version}"
    return made


@pytest.fixture
async def cluster(builds: dict[str, Build]) -> AsyncIterator[Cluster]:
    # Short, for the sake of Unix sockets.
    with tempfile.TemporaryDirectory(prefix="gh-") as directory:
        made = Cluster(Path(directory), builds, f"{HOST_NET}.0/25")
        try:
            await made.start()
            yield made
        finally:
            made.show_logs()
            made.stop()


class Pods:
    """The Pods of one Deployment, by their images' tags."""

    def __init__(self, client: kube.Client, namespace: str, labels: str) -> None:
        self._client, self._namespace, self._labels = client, namespace, labels

    async def tags(self, *, ready: bool = False) -> list[str]:
        pods = await self._client.list(resources.PODS, self._namespace, label_selector=self._labels)
        return sorted(
            pod["spec"]["containers"][0]["image"].rpartition(":")[2]
            for pod in pods.items
            if not ready or _is_ready(pod)
        )


class Up:
    """Installation on one machine, of successive builds."""

    def __init__(self, directory: Path) -> None:
        self.installation = Installation(directory)

    def start(self, build: Build) -> None:
        python = str(build.directory / "bin" / "python")
        self.installation.command = (python, "-m", "gatehouse")
        self.installation.environment = {**os.environ, **build.environment}
        self.installation.start()

    def leave(self) -> int:
        """End it, but for its data planes."""
        process = self.installation.process
        assert process is not None
        process.send_signal(signal.SIGUSR2)
        return process.wait(60)

    def proxies(self, executable: str) -> set[int]:
        """Return the pids of its running proxies."""
        directory = str(self.installation.state)
        return {
            int(path.parent.name)
            for path in Path("/proc").glob("[0-9]*/cmdline")
            if (text := _text(path)) and executable in text.split("\0")[0] and directory in text
        }

    def agent_build(self) -> str:
        """Return the directory of the build of the running agent."""
        return _text(Path(f"/proc/{self.installation.agent().pid}/cmdline")).split("\0")[0]


def _text(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(errors="replace")
    return ""


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
            async with echo.serve({BACKEND: "app"}):
                await _upgrade_up(up, builds[NEW], gateway_class, proxy)
        finally:
            up.installation.stop()


async def _upgrade_up(up: Up, new: Build, gateway_class: str, proxy: str) -> None:
    client = await up.installation.client()
    await apply(client, _exact(hello(gateway_class)))
    where = await address(client)
    await until(lambda: _answered(where, "/"))
    await client.__aexit__(None, None, None)
    masters = up.proxies(proxy)
    assert masters
    load = Load(where, PORT)
    async with load.running():
        assert await asyncio.to_thread(up.leave) == 0
        before = load.answered.total()
        await until(lambda: _more(load, before + 100))
        up.start(new)
        client = await up.installation.client()

        async def upgraded() -> bool:
            with contextlib.suppress(AssertionError):
                return up.agent_build().startswith(str(new.directory))
            return False

        await until(upgraded)
        await _change(client, where, "/after-upgrade")
        await client.__aexit__(None, None, None)
    print(dict(load.answered), dict(load.failed), load.refused_unprocessed)
    assert not load.failed
    assert masters & up.proxies(proxy)


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


@pytest.mark.parametrize("gateway_class", ["gatehouse-nginx", "gatehouse-envoy"])
async def test_upgrade_drops_no_request_and_delays_no_change(
    cluster: Cluster, gateway_class: str
) -> None:
    async with (
        kube.Client.from_kubeconfig(cluster.server.kubeconfig) as client,
        echo.serve({(cluster.gateway, 9080): "app"}),
    ):
        await cluster.install(client, OLD)
        await apply(client, _estate(cluster, gateway_class))
        where = await address(client)
        await until(lambda: _answered(where, "/"))
        load = Load(where, PORT)
        async with load.running():
            await _upgrade(client, cluster, where, load)
        print(dict(load.answered), dict(load.failed), load.refused_unprocessed)
        assert not load.failed
        assert min(load.answered[kind] for kind in ("new", "kept", "h2")) > 500


async def _upgrade(client: kube.Client, cluster: Cluster, where: str, load: Load) -> None:
    controllers = Pods(client, NAMESPACE, f"app.kubernetes.io/name={NAME}")
    planes = Pods(client, "default", "gateway.networking.k8s.io/gateway-name=web")
    assert await planes.tags(ready=True) == [OLD]

    await _roll(client, cluster.deployment(NEW, OLD))
    await _change(client, where, "/during-controllers")
    await until(lambda: _are(controllers, [NEW, NEW]), 60)
    await until(lambda: _are(controllers, [NEW, NEW], ready=True), 60)
    await _change(client, where, "/after-controllers")
    # Nothing of a data plane is touched by another controller.
    assert await planes.tags() == [OLD]

    await _roll(client, cluster.deployment(NEW, NEW))
    await until(lambda: _are(planes, [OLD, NEW]), 90)
    await _change(client, where, "/during-data-planes")
    await until(lambda: _are(planes, [NEW], ready=True), 90)
    await _change(client, where, "/after-data-planes")
    await until(lambda: _are(planes, [NEW]), 60)
    before = load.answered.total()
    await until(lambda: _more(load, before + 300))


async def _more(load: Load, count: int) -> bool:
    return load.answered.total() > count


async def _are(pods: Pods, tags: list[str], *, ready: bool = False) -> bool:
    return await pods.tags(ready=ready) == tags


async def _roll(client: kube.Client, wanted: dict[str, Any]) -> None:
    patch = {"spec": wanted["spec"]}
    await client.patch(resources.DEPLOYMENTS, NAME, patch, NAMESPACE)


async def _change(client: kube.Client, where: str, path: str) -> None:
    """Add a route; it is there when it answers again and again, whichever Pod is asked."""
    await client.create(resources.HTTP_ROUTES, route(path[1:], path))

    async def everywhere() -> bool:
        return all([await _answered(where, path) for _ in range(30)])

    await until(everywhere, 60)


async def _answered(where: str, path: str) -> bool:
    with contextlib.suppress(OSError):
        return (await get(where, path))[1] == "app"
    return False


def _estate(cluster: Cluster, gateway_class: str) -> list[dict[str, Any]]:
    """Return the example objects with a backend that Pods reach."""
    result = _exact(hello(gateway_class))
    for each in result:
        if each["kind"] == "EndpointSlice":
            each["endpoints"] = [{"addresses": [cluster.gateway]}]
    return result


def _exact(manifests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Have the example's route take one path, so that a new route is seen."""
    for each in manifests:
        if each["kind"] == "HTTPRoute":
            exact = {"path": {"type": "Exact", "value": "/"}}
            each["spec"]["rules"][0]["matches"] = [exact]
    return manifests
