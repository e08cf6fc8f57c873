"""Objects in lists and in watches of Tables, compared with those of kube-apiserver 1.34.3."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import msgspec
import pytest
import yaml

from fakes.inprocess import Server
from kube_api_server.builtin.kinds import BUILTIN_KINDS
from kube_api_server.http.representations import Representation
from kube_api_server.storage.entries import StoredEntry

CORE = "/api/v1/namespaces/default"
MAPS = f"{CORE}/configmaps"
GATEWAYS = "/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways"
AUTOSCALERS = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers"
OBJECTS: dict[str, dict[str, Any]] = {
    MAPS: {"metadata": {"name": "one"}},
    GATEWAYS: {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": {"name": "one"},
        "spec": {
            "gatewayClassName": "c",
            "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}],
        },
    },
    AUTOSCALERS: {
        "metadata": {"name": "one"},
        "spec": {"maxReplicas": 1, "scaleTargetRef": {"kind": "Deployment", "name": "d"}},
    },
}
AS_METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
STREAMED = {
    "watch": "true",
    "sendInitialEvents": "true",
    "resourceVersionMatch": "NotOlderThan",
    "allowWatchBookmarks": "true",
}


async def create(http: aiohttp.ClientSession, path: str, body: dict[str, Any]) -> None:
    async with http.post(path, json=body) as response:
        assert response.status == 201, await response.text()


@pytest.mark.parametrize(
    ("path", "accept", "item"),
    [
        (MAPS, "application/json", (None, None)),
        (MAPS, "application/yaml", (None, None)),
        (MAPS, AS_METADATA, ("meta.k8s.io/v1", "PartialObjectMetadata")),
        (AUTOSCALERS, "application/json", (None, None)),
        (GATEWAYS, "application/json", ("gateway.networking.k8s.io/v1", "Gateway")),
    ],
)
async def test_items_of_lists_have_a_kind_if_they_are_custom_or_metadata(
    server: Server, path: str, accept: str, item: tuple[str | None, str | None]
) -> None:
    async with server.raw() as http:
        await create(http, path, OBJECTS[path])
        async with http.get(path, headers={"Accept": accept}) as response:
            document = yaml.safe_load(await response.text())
    (one,) = (item for item in document["items"] if item["metadata"]["name"] == "one")
    assert (one.get("apiVersion"), one.get("kind")) == item
    assert document["kind"].endswith("List")


async def test_deleted_objects_of_a_builtin_kind_are_listed_without_a_kind(server: Server) -> None:
    async with server.raw() as http:
        await create(http, MAPS, OBJECTS[MAPS])
        async with http.delete(MAPS) as response:
            items = (await response.json())["items"]
    assert "one" in {item["metadata"]["name"] for item in items}
    assert not any("kind" in item or "apiVersion" in item for item in items)


def test_item_has_no_kind_whatever_the_order_in_which_it_is_stored() -> None:
    served = next(kind for kind in BUILTIN_KINDS if kind.resource.kind == "ConfigMap")
    value = {"metadata": {"name": "one"}, "kind": "ConfigMap", "apiVersion": "v1"}
    entry = StoredEntry(1, value, msgspec.json.encode(value))
    assert json.loads(Representation(served).encode_item(entry)) == {"metadata": {"name": "one"}}


async def table_events(
    server: Server, count: int, include: str = "Metadata"
) -> list[dict[str, Any]]:
    """Return the first events of a watch of ConfigMaps as Tables, and change one after two."""
    events: list[dict[str, Any]] = []
    async with server.raw() as http:
        for name in ("one", "two"):
            labels = {"metadata": {"name": name, "labels": {"streamed": "true"}}}
            await create(http, MAPS, labels)
        params = STREAMED | {"labelSelector": "streamed=true", "includeObject": include}
        async with http.get(MAPS, params=params, headers=TABLE) as response:
            while len(events) < count:
                events.append(json.loads(await response.content.readline()))
                if len(events) == 3:
                    async with http.delete(f"{MAPS}/two") as deleted:
                        assert deleted.status == 200
    return events


async def test_only_the_first_event_of_a_watch_has_columns_of_a_table(server: Server) -> None:
    events = await table_events(server, 4)
    assert [event["type"] for event in events] == ["ADDED", "ADDED", "BOOKMARK", "DELETED"]
    first, *others = (event["object"]["columnDefinitions"] for event in events)
    assert [column["name"] for column in first] == ["Name", "Data", "Age"]
    assert others == [None, None, None]


@pytest.mark.parametrize("include", ["Metadata", "None"])
async def test_end_of_a_streamed_list_of_tables_is_a_row_with_the_annotation(
    server: Server, include: str
) -> None:
    *_, bookmark = await table_events(server, 3, include)
    (row,) = bookmark["object"]["rows"]
    assert row["object"]["kind"] == "PartialObjectMetadata"
    metadata = row["object"]["metadata"]
    assert metadata["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert bookmark["object"]["metadata"] == {"resourceVersion": metadata["resourceVersion"]}


@pytest.mark.parametrize("include", ["Metadata", "None"])
@pytest.mark.parametrize(
    "kind", [kind for kind in BUILTIN_KINDS if kind.persisted], ids=lambda kind: kind.resource.kind
)
def test_object_without_content_is_a_row_of_every_kind(kind: Any, include: str) -> None:
    metadata = {"resourceVersion": "1", "creationTimestamp": None}
    entry = StoredEntry(1, {"metadata": metadata}, b"")
    table = json.loads(Representation(kind, "Table", include).encode(entry))
    assert len(table["rows"][0]["cells"]) == len(table["columnDefinitions"])
