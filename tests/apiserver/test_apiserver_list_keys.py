"""Keys of associative lists may have a value of a wrong type, in every write."""

from __future__ import annotations

import itertools
from typing import Any

import aiohttp
import pytest

from fakes import patience
from fakes.builtin_objects import (
    list_keys_of,
    stored_builtin_kinds,
    valid_object,
    with_key,
)
from fakes.custom_kinds import with_kind
from fakes.inprocess import Server
from kube_api_server.objects.served_resource import ServedResource
from kube_base.types.objects import Object

VALUES: tuple[Any, ...] = (["x"], {"x": "y"}, 7.5, None)
PATCHES = ("merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml")
AS_PATCH = {201: 200, 400: 422}
"""Codes of a patch, by that of a create. The result of a patch is decoded, and not its body."""


async def answered(
    http: aiohttp.ClientSession, method: str, path: str, body: Object, kind: str = "json"
) -> int:
    query = "?dryRun=All&fieldValidation=Ignore&fieldManager=other&force=true"
    if kind != "apply-patch+yaml":
        query = query.removesuffix("&force=true")
    headers = {"Content-Type": f"application/{kind}"}
    async with http.request(method, path + query, json=body, headers=headers) as response:
        return response.status


async def codes(
    http: aiohttp.ClientSession, path: str, body: Object, patches: tuple[str, ...] = PATCHES
) -> tuple[int, ...]:
    """Return the codes of an update and of patches with a body."""
    patched = [await answered(http, "PATCH", path, body, kind) for kind in patches]
    return (await answered(http, "PUT", path, body), *patched)


def collection(served: ServedResource) -> str:
    resource = served.resource
    root = f"/apis/{resource.api_version}" if resource.group else "/api/v1"
    namespace = "/namespaces/default" if resource.namespaced else ""
    return f"{root}{namespace}/{resource.plural}"


@pytest.mark.parametrize(
    "served", stored_builtin_kinds(), ids=lambda served: served.prefix.strip("/")
)
async def test_key_of_a_wrong_type_has_the_code_of_a_create_in_every_write(
    served: ServedResource, server: Server
) -> None:
    obj = valid_object(served)
    path, name = collection(served), obj["metadata"]["name"]
    async with server.raw() as http:
        async with http.post(path, json=obj) as response:
            assert response.status == 201, await response.text()
        for key, value in itertools.product(list_keys_of(served), VALUES):
            body = with_key(obj, key, value)
            if key.path[0] == "status":
                # A create ignores the status.
                expected, *others = await codes(http, f"{path}/{name}/status", body)
            else:
                new = {**body, "metadata": {**body["metadata"], "name": "two"}}
                expected = await answered(http, "POST", path, new)
                others = list(await codes(http, f"{path}/{name}", body))
            if expected < 400:
                # The null of a key with a default. Some fields never change.
                assert set(others) <= {200, 422}, (key, value, others)
                continue
            assert set(others) <= {expected, AS_PATCH.get(expected)}, (key, value, expected, others)


PORTS = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["name"],
    "items": {
        "type": "object",
        "required": ["name"],
        "properties": {"name": {"type": "string"}, "port": {"type": "integer"}},
        "x-kubernetes-validations": [{"rule": "self.port >= oldSelf.port"}],
    },
}


@pytest.mark.parametrize("value", [*VALUES, 7, True])
async def test_key_of_a_wrong_type_is_invalid_in_custom_resources(
    server: Server, value: Any
) -> None:
    properties = {"spec": {"type": "object", "properties": {"ports": PORTS}}}
    head = {"apiVersion": "keys.example/v1", "kind": "Dock"}
    obj = {**head, "metadata": {"name": "one"}, "spec": {"ports": [{"name": "a", "port": 1}]}}
    path = "/apis/keys.example/v1/docks"
    async with with_kind(server, "keys.example", "Dock", properties) as http:
        await patience.until(lambda: created(http, path, obj))
        async with http.get(f"{path}/one") as response:
            stored = await response.json()
        changed = {"spec": {"ports": [{"name": value}]}}
        new = {**stored, **changed}
        assert set(await codes(http, f"{path}/one", new, ("merge-patch+json",))) == {422}
        new = {**obj, **changed}
        assert await answered(http, "PATCH", f"{path}/one", new, "apply-patch+yaml") == 422


async def test_rule_about_the_old_item_compares_items_of_equal_keys(server: Server) -> None:
    properties = {"spec": {"type": "object", "properties": {"ports": PORTS}}}
    head = {"apiVersion": "keys.example/v1", "kind": "Dock"}
    ports = [{"name": "a", "port": 5}, {"name": "b", "port": 1}]
    obj = {**head, "metadata": {"name": "one"}, "spec": {"ports": ports}}
    path = "/apis/keys.example/v1/docks"
    async with with_kind(server, "keys.example", "Dock", properties) as http:
        await patience.until(lambda: created(http, path, obj))
        for changed, expected in (
            ([ports[1], ports[0]], 200),
            ([{"name": "b", "port": 5}, {"name": "a", "port": 4}], 422),
        ):
            body = {"spec": {"ports": changed}}
            assert await answered(http, "PATCH", f"{path}/one", body, PATCHES[0]) == expected


async def created(http: aiohttp.ClientSession, path: str, obj: Object) -> bool:
    async with http.post(path, json=obj) as response:
        return response.status in (201, 409)
