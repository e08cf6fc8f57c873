"""Metadata shared by all kinds, and tolerant decoding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

T = TypeVar("T", bound="KubernetesObject")


class View(msgspec.Struct, frozen=True, rename="camel"):
    """Base of all views. Unknown fields are dropped."""


class OwnerReference(View, frozen=True):
    """An owner reference."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    controller: bool = False


class Meta(View, frozen=True):
    """``metadata`` without the fields that change at every write."""

    name: str = ""
    namespace: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str = ""
    labels: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()


class AnnotatedMeta(Meta, frozen=True):
    """``metadata`` with annotations."""

    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class KubernetesObject(View, frozen=True):
    """Base of every kind's view."""

    metadata: Meta


class Malformed(KubernetesObject, frozen=True):
    """An object that could not be decoded, with its key and the error."""

    kind: str
    message: str


def decode_view(view: type[T], raw: Mapping[str, Any], kind: str = "") -> T | Malformed:
    """Decode an object. Return :class:`Malformed` if fields have wrong types.

    `kind`: the kind, if it is not the name of its view.
    """
    try:
        # Few objects contain null. Their text is searched faster than their fields.
        has_nulls = ": None" in repr(raw)
        return msgspec.convert(_without_nulls(raw) if has_nulls else raw, view)
    except msgspec.ValidationError as error:
        message = str(error).replace("`$.", "`")
        return Malformed(metadata=_metadata(raw), kind=kind or view.__name__, message=message)


def _metadata(raw: Mapping[str, Any]) -> Meta:
    metadata = raw.get("metadata")
    if not isinstance(metadata, Mapping):
        return Meta()
    generation = metadata.get("generation")
    return Meta(
        name=str(metadata.get("name", "")),
        namespace=str(metadata.get("namespace", "")),
        generation=generation if isinstance(generation, int) else 0,
    )


def _without_nulls(value: Any) -> Any:
    """Drop null fields, which Kubernetes treats as absent."""
    if isinstance(value, Mapping):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_without_nulls(item) for item in value]
    return value
