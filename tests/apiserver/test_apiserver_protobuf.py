"""Responses in protobuf: their bytes, how clients request them, lists, watches and errors."""

from __future__ import annotations

import json
import struct
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.custom_kinds import with_kind
from fakes.inprocess import Server
from fakes.kube_protobuf import samples
from fakes.kube_protobuf.samples import ProtobufSample
from kube_api_server.builtin.kinds import BUILTIN_KINDS
from kube_api_server.builtin.protobuf import decode_protobuf
from kube_api_server.builtin.protobuf_encoding import encode_protobuf
from kube_api_server.builtin.protobuf_messages import MAGIC, PROTOBUF_TYPE, type_of
from kube_base.types.builtin_types.types import TypeField, types_by_name
from kube_base.types.objects import Object

JSON = "application/json"
METADATA = f"{PROTOBUF_TYPE};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
LIST_METADATA = f"{PROTOBUF_TYPE};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
TABLE = f"{PROTOBUF_TYPE};as=Table;g=meta.k8s.io;v=v1"
MAPS = "/api/v1/namespaces/default/configmaps"
WATCH = {"watch": "true", "timeoutSeconds": "1"}
STREAMED = {
    **WATCH,
    "sendInitialEvents": "true",
    "resourceVersionMatch": "NotOlderThan",
    "allowWatchBookmarks": "true",
    "labelSelector": "watched=true",
}


@pytest.mark.parametrize("sample", samples.read(), ids=lambda sample: sample.name)
def test_responses_have_the_bytes_of_kube_apiserver(sample: ProtobufSample) -> None:
    assert sample.encoded() == sample.protobuf


def of_type(name: str, depth: int) -> st.SearchStrategy[Any]:
    """Generate objects of a type as Kubernetes writes them: without zero values of Go."""
    fields = types_by_name()[name].fields.values()
    always = {field.name: of_field(field, depth) for field in fields if is_struct(field)}
    required = {field.name: of_field(field, depth) for field in fields if is_scalar(field)}
    optional = {
        field.name: of_field(field, depth)
        for field in fields
        if field.name not in always | required and not (is_recursive(field) and depth <= 0)
    }
    return st.fixed_dictionaries(always | required, optional=optional)


def is_recursive(field: TypeField) -> bool:
    return field.type.lstrip("[]{}") in types_by_name()


def is_struct(field: TypeField) -> bool:
    """Return whether a field is written even if it is empty, because Go has no pointer to it."""
    return (field.type in types_by_name() or field.type == "quantity") and not field.pointer


def is_scalar(field: TypeField) -> bool:
    return field.required and not field.pointer and field.type in SCALARS


def of_field(field: TypeField, depth: int) -> st.SearchStrategy[Any]:
    if field.type.startswith("[]"):
        return st.lists(of_kind(field.type[2:], depth), min_size=1, max_size=2)
    if field.type.startswith("{}"):
        values = of_kind(field.type[2:], depth)
        return st.dictionaries(st.text(max_size=3), values, min_size=1, max_size=2)
    values = of_kind(field.type, depth)
    if field.type in (*SCALARS, "bytes"):
        # A zero is a value in a pointer, or if it is required.
        return values if field.pointer or field.required else values.filter(bool)
    return values


def of_kind(kind: str, depth: int) -> st.SearchStrategy[Any]:
    if kind in VALUES:
        return VALUES[kind]
    if kind.startswith("[]"):
        return st.lists(of_kind(kind[2:], depth), max_size=2)
    schema = of_type("apiextensions.v1.JSONSchemaProps", 0)
    if kind.endswith("OrBool"):
        return st.booleans() | schema
    if kind.endswith("OrStringArray"):
        return st.lists(st.text(max_size=3), min_size=1, max_size=2) | schema
    if kind.endswith("OrArray"):
        return st.lists(schema, min_size=1, max_size=2) | schema
    return of_type(kind, depth - 1)


