"""Load balancers outside the cluster: when they are read, and validity of their certificates."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fakes import patience
from fakes.authority import DAY, Authority, self_signed
from fakes.inprocess import Server
from fakes.upstream_worlds import b64
from gatehouse.apis import resources
from gatehouse.cli.status_load_balancers import read_load_balancers
from gatehouse.compiler.frontends import external_load_balancer as front
from gatehouse.controller.load_balancers import LoadBalancers
from gatehouse.controller.load_balancers.loop import SHARED_KINDS
from gatehouse.kube import client as kube
from gatehouse.kube.informer import Informer
from gatehouse.standalone.state_directory import State
from gatehouse.transports.server import AgentServer, Denied, Identity
from kube_base.types.resource import Resource


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kinds of all objects that were read."""
    kinds: list[str] = []
    real = front.decode_balancer_object

    def decode(kind: str, raw: Any) -> Any:
        kinds.append(kind)
        return real(kind, raw)

    monkeypatch.setattr(front, "decode_balancer_object", decode)
    return kinds


class Running(NamedTuple):
    """Load balancers of a controller, and the informers that they share."""

    client: kube.Client
    balancers: LoadBalancers
    informers: dict[str, Informer]


@contextlib.asynccontextmanager
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    server = Server(State(tmp_path / "state"))
    async with server.running(), server.client() as client, asyncio.TaskGroup() as group:
        balancers: LoadBalancers

        def on_changes(resource: Resource, changes: Any) -> None:
            balancers.on_changes(resource, changes)

        informers = {
            kind.kind: Informer(client, kind, on_changes=on_changes) for kind in SHARED_KINDS
        }
        balancers = LoadBalancers(client, informers, AgentServer(nobody))
        tasks = [group.create_task(informer.run()) for informer in informers.values()]
        for informer in informers.values():
            await informer.synced.wait()
        tasks.append(group.create_task(balancers.run()))
        yield Running(client, balancers, informers)
        for task in tasks:
            task.cancel()


async def test_services_and_nodes_are_ignored_until_a_load_balancer_exists(
    tmp_path: Path, decoded: list[str]
) -> None:
    async with running(tmp_path) as (client, balancers, informers):
        await client.create(resources.NODES, {"metadata": {"name": "n"}})
        service = {"metadata": {"name": "s", "namespace": "default"}}
        await client.create(resources.SERVICES, {**service, "spec": {"ports": [{"port": 80}]}})
        await until_seen(informers["Service"], ("default", "s"))
        assert decoded == []
        assert balancers.metrics() == {}
        spec = {"hosts": [{"url": "http://127.0.0.1:9/api"}]}
        load_balancer = {"metadata": {"name": "lb", "namespace": "default"}, "spec": spec}
        await client.create(resources.EXTERNAL_LOAD_BALANCERS, load_balancer)
        await patience.until(lambda: {"Service", "Node"} <= {*decoded})


async def test_condition_names_certificates_as_they_expire(tmp_path: Path) -> None:
    """No object changes when a certificate expires."""
    ends = timedelta(seconds=3 * patience.FACTOR)
    cert, key = Authority(tmp_path).issue("client", ends=100 * DAY)
    pair = {"tls.crt": b64(cert.read_bytes()), "tls.key": b64(key.read_bytes())}
    authorities = {"ca.crt": b64(self_signed("hosts", ends).encode())}
    spec = {
        "hosts": [{"url": "https://127.0.0.1:9/api"}],
        "tls": {"caCertificateRef": {"name": "ca"}, "clientCertificateRef": {"name": "own"}},
    }
    async with running(tmp_path) as (client, _, _):
        for name, data in (("ca", authorities), ("own", pair)):
            secret = {"metadata": {"name": name, "namespace": "default"}, "data": data}
            await client.create(resources.SECRETS, secret)
        balancer = {"metadata": {"name": "lb", "namespace": "default"}, "spec": spec}
        await client.create(resources.EXTERNAL_LOAD_BALANCERS, balancer)

        async def accepted() -> tuple[str, ...]:
            read = await client.get(resources.EXTERNAL_LOAD_BALANCERS, "lb", "default")
            for entry in (read.get("status") or {}).get("conditions") or ():
                if entry["type"] == "Accepted":
                    text = entry["message"].partition(" at ")[0]
                    return entry["status"], entry["reason"], text
            return ()

        where = "spec.tls.caCertificateRef: Secret default/ca: the certificate"
        expected = ("True", "CertificateExpired", f"{where} expired")
        await patience.until_equal(accepted, expected)
        valid = {"data": {"ca.crt": b64(self_signed("hosts", DAY).encode())}}
        await client.patch(resources.SECRETS, "ca", valid, "default")
        expected = ("True", "Accepted", "the load balancer is accepted")
        await patience.until_equal(accepted, expected)


async def nobody(_token: str) -> Identity:
    raise Denied("nobody has a token here")


async def until_seen(informer: Informer, name: tuple[str, str]) -> None:
    await patience.until(lambda: name in informer.objects)


@pytest.mark.parametrize(
    ("namespace", "name", "data", "version"),
    [
        ("nlk", "nlk-config", {"nginx-hosts": ""}, "0.x"),
        ("nginx-system", "nlk-config", {"nginx-hosts": ""}, "0.x"),
        (
            "nginx-system",
            "lb-nlk-config",
            {"config.yaml": "nginx-hosts: http://127.0.0.1:9/api"},
            "1.x",
        ),
    ],
)
async def test_nlk_config_works_without_the_load_balancer_crd(
    tmp_path: Any, namespace: str, name: str, data: dict[str, str], version: str
) -> None:
    server = Server(State(tmp_path / "state"))
    async with server.running(), server.client() as client, asyncio.TaskGroup() as group:
        definitions = Resource(
            "apiextensions.k8s.io", "v1", "customresourcedefinitions", "X", namespaced=False
        )
        await client.delete(definitions, "externalloadbalancers.gatehouse.dev")
        with pytest.raises(kube.NotFound):
            async with patience.limit():
                while True:
                    await client.list(resources.EXTERNAL_LOAD_BALANCERS)
                    await patience.pause()
        await client.create(resources.NAMESPACES, {"metadata": {"name": namespace}})
        config = {"metadata": {"name": name, "namespace": namespace}}
        await client.create(resources.CONFIG_MAPS, {**config, "data": data})
        balancers: LoadBalancers
        informers = {
            kind.kind: Informer(client, kind, on_changes=lambda r, c: balancers.on_changes(r, c))
            for kind in SHARED_KINDS
        }
        balancers = LoadBalancers(client, informers, AgentServer(nobody), namespace)
        tasks = [group.create_task(informer.run()) for informer in informers.values()]
        for informer in informers.values():
            await informer.synced.wait()
        tasks.append(group.create_task(balancers.run()))
        async with patience.limit():
            while ("ConfigMap", namespace, name) not in balancers.balancers:
                await patience.pause()
            title = f"{namespace}/{name} (nlk {version})"
            while title not in dict(await read_load_balancers(client, namespace)):
                await patience.pause()
        status = await client.get(resources.CONFIG_MAPS, f"{name}-status", namespace)
        assert f'"nlkVersion":"{version}"' in status["data"]["status"]
        for task in tasks:
            task.cancel()
