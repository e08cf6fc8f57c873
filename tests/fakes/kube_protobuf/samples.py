"""Samples: what a kube-apiserver answers to a GET, as JSON and as protobuf."""

from __future__ import annotations

import base64
import functools
import json
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from kube_api_server.builtin import protobuf_encoding
from kube_api_server.builtin.kinds import BUILTIN_KINDS
from kube_api_server.builtin.protobuf_messages import PROTOBUF_TYPE, type_of
from kube_api_server.objects.served_resource import ServedResource
from kube_base.types.objects import Object

RECORD = Path(__file__).parent / "record.json"

MAX_JSON = 8_000
"""Size of the largest objects that are recorded."""

_METADATA = "as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"
_WATCH = (
    "/api/v1/namespaces?watch=1&timeoutSeconds=1&resourceVersion=0"
    "&fieldSelector=metadata.name%3Ddefault"
)
_OTHERS = (
    ("/api/v1/namespaces?fieldSelector=metadata.name%3Ddefault", ""),
    ("/api/v1/namespaces?limit=1", ""),
    ("/api/v1/namespaces?limit=2", _METADATA.format("List")),
    ("/apis/rbac.authorization.k8s.io/v1/clusterroles/cluster-admin", _METADATA.format("")),
    ("/api/v1/namespaces/none", ""),
    ("/api/v1/bars", ""),
    ("/api/v1/namespaces?resourceVersion=x", ""),
    (_WATCH, ""),
    (_WATCH, _METADATA.format("")),
)
"""Path of other samples, and how the object is transformed."""


class ProtobufSample(msgspec.Struct, frozen=True):
    """A response in both forms."""

    name: str
    text: str
    """The response as JSON: an object, a list, or events one per line."""
    protobuf: bytes

    def encoded(self) -> bytes:
        """Return the JSON as our encoder writes it."""
        documents = list(map(json.loads, self.text.splitlines()))
        if documents and "object" in documents[0]:
            return b"".join(map(_event, documents))
        (document,) = documents
        if "items" in document:
            return _list(document)
        return protobuf_encoding.encode_protobuf(document)


def _event(event: Object) -> bytes:
    encoded = protobuf_encoding.encode_protobuf(event["object"])
    return protobuf_encoding.encode_protobuf_event(event["type"], encoded)


def _list(document: Object) -> bytes:
    version, kind = document["apiVersion"], document["kind"]
    type_ = type_of(version, kind.removesuffix("List"))
    assert type_ is not None, kind
    items = (protobuf_encoding.encode_protobuf_item(type_.name, item) for item in document["items"])
    return protobuf_encoding.join_protobuf_items(version, kind, document["metadata"], items)


async def observe(session: aiohttp.ClientSession) -> list[ProtobufSample]:
    """Return all objects of built-in kinds, and other responses."""
    samples = []
    for served in BUILTIN_KINDS:
        if served.persisted:
            paths = [_path(served, item) for item in await _items(session, served)]
            samples += [await _sample(session, path) for path in paths]
    return samples + [await _sample(session, path, transformed) for path, transformed in _OTHERS]


def representative(samples: list[ProtobufSample]) -> list[ProtobufSample]:
    """Return the largest object of each collection that is not too large, and other responses."""
    largest: dict[str, ProtobufSample] = {}
    for sample in samples:
        name = sample.name.rpartition("/")[2]
        collection = sample.name.removesuffix(name).rstrip("/").rpartition("/")[2]
        key = sample.name if "?" in name or ";" in name or "none" in name else collection
        size = len(sample.text) if len(sample.text) <= MAX_JSON else 0
        if key not in largest or size > len(largest[key].text):
            largest[key] = sample
    return list(largest.values())


async def _items(session: aiohttp.ClientSession, served: ServedResource) -> list[Object]:
    async with session.get(f"{_root(served)}/{served.resource.plural}") as response:
        items: list[Object] = (await response.json()).get("items", [])
        return items


def _root(served: ServedResource) -> str:
    version = served.resource.api_version
    return f"/apis/{version}" if served.resource.group else f"/api/{version}"


def _path(served: ServedResource, item: Object) -> str:
    metadata = item["metadata"]
    namespace = f"/namespaces/{metadata['namespace']}" if served.resource.namespaced else ""
    return f"{_root(served)}{namespace}/{served.resource.plural}/{metadata['name']}"


async def _sample(
    session: aiohttp.ClientSession, path: str, transformed: str = ""
) -> ProtobufSample:
    bodies = []
    for media in ("application/json", PROTOBUF_TYPE):
        accept = f"{media};{transformed}" if transformed else media
        async with session.get(path, headers={"Accept": f"{accept},{media}"}) as response:
            bodies.append(await response.read())
    name = f"{path};{transformed.partition(';')[0]}" if transformed else path
    return ProtobufSample(name, _compact(bodies[0].decode()), bodies[1])


def _compact(text: str) -> str:
    """Return an object that is written over several lines in one."""
    return json.dumps(json.loads(text)) if text.startswith("{\n") else text


@functools.cache
def read() -> tuple[ProtobufSample, ...]:
    """Return the recorded samples."""
    record: list[dict[str, Any]] = json.loads(RECORD.read_text())
    return tuple(
        ProtobufSample(
            entry["name"],
            "\n".join(map(json.dumps, entry["json"])),
            base64.b64decode(entry["protobuf"]),
        )
        for entry in record
    )


def write(samples: list[ProtobufSample]) -> None:
    """Write the recorded samples, one per line."""
    lines = (
        json.dumps(
            {
                "name": sample.name,
                "json": list(map(json.loads, sample.text.splitlines())),
                "protobuf": base64.b64encode(sample.protobuf).decode(),
            }
        )
        for sample in samples
    )
    RECORD.write_text("[\n" + ",\n".join(lines) + "\n]\n")