SCALARS = ("string", "int32", "int64", "bool", "double", "intstr")
INT32, INT64 = (st.integers(-(2**bits), 2**bits - 1) for bits in (31, 63))
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | INT64 | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=3,
)
JSON_OBJECTS = st.dictionaries(st.text(max_size=3), DOCUMENTS, max_size=2)
TIMES = st.datetimes(min_value=datetime(1, 1, 2))
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "string": st.text(max_size=8),
    "int32": INT32,
    "int64": INT64,
    "bool": st.booleans(),
    "double": st.floats(allow_nan=False),
    "bytes": st.sampled_from(["AAH/", "YQ=="]),
    "time": TIMES.map(lambda time: f"{time.isoformat(timespec='seconds')}Z"),
    "microtime": TIMES.map(lambda time: f"{time.isoformat(timespec='microseconds')}Z"),
    "intstr": INT32 | st.text(max_size=4),
    "quantity": st.sampled_from(["1", "0", "500m", "2Gi"]),
    "raw": JSON_OBJECTS,
    "fields": JSON_OBJECTS,
    "apiextensions.v1.JSON": DOCUMENTS,
    "apiextensions.v1.CustomResourceSubresourceStatus": st.just({}),
}


@pytest.mark.parametrize("kind", BUILTIN_KINDS, ids=lambda kind: kind.resource.kind)
def test_encoded_objects_are_decoded_to_the_same(kind: Any) -> None:
    type_ = type_of(kind.resource.api_version, kind.resource.kind)
    assert type_ is not None

    @settings(max_examples=25)
    @given(of_type(type_.name, 3))
    def check(content: Object) -> None:
        head = {"apiVersion": kind.resource.api_version, "kind": kind.resource.kind}
        assert decode_protobuf(encode_protobuf(head | content)) == head | content

    check()


async def get(
    http: aiohttp.ClientSession, path: str, accept: str, **params: str
) -> tuple[int, str, bytes]:
    """Return status, media type and body of a response."""
    async with http.get(path, params=params, headers={"Accept": accept}) as response:
        return response.status, response.headers["Content-Type"], await response.read()


async def create(http: aiohttp.ClientSession, name: str, **more: Any) -> None:
    body = {"metadata": {"name": name, "labels": {"watched": "true"}}, **more}
    async with http.post(MAPS, json=body) as response:
        assert response.status == 201, await response.text()


@pytest.mark.parametrize(
    ("accept", "media"),
    [
        (PROTOBUF_TYPE, PROTOBUF_TYPE),
        (f"{PROTOBUF_TYPE},{JSON}", PROTOBUF_TYPE),
        (f"{JSON},{PROTOBUF_TYPE}", JSON),
        (f"{JSON};q=0.5,{PROTOBUF_TYPE};q=0.8", PROTOBUF_TYPE),
        (f"{PROTOBUF_TYPE};q=0.5,*/*", JSON),
        (f"{PROTOBUF_TYPE};stream=watch", PROTOBUF_TYPE),
        (f"text/html,{PROTOBUF_TYPE}", PROTOBUF_TYPE),
        (f"{TABLE},{PROTOBUF_TYPE}", PROTOBUF_TYPE),
        (f"{TABLE},{JSON}", JSON),
        (f"{METADATA},{JSON}", PROTOBUF_TYPE),
    ],
)
async def test_first_accepted_type_of_a_builtin_kind_is_the_type_of_the_response(
    server: Server, accept: str, media: str
) -> None:
    async with server.raw() as http:
        await create(http, "one", data={"a": "b"})
        status, content_type, body = await get(http, f"{MAPS}/one", accept)
    assert (status, content_type) == (200, media)
    obj = decode(body)
    assert obj["metadata"]["name"] == "one"


def decode(body: bytes) -> Object:
    """Decode an object that is protobuf, or JSON."""
    if not body.startswith(MAGIC):
        result: Object = json.loads(body)
        return result
    return decode_protobuf(body)


