"""New defaults of a CRD in objects that exist already."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from fakes.custom_kinds import CRDS, with_kind
from fakes.inprocess import Server
from fakes.patience import until_equal

CRD = f"{CRDS}/things.defaults.example"
THINGS = "/apis/defaults.example/v1/things"
JSON_PATCH = {"Content-Type": "application/json-patch+json"}
MERGE_PATCH = {"Content-Type": "application/merge-patch+json"}
SCHEMA = "/spec/versions/0/schema/openAPIV3Schema/properties"


@pytest.fixture
async def http(server: Server) -> AsyncIterator[aiohttp.ClientSession]:
    """A session with an API server that serves Things."""
    properties = {"a": {"type": "string"}, "b": {"type": "string"}}
    async with with_kind(server, "defaults.example", "Thing", properties) as session:
        yield session


async def get(http: aiohttp.ClientSession, name: str) -> dict[str, Any]:
    async with http.get(f"{THINGS}/{name}") as response:
        document: dict[str, Any] = await response.json()
    return document


async def create(http: aiohttp.ClientSession, name: str) -> None:
    body = {"apiVersion": "defaults.example/v1", "kind": "Thing", "metadata": {"name": name}}
    async with http.post(THINGS, json=body) as response:
        assert response.status == 201, await response.text()


async def patch(http: aiohttp.ClientSession, *operations: dict[str, Any]) -> None:
    async with http.patch(CRD, json=operations, headers=JSON_PATCH) as response:
        assert response.status == 200, await response.text()


async def test_existing_objects_get_new_defaults_and_keep_old_ones(
    http: aiohttp.ClientSession,
) -> None:
    await create(http, "one")
    owners = (await get(http, "one"))["metadata"].get("managedFields")

    async def fields() -> Any:
        thing = await get(http, "one")
        return thing.get("a"), thing.get("b")

    await patch(http, {"op": "add", "path": f"{SCHEMA}/a/default", "value": "A"})
    await until_equal(fields, ("A", None))
    await patch(
        http,
        {"op": "remove", "path": f"{SCHEMA}/a/default"},
        {"op": "add", "path": f"{SCHEMA}/b/default", "value": "B"},
    )
    await until_equal(fields, ("A", "B"))
    assert (await get(http, "one"))["metadata"].get("managedFields") == owners


async def test_object_with_a_removed_field_keeps_it_beside_new_defaults(
    http: aiohttp.ClientSession,
) -> None:
    await create(http, "one")
    await create(http, "two")
    body = {"a": "kept"}
    async with http.patch(f"{THINGS}/one", json=body, headers=MERGE_PATCH) as response:
        assert response.status == 200
    await patch(
        http,
        {"op": "remove", "path": f"{SCHEMA}/a"},
        {"op": "add", "path": f"{SCHEMA}/b/default", "value": "B"},
    )

    async def default() -> Any:
        return (await get(http, "two")).get("b")

    await until_equal(default, "B")
    await patch(http, {"op": "add", "path": f"{SCHEMA}/a", "value": {"type": "string"}})
    assert (await get(http, "one"))["a"] == "kept"
