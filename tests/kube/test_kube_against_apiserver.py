"""The client, the informer and the provisioner against our own API server, over TLS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from fakes import patience
from fakes.kube_test_pki import Authority, pem_of
from gatehouse.apis.resources import (
    CONFIG_MAPS,
    GATEWAY_CLASSES,
    GATEWAYS,
    SERVICE_ACCOUNTS,
    SERVICES,
)
from gatehouse.apiserver_extension.extension import GATEHOUSE
from gatehouse.controller.provisioner.manifests import ProvisionerSettings, ProvisioningPlan
from gatehouse.controller.provisioner.reconcile import gateway_of, prune_orphans, reconcile_objects
from gatehouse.kube import client as kube
from gatehouse.kube.config import Configuration
from gatehouse.kube.credentials import StaticToken
from gatehouse.kube.informer import Informer
from gatehouse.kube.leader_election import Create, Elector, Renew
from kube_api_server import main

SETTINGS = ProvisionerSettings({"nginx": "image"}, "host", 1, "name", "PEM", "agents")

GATEWAY = {
    "apiVersion": GATEWAYS.api_version,
    "kind": GATEWAYS.kind,
    "metadata": {"name": "g", "namespace": "default"},
    "spec": {
        "gatewayClassName": "c",
        "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}],
    },
}


def config_map(name: str, **data: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[kube.Client]:
    authority = Authority()
    cert, key = authority.issue("server", host="localhost")
    token_key = ec.generate_private_key(ec.SECP256R1())
    material = {"tls.crt": cert, "tls.key": key, "ca.crt": authority.pem}
    for name, content in {**material, "token.key": pem_of(token_key)}.items():
        (tmp_path / name).write_bytes(content)
    options = main.ApiServerOptions(
        storage=str(tmp_path / "data"),
        bind="127.0.0.1:0",
        tls_cert=tmp_path / "tls.crt",
        tls_key=tmp_path / "tls.key",
        client_ca=tmp_path / "ca.crt",
        token_key=tmp_path / "token.key",
        extension=GATEHOUSE,
    )
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    server = asyncio.create_task(main.run_api_server(options, stop, ready=port.set_result))
    waited: set[asyncio.Future[Any]] = {server, port}
    await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
    if server.done():
        await server
    cert, key = authority.issue("admin", "system:masters")
    configuration = Configuration(
        f"https://127.0.0.1:{port.result()}",
        StaticToken(),
        ca=authority.pem,
        client_cert=cert,
        client_key=key,
    )
    async with kube.Client(configuration) as connected:
        yield connected
    stop.set()
    await server


async def test_verbs_return_objects_or_raise_typed_errors(client: kube.Client) -> None:
    created = await client.create(CONFIG_MAPS, config_map("a", k="1"))
    with pytest.raises(kube.AlreadyExists):
        await client.create(CONFIG_MAPS, config_map("a"))
    await client.update(CONFIG_MAPS, {**created, "data": {"k": "2"}})
    with pytest.raises(kube.Conflict):
        await client.update(CONFIG_MAPS, {**created, "data": {"k": "3"}})
    patched = await client.patch(CONFIG_MAPS, "a", {"data": {"l": "4"}}, "default")
    assert patched["data"] == {"k": "2", "l": "4"}
    with pytest.raises(kube.Conflict):
        await client.delete(CONFIG_MAPS, "a", "default", uid="another")
    await client.delete(CONFIG_MAPS, "a", "default", uid=created["metadata"]["uid"])
    with pytest.raises(kube.NotFound):
        await client.get(CONFIG_MAPS, "a", "default")
    with pytest.raises(kube.Invalid):
        await client.create(CONFIG_MAPS, config_map("Not_A_Name"))


async def test_informer_reports_changes_and_list_reads_pages(client: kube.Client) -> None:
    for name in "abc":
        await client.create(CONFIG_MAPS, config_map(name))
    listed = await client.list(CONFIG_MAPS, "default", limit=2)
    assert {item["metadata"]["name"] for item in listed.items} >= {"a", "b", "c"}
    gone = asyncio.Event()

    def on_changes(_: object, changes: Any) -> None:
        change = changes.get(("default", "b"))
        if change is not None and change.new is None:
            assert change.old["metadata"]["name"] == "b"
            gone.set()

    informer = Informer(client, CONFIG_MAPS, on_changes=on_changes)
    task = asyncio.create_task(informer.run())
    async with patience.limit():
        await informer.synced.wait()
        await client.delete(CONFIG_MAPS, "b", "default")
        await gone.wait()
    assert {name for ns, name in informer.objects if ns == "default"} >= {"a", "c"}
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_gateway_is_provisioned_agent_identified_and_objects_pruned(
    client: kube.Client,
) -> None:
    await client.create(
        GATEWAY_CLASSES,
        {
            "apiVersion": GATEWAY_CLASSES.api_version,
            "kind": GATEWAY_CLASSES.kind,
            "metadata": {"name": "c"},
            "spec": {"controllerName": "gatehouse.dev/nginx"},
        },
    )
    gateway = await client.create(GATEWAYS, GATEWAY)
    first = await reconcile_objects(client, gateway, SETTINGS, ProvisioningPlan(((80, "TCP"),)))
    second = await reconcile_objects(client, gateway, SETTINGS, ProvisioningPlan(((80, "TCP"),)))
    assert [outcome.action for outcome in first] == ["created"] * 4
    # Defaults of the server must not look like foreign changes.
    assert [outcome.action for outcome in second] == ["unchanged"] * 4

    token, _ = await client.create_token("default", "g-c", ["agents"])
    review = await client.review_token(token, ["agents"])
    assert review.authenticated
    assert review.username == "system:serviceaccount:default:g-c"
    assert not (await client.review_token(token, ["others"])).authenticated
    accounts = {
        (item["metadata"]["namespace"], item["metadata"]["name"]): item
        for item in (await client.list(SERVICE_ACCOUNTS)).items
    }
    assert gateway_of("default", "g-c", accounts) == "default/g"

    assert len(await prune_orphans(client, lambda _: False)) == 4
    with pytest.raises(kube.NotFound):
        await client.get(SERVICES, "g-c", "default")


async def test_lease_is_created_and_renewed(client: kube.Client) -> None:
    leadership: list[bool] = []
    elector = Elector(client, "default", "leader", "me", leadership.append)
    assert await elector.step() == Create()
    assert await elector.step() == Renew()
    assert leadership == [True]
