"""Representations of objects: complete, as rows of a Table, or metadata only."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from gatehouse.apiserver.errors import ApiError
from gatehouse.apiserver.http import tables
from gatehouse.apiserver.objects.served_resource import ServedResource
from gatehouse.apiserver.storage.entries import Entry

Object = dict[str, Any]

_WILD = ("application/json", "application/*", "*/*", "application/yaml")


class Representation(msgspec.Struct, frozen=True):
    """A representation that a client requested."""

    served: ServedResource
    kind: str = ""
    """`Table`, `PartialObjectMetadata`, or empty for the object itself."""
    rows_with: str = "Metadata"
    """Object in the rows of a Table: `Metadata`, `Object` or `None`."""

    @property
    def api_version(self) -> str:
        """The requested API version."""
        return self.served.resource.api_version

    def encode(self, entry: Entry, *, headed: bool = True) -> bytes:
        """Encode one object. A Table includes its column definitions if `headed` is set."""
        if self.kind == "Table":
            metadata = {"resourceVersion": str(entry.revision)}
            rows = tables.rows(self.served, [entry.value], self.rows_with)
            return msgspec.json.encode(tables.table(self.served, rows, metadata, headed=headed))
        if self.kind == "PartialObjectMetadata":
            return msgspec.json.encode(tables.partial(entry.value))
        if self.served.alias is not None:
            return msgspec.json.encode(self.served.alias.from_stored(entry.value))
        if entry.value["apiVersion"] != self.api_version:
            return msgspec.json.encode({**entry.value, "apiVersion": self.api_version})
        return entry.data

    def encode_list(self, entries: list[Entry], metadata: Object) -> bytes:
        """Encode a list. Stored bytes are joined without another encoding."""
        if self.kind == "Table":
            rows = tables.rows(self.served, [entry.value for entry in entries], self.rows_with)
            return msgspec.json.encode(tables.table(self.served, rows, metadata))
        kind = f"{self.kind}List" if self.kind else self.list_kind
        version = "meta.k8s.io/v1" if self.kind else self.api_version
        head = msgspec.json.encode({"kind": kind, "apiVersion": version, "metadata": metadata})
        return head[:-1] + b',"items":[' + b",".join(map(self.encode, entries)) + b"]}"

    @property
    def list_kind(self) -> str:
        """Kind of a list of these objects."""
        return self.served.list_kind or f"{self.served.resource.kind}List"


def form_of(request: web.BaseRequest, served: ServedResource) -> Representation:
    """Select a representation by the Accept header. Raises ApiError 406."""
    accepted = request.headers.get("Accept", "")
    if not accepted or accepted == "application/json" or accepted == "*/*":
        return Representation(served)
    include = request.query.get("includeObject", "Metadata")
    for offer in accepted.split(","):
        media, *rest = (part.strip() for part in offer.split(";"))
        parameters = dict(part.partition("=")[::2] for part in rest)
        kind = parameters.get("as", "").removesuffix("List")
        if kind in ("Table", "PartialObjectMetadata") and media == "application/json":
            if parameters.get("v") in ("v1", "v1beta1"):
                return Representation(served, kind, include)
        elif media in _WILD and not kind:
            return Representation(served)
    message = (
        "only the following media types are accepted: application/json, "
        "application/json;as=Table;g=meta.k8s.io;v=v1, "
        "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    )
    raise ApiError(406, "NotAcceptable", message)
