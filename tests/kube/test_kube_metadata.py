"""Objects with their metadata only, from kube-apiserver and from the embedded API server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import ClientTimeout

from fakes import patience
from fakes.inprocess import Server
from fakes.kube_apiserver import KubeApiserver
from gatehouse.apis.resources import CONFIG_MAPS
from gatehouse.kube import client as kube
from gatehouse.standalone.state_directory import State

OBJECT = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
KUBERNETES = (pytest.mark.peers, pytest.mark.kubernetes)
LABEL = {"metadata": {"labels": {"test": "metadata"}}}


@pytest.fixture
async def embedded(tmp_path: Path) -> AsyncIterator[kube.Client]:
    server = Server(State(tmp_path / "state"))
    async with server.running(), server.client() as client:
        yield client


@pytest.fixture
async def kubernetes(kube_apiserver: KubeApiserver) -> AsyncIterator[kube.Client]:
    async with kube.Client.from_kubeconfig(kube_apiserver.kubeconfig) as client:
        yield client


@pytest.fixture(params=["embedded", pytest.param("kubernetes", marks=KUBERNETES)])
def client(request: pytest.FixtureRequest) -> kube.Client:
    result: kube.Client = request.getfixturevalue(request.param)
    return result


@pytest.fixture
async def name(client: kube.Client) -> AsyncIterator[str]:
    """A ConfigMap with data."""
    metadata = {"generateName": "metadata-", "namespace": "default"}
    created = await client.create(CONFIG_MAPS, {"metadata": metadata, "data": {"key": "value"}})
    yield created["metadata"]["name"]
    await client.delete(CONFIG_MAPS, created["metadata"]["name"], "default")


async def test_watch_with_selector_sends_metadata_of_labelled_object(
    client: kube.Client, name: str
) -> None:
    listed = await client.list(CONFIG_MAPS, "default", label_selector="test", metadata_only=True)
    assert listed.items == []
    watch = client.watch_batches(
        CONFIG_MAPS,
        "default",
        resource_version=listed.resource_version,
        label_selector="test",
        metadata_only=True,
    )
    await client.patch(CONFIG_MAPS, name, LABEL, "default")
    async with patience.limit():
        (event,) = await anext(watch)
        assert (event.type, event.object["metadata"]["name"]) == ("ADDED", name)
        assert "data" not in event.object
        # The watch stays open after its first event.
        await client.patch(CONFIG_MAPS, name, {"metadata": {"labels": None}}, "default")
        (event,) = await anext(watch)
        assert event.type == "DELETED"
    await watch.aclose()


async def test_watch_that_accepts_lists_delivers_no_event(client: kube.Client, name: str) -> None:
    """Kubernetes ends it at the first event, and the embedded API server rejects it."""
    listed = await client.list(CONFIG_MAPS, "default")
    query = {"watch": "true", "resourceVersion": listed.resource_version}
    path = "/api/v1/namespaces/default/configmaps"
    await client.patch(CONFIG_MAPS, name, LABEL, "default")
    assert await watched(client, path, query, f"{LIST},{OBJECT}") in {(200, b""), (406, b"")}


async def watched(
    client: kube.Client, path: str, query: dict[str, str], accept: str
) -> tuple[int, bytes]:
    """Return the status of a watch, and all that it delivers until it ends."""
    limit = ClientTimeout(60)
    try:
        response = await client._connection.open(
            "GET", path, query=query, timeout=limit, accept=accept
        )
    except kube.ApiError as error:
        return error.status, b""
    async with response:
        return response.status, await response.read()


async def test_list_contains_metadata_only(client: kube.Client, name: str) -> None:
    listed = await client.list(CONFIG_MAPS, "default", metadata_only=True)
    (item,) = [item for item in listed.items if item["metadata"]["name"] == name]
    assert item.keys() == {"apiVersion", "kind", "metadata"}


@pytest.mark.parametrize(("one", "accept"), [(True, LIST), (False, OBJECT)], ids=["get", "list"])
async def test_type_of_the_other_kind_of_response_is_not_acceptable(
    client: kube.Client, name: str, one: bool, accept: str
) -> None:
    path = f"/api/v1/namespaces/default/configmaps{'/' + name if one else ''}"
    with pytest.raises(kube.ApiError) as error:
        await client._connection.request("GET", path, accept=accept)
    assert error.value.status == 406
