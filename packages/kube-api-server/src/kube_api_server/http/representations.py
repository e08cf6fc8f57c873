"""Representations of objects: complete, as rows of a Table, or metadata only; JSON or protobuf."""

from __future__ import annotations

import msgspec

from kube_api_server.builtin import protobuf_encoding
from kube_api_server.builtin.protobuf_messages import PROTOBUF_TYPE, type_of
from kube_api_server.http import tables
from kube_api_server.objects.served_resource import ServedResource
from kube_api_server.storage.entries import StoredEntry
from kube_base.types.objects import Object

JSON_TYPE = "application/json"

_TYPE = ("apiVersion", "kind")


class Representation(msgspec.Struct, frozen=True):
    """A representation that a client requested, in JSON."""

    served: ServedResource
    kind: str = ""
    """`Table`, `PartialObjectMetadata`, or empty for the object itself."""
    rows_with: str = "Metadata"
    """Object in the rows of a Table: `Metadata`, `Object` or `None`."""

    @property
    def content_type(self) -> str:
        """Media type of a response."""
        return JSON_TYPE

    @property
    def watch_type(self) -> str:
        """Media type of a watch."""
        return JSON_TYPE

    @property
    def api_version(self) -> str:
        """The requested API version."""
        return self.served.resource.api_version

    def encode_object(self, obj: Object) -> bytes:
        """Encode an object as it is, such as a Status."""
        return msgspec.json.encode(obj)

    def encode(self, entry: StoredEntry, *, headed: bool = True) -> bytes:
        """Encode one object. A Table includes its column definitions if `headed` is set."""
        if self.kind == "Table":
            metadata = {"resourceVersion": str(entry.revision)}
            table = tables.build_table(self.served, metadata, headed=headed)
            row = tables.row(self.served, entry.value, self.rows_with)
            return msgspec.json.encode({**table, "rows": [row]})
        requested = self.requested(entry.value)
        return entry.data if requested is entry.value else msgspec.json.encode(requested)

    def requested(self, stored: Object) -> Object:
        """Return a stored object in the requested kind and version."""
        if self.kind == "PartialObjectMetadata":
            return tables.partial(stored)
        if self.served.alias is not None:
            return self.served.alias.from_stored(stored)
        if stored["apiVersion"] != self.api_version:
            return {**stored, "apiVersion": self.api_version}
        return stored

    def encode_item(self, entry: StoredEntry) -> bytes:
        """Encode one object of a list: for a Table, its row.

        Objects of built-in kinds have no kind and no apiVersion in lists, as in kube-apiserver.
        """
        if self.kind == "Table":
            return msgspec.json.encode(tables.row(self.served, entry.value, self.rows_with))
        encoded = self.encode(entry)
        if self.kind or not self.served.builtin:
            return encoded
        head = self._head
        if encoded.startswith(head):
            return b"{" + encoded[len(head) :]
        value: Object = msgspec.json.decode(encoded)
        return msgspec.json.encode({key: value[key] for key in value if key not in _TYPE})

    @property
    def _head(self) -> bytes:
        """The first bytes of most objects."""
        return b'{"apiVersion":"%s","kind":"%s",' % (
            self.api_version.encode(),
            self.served.resource.kind.encode(),
        )

    def join(self, items: list[bytes], metadata: Object) -> bytes:
        """Join encoded objects to a list."""
        if self.kind == "Table":
            head, field = tables.build_table(self.served, metadata), b"rows"
        else:
            version, kind = self.list_type
            head = {"kind": kind, "apiVersion": version, "metadata": metadata}
            field = b"items"
        encoded = msgspec.json.encode(head)
        return encoded[:-1] + b',"' + field + b'":[' + b",".join(items) + b"]}"

    @property
    def list_type(self) -> tuple[str, str]:
        """API version and kind of a list of these objects."""
        if self.kind:
            return tables.META, f"{self.kind}List"
        return self.api_version, self.served.list_kind or f"{self.served.resource.kind}List"

    def event(self, kind: str, encoded: bytes) -> bytes:
        """Return an event of a watch with an encoded object."""
        return b'{"type":"' + kind.encode() + b'","object":' + encoded + b"}\n"


class ProtobufRepresentation(Representation, frozen=True):
    """A representation in Kubernetes' protobuf: an object of a built-in kind, or metadata."""

    @property
    def content_type(self) -> str:
        """Media type of a response."""
        return PROTOBUF_TYPE

    @property
    def watch_type(self) -> str:
        """Media type of a watch."""
        return f"{PROTOBUF_TYPE};stream=watch"

    def encode_object(self, obj: Object) -> bytes:
        """Encode an object of a built-in kind as it is, such as a Status."""
        return protobuf_encoding.encode_protobuf(obj)

    def encode(self, entry: StoredEntry, *, headed: bool = True) -> bytes:  # noqa: ARG002
        """Encode one object."""
        return self.encode_object(self.requested(entry.value))

    def encode_item(self, entry: StoredEntry) -> bytes:
        """Encode one object of a list."""
        requested = self.requested(entry.value)
        return protobuf_encoding.encode_protobuf_item(self._type_name, requested)

    @property
    def _type_name(self) -> str:
        version, kind = self.api_version, self.served.resource.kind
        type_ = type_of(tables.META, self.kind) if self.kind else type_of(version, kind)
        assert type_ is not None
        return type_.name

    def join(self, items: list[bytes], metadata: Object) -> bytes:
        """Join encoded objects to a list."""
        return protobuf_encoding.join_protobuf_items(*self.list_type, metadata, items)

    def event(self, kind: str, encoded: bytes) -> bytes:
        """Return an event of a watch with an encoded object, after its length."""
        return protobuf_encoding.encode_protobuf_event(kind, encoded)
