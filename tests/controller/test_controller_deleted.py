"""A controller process recreates deleted objects of a data plane, of every kind."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from fakes import patience
from fakes.loopback import free_port
from fakes.process import ApiServer
from gatehouse.apis.resources import DAEMON_SETS, GATEWAYS, NGINX_PROXIES, SECRETS
from gatehouse.controller.provisioner import names
from gatehouse.controller.provisioner.reconcile import OWNED_KINDS
from gatehouse.kube import client as kube
from gatehouse.standalone import pki
from kube_base.types.resource import Resource

pytestmark = pytest.mark.process

DEPLOYMENT: dict[str, Any] = {
    "autoscaling": {"enable": True, "minReplicas": 1, "maxReplicas": 3},
    "podDisruptionBudget": {"minAvailable": 1},
}
GATEWAY_OF = {kind: "daemon" if kind is DAEMON_SETS else "web" for kind in OWNED_KINDS}
"""Gateway that has an object of each kind."""

STEADY_LOOKS = 20
"""Number of equal looks at the API server, which answers the controller meanwhile."""

Uids = dict[tuple[str, str], str]
"""The uid of each object that a Gateway owns, by kind and name."""


class Controller:
    """A controller process over an API server, which can be stopped and started again."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._agents = f"127.0.0.1:{free_port()}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        state = self._server.state
        channel = state.pki.leaf(pki.CHANNEL)
        words = (
            *("controller", "--kubeconfig", str(state.controller_kubeconfig)),
            *("--agent-bind-address", self._agents, "--agent-advertise-address", self._agents),
            *("--tls-cert-file", str(channel.cert), "--tls-private-key-file", str(channel.key)),
            *("--agent-ca-file", str(state.pki.ca().cert)),
            *(
                "--data-plane-network-policy",
                '{"enable":true}',
                "--copy-secret",
                "pull=default/registry",
            ),
        )
        with (state.directory / "controller.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "gatehouse", *words], stdout=log, stderr=log
            )

    def stop(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(patience.SECONDS) == 0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    api_server = ApiServer(tmp_path_factory.mktemp("server") / "state")
    api_server.start()
    try:
        yield api_server
    finally:
        api_server.kill()


@pytest.fixture(scope="module")
def controller(server: ApiServer) -> Iterator[Controller]:
    process = Controller(server)
    process.start()
    try:
        yield process
    finally:
        process.stop()


@pytest.fixture
async def client(server: ApiServer, controller: Controller) -> AsyncIterator[kube.Client]:
    """Return a client of an API server with two Gateways whose objects are all there."""
    async with kube.Client.from_kubeconfig(server.kubeconfig) as kube_client:
        for name, kubernetes in (
            ("web", {"deployment": DEPLOYMENT}),
            ("daemon", {"daemonSet": {}}),
        ):
            await _create(kube_client, NGINX_PROXIES, name, spec={"kubernetes": kubernetes})
            parameters = {"group": "gateway.nginx.org", "kind": "NginxProxy", "name": name}
            spec = {
                "gatewayClassName": "gatehouse-nginx",
                "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}],
                "infrastructure": {"parametersRef": parameters},
            }
            await _create(kube_client, GATEWAYS, name, spec=spec)
        data = {".dockerconfigjson": "e30="}
        await _create(
            kube_client, SECRETS, "registry", type="kubernetes.io/dockerconfigjson", data=data
        )
        for gateway in ("web", "daemon"):
            kinds = {kind.kind for kind, owner in GATEWAY_OF.items() if owner == gateway}
            await _until(
                kube_client, gateway, lambda now, kinds=kinds: kinds <= {kind for kind, _ in now}
            )
        yield kube_client


async def _create(client: kube.Client, resource: Resource, name: str, **fields: Any) -> None:
    try:
        await client.create(
            resource, {"metadata": {"name": name, "namespace": "default"}, **fields}
        )
    except kube.AlreadyExists:
        return


async def _owned(client: kube.Client, gateway: str) -> Uids:
    """Return what a Gateway owns and is not being deleted."""
    label = f"{names.GATEWAY_NAME}={gateway},{names.MANAGED_BY_LABEL}={names.FIELD_MANAGER}"
    return {
        (resource.kind, obj["metadata"]["name"]): obj["metadata"]["uid"]
        for resource in OWNED_KINDS
        for obj in (await client.list(resource, "default", label_selector=label)).items
        if "deletionTimestamp" not in obj["metadata"]
    }


async def _until(client: kube.Client, gateway: str, holds: Any) -> Uids:
    """Wait until what a Gateway owns is as wanted and stays so for several looks."""
    uids, looks = Uids(), 0

    async def steady() -> bool:
        nonlocal uids, looks
        before, uids = uids, await _owned(client, gateway)
        looks = looks + 1 if holds(uids) and uids == before else 0
        return looks == STEADY_LOOKS

    try:
        await patience.until(steady)
    except TimeoutError:
        raise AssertionError(f"{gateway} owns {uids}") from None
    return uids


async def _delete(client: kube.Client, kind: str, name: str, uid: str, propagation: str) -> None:
    resource = next(owned_kind for owned_kind in OWNED_KINDS if owned_kind.kind == kind)
    await client.delete(resource, name, "default", uid=uid, propagation=propagation)


@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
@pytest.mark.parametrize("resource", OWNED_KINDS, ids=lambda resource: resource.kind)
async def test_deleted_object_is_recreated(
    client: kube.Client, resource: Resource, propagation: str
) -> None:
    gateway = GATEWAY_OF[resource]
    before = await _until(client, gateway, bool)
    places = [place for place in before if place[0] == resource.kind]
    assert places
    for kind, name in places:
        await _delete(client, kind, name, before[(kind, name)], propagation)
    after = await _until(
        client,
        gateway,
        lambda now: (
            now.keys() == before.keys() and all(now[place] != before[place] for place in places)
        ),
    )
    # Nothing else of the Gateway is replaced.
    assert {place for place in before if before[place] != after[place]} == set(places)


@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
async def test_started_controller_recreates_objects_deleted_while_stopped(
    client: kube.Client, controller: Controller, propagation: str
) -> None:
    before = {gateway: await _until(client, gateway, bool) for gateway in ("web", "daemon")}
    kinds = {kind for owned in before.values() for kind, _ in owned}
    assert kinds == {owned_kind.kind for owned_kind in OWNED_KINDS}
    await asyncio.to_thread(controller.stop)
    for owned in before.values():
        for (kind, name), uid in owned.items():
            await _delete(client, kind, name, uid, propagation)
    for gateway in before:
        await _until(client, gateway, lambda now: not now)
    controller.start()
    for gateway, owned in before.items():
        after = await _until(client, gateway, lambda now, o=owned: now.keys() == o.keys())
        assert not set(after.values()) & set(owned.values())


async def test_orphaned_and_deleted_object_is_recreated(
    client: kube.Client,
) -> None:
    """Each state of a deleted object that the controller has seen says whose it was."""
    before = await _until(client, "web", bool)
    place = next(place for place in before if place[0] == "ConfigMap")
    resource = next(owned_kind for owned_kind in OWNED_KINDS if owned_kind.kind == "ConfigMap")
    patch = {"metadata": {"ownerReferences": None, "labels": None}}
    await client.patch(resource, place[1], patch, "default")
    await client.delete(resource, place[1], "default")
    after = await _until(client, "web", lambda now: now.keys() == before.keys())
    assert after[place] != before[place]