@pytest.mark.parametrize(
    ("accept", "media", "code"),
    [
        (TABLE, JSON, 406),
        (f"{JSON};as=Table;g=meta.k8s.io;v=v1,{PROTOBUF_TYPE}", JSON, 200),
        (LIST_METADATA, PROTOBUF_TYPE, 200),
        (METADATA, JSON, 406),
        (f"{LIST_METADATA.replace('v=v1', 'v=v7')},{PROTOBUF_TYPE}", PROTOBUF_TYPE, 200),
    ],
)
async def test_tables_are_json_and_metadata_of_lists_is_requested_as_a_list(
    server: Server, accept: str, media: str, code: int
) -> None:
    async with server.raw() as http:
        status, content_type, _ = await get(http, MAPS, accept)
    assert (status, content_type) == (code, media)


@pytest.fixture
async def anvils(server: Server) -> AsyncIterator[aiohttp.ClientSession]:
    """Serve a custom kind with one object."""
    async with with_kind(server, "acme.com", "Anvil", {}) as http:
        body = {"apiVersion": "acme.com/v1", "kind": "Anvil", "metadata": {"name": "one"}}
        async with http.post(ANVILS, json=body) as response:
            assert response.status == 201
        yield http


ANVILS = "/apis/acme.com/v1/anvils"


@pytest.mark.parametrize(
    ("path", "accept", "code", "media"),
    [
        ("", PROTOBUF_TYPE, 406, PROTOBUF_TYPE),
        ("/one", PROTOBUF_TYPE, 406, PROTOBUF_TYPE),
        ("/one", f"{PROTOBUF_TYPE},{JSON}", 200, JSON),
        ("/one", f"{TABLE},{PROTOBUF_TYPE}", 406, PROTOBUF_TYPE),
        ("/one", METADATA, 200, PROTOBUF_TYPE),
        ("", LIST_METADATA, 200, PROTOBUF_TYPE),
        ("/two", f"{PROTOBUF_TYPE},{JSON}", 404, PROTOBUF_TYPE),
        ("/two", METADATA, 404, JSON),
    ],
)
async def test_custom_resources_are_protobuf_as_metadata_and_errors_only(
    anvils: aiohttp.ClientSession, path: str, accept: str, code: int, media: str
) -> None:
    status, content_type, _ = await get(anvils, ANVILS + path, accept)
    assert (status, content_type) == (code, media)


async def test_nothing_is_written_for_a_client_that_accepts_protobuf_of_custom_resources_only(
    anvils: aiohttp.ClientSession,
) -> None:
    body = {"apiVersion": "acme.com/v1", "kind": "Anvil", "metadata": {"name": "two"}}
    headers = {"Accept": PROTOBUF_TYPE}
    async with anvils.post(ANVILS, json=body, headers=headers) as response:
        assert response.status == 406
    async with anvils.delete(f"{ANVILS}/one", headers=headers) as response:
        assert response.status == 406
    async with anvils.get(ANVILS) as response:
        names = [item["metadata"]["name"] for item in (await response.json())["items"]]
    assert names == ["one"]


async def test_metadata_of_custom_resources_is_decoded_as_that_of_json(
    anvils: aiohttp.ClientSession,
) -> None:
    *_, body = await get(anvils, f"{ANVILS}/one", METADATA)
    *_, text = await get(anvils, f"{ANVILS}/one", f"{JSON};as=PartialObjectMetadata;v=v1")
    assert decode(body) == decode(text)


async def test_objects_of_every_verb_are_protobuf(server: Server) -> None:
    headers = {"Accept": PROTOBUF_TYPE}
    merge = {**headers, "Content-Type": "application/merge-patch+json"}
    body = encode_protobuf({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}})
    async with server.raw() as http:
        sent = {**headers, "Content-Type": PROTOBUF_TYPE}
        async with http.post(MAPS, data=body, headers=sent) as response:
            created = await response.read()
        async with http.put(f"{MAPS}/one", data=created, headers=sent) as response:
            assert decode(await response.read()) == decode(created)
        patch = b'{"data": {"a": "b"}}'
        async with http.patch(f"{MAPS}/one", data=patch, headers=merge) as response:
            assert decode(await response.read())["data"] == {"a": "b"}
        async with http.delete(f"{MAPS}/one", headers=headers) as response:
            status = decode(await response.read())
    assert (status["kind"], status["status"]) == ("Status", "Success")
    assert status["details"]["uid"] == decode(created)["metadata"]["uid"]


