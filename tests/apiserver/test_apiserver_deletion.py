"""Deletion of objects of the API server: finalizers, owners, namespaces."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import aiohttp
import pytest

from fakes import patience
from fakes.inprocess import Server
from gatehouse.apis import resources
from gatehouse.kube import client as kube


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default"}, "data": data}


async def test_object_stays_until_finalizers_are_removed(client: kube.Client) -> None:
    manifest = config_map("c")
    manifest["metadata"]["finalizers"] = ["example.org/hold"]
    await client.create(resources.CONFIG_MAPS, manifest)
    await client.delete(resources.CONFIG_MAPS, "c", "default")
    held = await client.get(resources.CONFIG_MAPS, "c", "default")
    assert held["metadata"]["deletionTimestamp"]
    await client.patch(resources.CONFIG_MAPS, "c", {"metadata": {"finalizers": None}}, "default")
    with pytest.raises(kube.NotFound):
        await client.get(resources.CONFIG_MAPS, "c", "default")


async def test_namespace_deletion_deletes_its_objects(client: kube.Client) -> None:
    await client.create(resources.NAMESPACES, {"metadata": {"name": "n"}})
    config = {"metadata": {"name": "c", "namespace": "n"}}
    await client.create(resources.CONFIG_MAPS, config)
    await client.delete(resources.NAMESPACES, "n")
    async with patience.limit():
        while any(
            item["metadata"]["name"] == "n"
            for item in (await client.list(resources.NAMESPACES)).items
        ):
            await patience.pause()
    assert not (await client.list(resources.CONFIG_MAPS, "n")).items
    with pytest.raises(kube.NotFound, match="namespaces"):
        await client.create(resources.CONFIG_MAPS, config)


async def test_objects_that_own_each_other_are_deleted(server: Server, client: kube.Client) -> None:
    """Each blocks the deletion of its owner, and the last one owns the first."""
    names = ("a", "b", "c")
    created = {name: await client.create(resources.CONFIG_MAPS, config_map(name)) for name in names}
    for name, owner in zip(names, ("c", "a", "b"), strict=True):
        reference = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": owner,
            "uid": created[owner]["metadata"]["uid"],
            "blockOwnerDeletion": True,
        }
        patch = {"metadata": {"ownerReferences": [reference]}}
        await client.patch(resources.CONFIG_MAPS, name, patch, "default")
    path = "/api/v1/namespaces/default/configmaps/a?propagationPolicy=Foreground"
    async with server.raw() as http, http.delete(path) as response:
        assert response.status == 200
    async with patience.limit():
        while (await client.list(resources.CONFIG_MAPS, "default")).items:
            await patience.pause()


async def test_object_without_owner_is_garbage_collected(client: kube.Client) -> None:
    owner = await client.create(resources.CONFIG_MAPS, config_map("owner"))
    child = config_map("child")
    child["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    ]
    await client.create(resources.CONFIG_MAPS, child)
    await client.delete(resources.CONFIG_MAPS, "owner", "default")
    async with patience.limit():
        while (await client.list(resources.CONFIG_MAPS, "default")).items:
            await patience.pause()


async def test_delete_collection_respects_dry_run_and_selectors(
    client: kube.Client, server: Server
) -> None:
    path = "/api/v1/namespaces/default/configmaps"
    for name in ("a", "b"):
        await client.create(resources.CONFIG_MAPS, config_map(name))
    async with server.raw() as raw:
        async with raw.delete(f"{path}?dryRun=All") as response:
            assert response.status == 200
        assert len((await client.list(resources.CONFIG_MAPS, "default")).items) == 2
        async with raw.delete(f"{path}?fieldSelector=metadata.name%3Da") as response:
            assert response.status == 200
        async with raw.post(f"{path}/b", json={}) as response:
            assert response.status == 405
    left = (await client.list(resources.CONFIG_MAPS, "default")).items
    assert [item["metadata"]["name"] for item in left] == ["b"]


@pytest.mark.parametrize(
    ("body", "deleted"), [({}, True), ({"dryRun": ["All"]}, False), (None, False)]
)
async def test_options_of_a_delete_are_in_its_body_if_it_has_one(
    client: kube.Client, server: Server, body: Any, deleted: bool
) -> None:
    """kube-apiserver 1.34 reads the query only without a body."""
    await client.create(resources.CONFIG_MAPS, config_map("a"))
    path = "/api/v1/namespaces/default/configmaps/a?dryRun=All"
    async with server.raw() as raw, raw.delete(path, json=body) as response:
        assert response.status == 200
    left = (await client.list(resources.CONFIG_MAPS, "default")).items
    assert (not left) == deleted


async def test_rejected_namespace_deletion_keeps_its_objects(client: kube.Client) -> None:
    await client.create(resources.NAMESPACES, {"metadata": {"name": "n"}})
    await client.create(resources.CONFIG_MAPS, {"metadata": {"name": "c", "namespace": "n"}})
    with pytest.raises(kube.Conflict):
        await client.delete(resources.NAMESPACES, "n", uid="another")
    assert await client.get(resources.CONFIG_MAPS, "c", "n")


async def test_terminating_namespace_waits_for_finalizers_and_rejects_creates(
    client: kube.Client,
) -> None:
    await client.create(resources.NAMESPACES, {"metadata": {"name": "n"}})
    held = {"metadata": {"name": "c", "namespace": "n", "finalizers": ["example.org/hold"]}}
    await client.create(resources.CONFIG_MAPS, held)
    await client.delete(resources.NAMESPACES, "n")
    current = await client.get(resources.NAMESPACES, "n")
    assert current["status"]["phase"] == "Terminating"
    with pytest.raises(kube.NamespaceTerminating, match="being terminated"):
        await client.create(resources.CONFIG_MAPS, {"metadata": {"name": "d", "namespace": "n"}})
    await client.patch(resources.CONFIG_MAPS, "c", {"metadata": {"finalizers": None}}, "n")

    async def gone() -> bool:
        with contextlib.suppress(kube.NotFound):
            await client.get(resources.NAMESPACES, "n")
            return False
        return True

    async with patience.limit():
        while not await gone():
            await patience.pause()


async def test_creates_during_namespace_deletion_leave_no_object(client: kube.Client) -> None:
    await client.create(resources.NAMESPACES, {"metadata": {"name": "n"}})

    async def create(number: int) -> None:
        metadata = {"name": f"c{number}", "namespace": "n"}
        with contextlib.suppress(kube.ApiError):
            await client.create(resources.CONFIG_MAPS, {"metadata": metadata})

    await asyncio.gather(
        *(create(number) for number in range(30)),
        client.delete(resources.NAMESPACES, "n"),
        *(create(number) for number in range(30, 60)),
    )
    async with patience.limit():
        while (await client.list(resources.CONFIG_MAPS, "n")).items:
            await patience.pause()


JOBS = "/apis/batch/v1/namespaces/default/jobs"


async def job_with_config(http: aiohttp.ClientSession, name: str) -> str:
    """Create a Job that owns a ConfigMap. Return the path of the ConfigMap."""
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i:1"}]}
    job = {"metadata": {"name": name}, "spec": {"template": {"spec": pod}}}
    async with http.post(JOBS, json=job) as response:
        assert response.status == 201
        uid = (await response.json())["metadata"]["uid"]
    config = config_map(name)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid}
    config["metadata"]["ownerReferences"] = [owner]
    path = "/api/v1/namespaces/default/configmaps"
    async with http.post(path, json=config) as response:
        assert response.status == 201
    return f"{path}/{name}"


async def test_dependents_of_a_job_stay_by_default(server: Server) -> None:
    async with server.raw() as http:
        left, deleted = [await job_with_config(http, name) for name in ("left", "deleted")]
        async with http.delete(f"{JOBS}/left") as response:
            assert "child pods are preserved by default" in response.headers["Warning"]
        async with http.delete(f"{JOBS}/deleted?propagationPolicy=Background") as response:
            assert "Warning" not in response.headers

        async def owners(path: str) -> Any:
            async with http.get(path) as response:
                return (await response.json())["metadata"].get("ownerReferences")

        async def status(path: str) -> int:
            async with http.get(path) as response:
                return response.status

        await patience.until_equal(lambda: status(deleted), 404)
        await patience.until_equal(lambda: status(f"{JOBS}/left"), 404)
        assert (await status(left), await owners(left)) == (200, None)
