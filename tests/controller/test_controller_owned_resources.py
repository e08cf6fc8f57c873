"""Owned objects: created, repaired, with status, and deleted."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fakes.inprocess import Server
from fakes.patience import until
from fakes.upstream_worlds import spec
from gatehouse.apis import resources
from gatehouse.compiler.frontends import combined
from gatehouse.compiler.frontends.gateway_api.routes.pod_selections import PodSelection
from gatehouse.compiler.frontends.kinds import OwnedKind
from gatehouse.compiler.frontends.upstream_cluster import Allocation
from gatehouse.compiler.frontends.upstream_cluster.flow_control import LimitAllocation
from gatehouse.compiler.ir.kube_apiserver import InFlight
from gatehouse.controller.compilation import CompileResult
from gatehouse.controller.owned_resources import OwnedResources
from gatehouse.incremental.query import Key
from gatehouse.incremental.table import Table
from gatehouse.kube import client as kube
from gatehouse.kube.informer import Informer
from gatehouse.standalone.state_directory import State
from kube_base.types.resource import Resource

Object = dict[str, Any]

A = "a.example"
STATE, INSTANCE = f"{A}.state", f"{A}.ns.p"
LIMITS = resources.RATE_LIMIT_CONDITIONS
LIMIT_RECORDS = next(own for _, own in combined.KINDS.owned if own.resource == LIMITS)
SELECTING = (resources.X_BACKENDS, resources.INFERENCE_POOLS)
"""Kinds whose objects have a Service each."""
WATCHED = (LIMITS, resources.UPSTREAM_CLUSTERS, resources.SERVICES, *SELECTING)


def found(most: int, *data_planes: str, name: str = A) -> CompileResult:
    """Return a compile result in which a cluster's limit is divided among data planes."""
    planes = tuple(("ns", data_plane) for data_plane in data_planes)
    shares = dict.fromkeys(planes, most // 2)
    allocation = Allocation(
        (LimitAllocation("s", "globalAllocate", InFlight(most), shares),), planes
    )
    key: Key = ("UpstreamCluster", "", name)
    return CompileResult(owned={LIMIT_RECORDS: Table({key: allocation})})


NOTHING = CompileResult()


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[kube.Client]:
    server = Server(State(tmp_path / "s"))
    async with server.running(), server.client() as kube_client:
        for name in (A, "b.example"):
            await cluster(kube_client, name)
        yield kube_client


@contextlib.asynccontextmanager
async def running(client: kube.Client) -> AsyncIterator[OwnedResources]:
    informers: dict[Resource, Informer] = {}
    owned_resources = OwnedResources(client, lambda resource: informers[resource].objects)
    for watched in WATCHED:
        informers[watched] = Informer(client, watched, on_changes=owned_resources.on_changes)
    runs = [watch.run() for watch in informers.values()]
    tasks = [asyncio.create_task(run) for run in (*runs, owned_resources.run())]
    for informer in informers.values():
        await informer.synced.wait()
    yield owned_resources
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
async def keeping(client: kube.Client) -> AsyncIterator[OwnedResources]:
    async with running(client) as owned_resources:
        yield owned_resources


async def cluster(client: kube.Client, name: str) -> Object:
    head = {"apiVersion": resources.UPSTREAM_CLUSTERS.api_version, "kind": "UpstreamCluster"}
    body = {**head, "metadata": {"name": name}, "spec": spec()}
    return await client.create(resources.UPSTREAM_CLUSTERS, body)


async def names(client: kube.Client) -> set[str]:
    return {item["metadata"]["name"] for item in (await client.list(LIMITS)).items}


async def most(client: kube.Client, name: str, where: str = "spec") -> int | None:
    """Return the only limit in the status of an object."""
    fields = {"spec": "limitItemConfigurations", "status": "limitItemStatuses"}
    try:
        section = (await client.get(LIMITS, name)).get(where) or {}
    except kube.NotFound:
        return None
    items = section.get(fields[where]) or [{}]
    return (items[0].get("maxRequestsInflight") or {}).get("max")


async def test_owned_objects_are_created_updated_and_deleted(
    client: kube.Client, keeping: OwnedResources
) -> None:
    owner = await client.get(resources.UPSTREAM_CLUSTERS, A)

    async def is_told(whole: int, global_limit: int, share: int) -> bool:
        managers = [await most(client, STATE), await most(client, STATE, "status")]
        return [*managers, await most(client, INSTANCE)] == [whole, global_limit, share]

    keeping.follow(found(10, "p", "q"))
    await until(lambda: is_told(10, 10, 5))
    created = await client.get(LIMITS, INSTANCE)
    (reference,) = created["metadata"]["ownerReferences"]
    assert (reference["kind"], reference["uid"]) == ("UpstreamCluster", owner["metadata"]["uid"])
    keeping.follow(found(8, "p"))
    await until(lambda: is_told(8, 4, 4))
    assert await names(client) == {STATE, INSTANCE}
    keeping.follow(NOTHING)
    await until(lambda: _are(client, set()))


async def _are(client: kube.Client, expected: set[str]) -> bool:
    return await names(client) == expected


async def test_foreign_changes_and_deletions_are_reverted(
    client: kube.Client, keeping: OwnedResources
) -> None:
    keeping.follow(found(10, "p"))
    await until(lambda: _has_maximum(client, STATE, "status", 5))
    raw = await client.get(LIMITS, STATE)
    raw["status"]["limitItemStatuses"][0]["maxRequestsInflight"]["max"] = 99
    await client.update_status(LIMITS, raw)
    await until(lambda: _has_maximum(client, STATE, "status", 5))
    limits = {"limitItemConfigurations": [{"name": "s", "maxRequestsInflight": {"max": 77}}]}
    await client.patch(LIMITS, INSTANCE, {"spec": limits})
    await until(lambda: _has_maximum(client, INSTANCE, "spec", 5))
    await client.delete(LIMITS, INSTANCE)
    await until(lambda: _has_maximum(client, INSTANCE, "spec", 5))


async def _has_maximum(client: kube.Client, name: str, where: str, number: int) -> bool:
    return await most(client, name, where) == number


async def test_owned_objects_are_deleted_with_their_cluster(
    client: kube.Client, keeping: OwnedResources
) -> None:
    keeping.follow(found(10, "p"))
    await until(lambda: _are(client, {STATE, INSTANCE}))
    await client.delete(resources.UPSTREAM_CLUSTERS, A)
    keeping.follow(NOTHING)
    await until(lambda: _are(client, set()))


async def test_leftovers_of_earlier_controller_are_pruned_and_foreign_objects_stay(
    client: kube.Client,
) -> None:
    async with running(client) as earlier:
        earlier.follow(found(10, "old"))
        await until(lambda: _are(client, {STATE, f"{A}.ns.old"}))
    head = {"apiVersion": LIMITS.api_version, "kind": LIMITS.kind}
    theirs = {**head, "metadata": {"name": "b.example.state"}, "spec": {"upstreamCluster": "x"}}
    await client.create(LIMITS, theirs)
    async with running(client) as later:
        # Nothing goes before it is known what is wanted. A deletion would precede these requests.
        for _ in range(5):
            assert await names(client) == {STATE, f"{A}.ns.old", "b.example.state"}
        later.follow(found(10, name="b.example"))
        await until(lambda: _are(client, {"b.example.state"}))
    assert (await client.get(LIMITS, "b.example.state"))["spec"] == {"upstreamCluster": "x"}


def selections(*owners: Resource) -> CompileResult:
    """Return a compile result in which objects of kinds select Pods."""
    desired: dict[OwnedKind, Table[Key, Any]] = {}
    for kind, owned in combined.KINDS.owned:
        if kind.resource in owners:
            name = kind.resource.plural
            selection = PodSelection(name, (("app", "shop"),), (80,))
            key: Key = (kind.resource.kind, "default", "b")
            desired[owned] = Table({key: selection})
    return CompileResult(owned=desired)


async def test_owners_of_two_kinds_have_objects_of_one_kind(
    client: kube.Client, keeping: OwnedResources
) -> None:
    labels = {"matchLabels": {"app": "shop"}}
    specs: dict[Resource, Object] = {
        resources.X_BACKENDS: {
            "type": "EndpointSelector",
            "endpointSelector": labels,
            "port": {"number": 80},
        },
        resources.INFERENCE_POOLS: {"selector": labels, "targetPorts": [{"number": 80}]},
    }
    for owner, own in specs.items():
        metadata = {"name": "b", "namespace": "default"}
        await client.create(owner, {**owner.type_meta, "metadata": metadata, "spec": own})

    async def are(*expected: Resource) -> bool:
        listed = (await client.list(resources.SERVICES, "default")).items
        owners = {
            (item["metadata"]["name"], reference["kind"])
            for item in listed
            for reference in item["metadata"].get("ownerReferences") or ()
        }
        return owners == {(owner.plural, owner.kind) for owner in expected}

    for owners in (SELECTING, SELECTING[:1], SELECTING, SELECTING[1:], ()):
        keeping.follow(selections(*owners))
        await until(partial(are, *owners))