async def test_list_is_that_of_json_in_pages(server: Server) -> None:
    async with server.raw() as http:
        for name in ("one", "two", "three"):
            await create(http, name, data={"a": name})
        for params in ({}, {"limit": "2"}, {"labelSelector": "watched=true"}):
            *_, text = await get(http, MAPS, JSON, **params)
            *_, body = await get(http, MAPS, PROTOBUF_TYPE, **params)
            assert ProtobufSample("list", text.decode(), body).encoded() == body


def frames(data: bytes) -> list[bytes]:
    """Divide a watch into its events, by the lengths before them."""
    events = []
    while data:
        (length,) = struct.unpack(">I", data[:4])
        events.append(data[: 4 + length])
        assert len(events[-1]) == 4 + length
        data = data[4 + length :]
    return events


@pytest.mark.parametrize("form", ["", ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"])
async def test_watch_has_the_events_of_json_each_after_its_length(
    server: Server, form: str
) -> None:
    async with server.raw() as http:
        await create(http, "one")
        await create(http, "two", data={"a": "b"})
        _, content_type, body = await get(http, MAPS, PROTOBUF_TYPE + form, **STREAMED)
        *_, text = await get(http, MAPS, JSON + form, **STREAMED)
    assert content_type == f"{PROTOBUF_TYPE};stream=watch"
    events, lines = frames(body), text.decode().splitlines()
    for event, line in zip(events[:2], lines[:2], strict=True):
        assert '"type":"ADDED"' in line
        assert event == ProtobufSample("event", line, b"").encoded()
    end = decode(events[2][events[2].index(MAGIC) :])
    assert end["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_deleted_object_is_an_event_of_a_watch_in_protobuf(server: Server) -> None:
    async with server.raw() as http:
        await create(http, "one")
        params = STREAMED | {"timeoutSeconds": "60"}
        headers = {"Accept": PROTOBUF_TYPE}
        async with http.get(MAPS, params=params, headers=headers) as watch:
            for kind in (b"ADDED", b"BOOKMARK"):
                assert kind in await read_frame(watch)
            async with http.delete(f"{MAPS}/one") as response:
                assert response.status == 200
            event = await read_frame(watch)
    assert b"DELETED" in event
    assert decode(event[event.index(MAGIC) :])["metadata"]["name"] == "one"


async def read_frame(watch: aiohttp.ClientResponse) -> bytes:
    (length,) = struct.unpack(">I", await watch.content.readexactly(4))
    return await watch.content.readexactly(length)


async def test_reviews_and_scales_are_protobuf(server: Server) -> None:
    headers = {"Accept": PROTOBUF_TYPE}
    deployments = "/apis/apps/v1/namespaces/default/deployments"
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "a", "image": "b"}]},
    }
    spec = {"replicas": 3, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    async with server.raw() as http:
        path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        async with http.post(path, json={}, headers=headers) as response:
            review = decode(await response.read())
        async with http.post(
            deployments, json={"metadata": {"name": "one"}, "spec": spec}, headers=headers
        ) as response:
            assert response.status == 201
        *_, body = await get(http, f"{deployments}/one/scale", PROTOBUF_TYPE)
        status, *_ = await get(http, "/apis/apps/v1", PROTOBUF_TYPE)
    assert review["status"]["userInfo"]["groups"]
    scale = decode(body)
    assert (scale["kind"], scale["spec"], scale["status"]["selector"]) == (
        "Scale", {"replicas": 3}, "a=b",
    )  # fmt: skip
    assert status == 406
