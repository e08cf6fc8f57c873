"""Kubernetes' protobuf: what the decoder and the encoder share.

The wire format is that of protobuf (https://protobuf.dev/programming-guides/encoding), after four
bytes and in an envelope `runtime.Unknown` that names the kind.
"""

from __future__ import annotations

import functools

from kube_base.types.builtin_types import types
from kube_base.types.builtin_types.types import Type, TypeField

PROTOBUF_TYPE = "application/vnd.kubernetes.protobuf"

MAGIC = b"k8s\0"
"""First bytes of every such body."""

Message = dict[int, "TypeField | Message"]
"""Fields of a message by number, in ascending order.

Another message among them is embedded: its fields are those of the object itself.
"""

SCHEMA = "apiextensions.v1.JSONSchemaProps"
ALTERNATIVES = {f"{SCHEMA}Or{other}": other for other in ("Bool", "Array", "StringArray")}
"""Types of a CRD that are a schema or something else, by what else they may be."""

_GROUPS_OF_META = ("", "meta.k8s.io")


def type_of(api_version: str, kind: str) -> Type | None:
    """Return the type of a kind; None if it is unknown."""
    group, _, version = api_version.rpartition("/")
    named = group.split(".")[0] or "core"
    known = types.types_by_name()
    if kind == "DeleteOptions" or group in _GROUPS_OF_META:
        # Each group has DeleteOptions of its own.
        return known.get(f"{named}.{version}.{kind}") or known.get(f"meta.{kind}")
    return known.get(f"{named}.{version}.{kind}")


@functools.cache
def message_of(name: str) -> Message:
    """Return the message of a type of the table."""
    message: Message = {}
    fields = (field for field in types.types_by_name()[name].fields.values() if field.path)
    for field in sorted(fields, key=lambda field: field.path):
        inner = message
        for number in field.path[:-1]:
            embedded = inner.setdefault(number, {})
            assert isinstance(embedded, dict)
            inner = embedded
        inner[field.path[-1]] = field
    return message
