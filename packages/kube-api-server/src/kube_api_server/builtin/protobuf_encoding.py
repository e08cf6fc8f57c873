"""Encoding of built-in kinds in Kubernetes' protobuf, with the bytes of Kubernetes' Go code.

Fields are in the order of their numbers, and maps in that of their keys. A field that is no pointer
in Go is written also if the object does not have it, as its zero value.
"""

from __future__ import annotations

import base64
import functools
import struct
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from kube_api_server.builtin.protobuf_messages import (
    ALTERNATIVES,
    MAGIC,
    SCHEMA,
    Message,
    message_of,
    type_of,
)
from kube_base.types.objects import Object

_Write = Callable[[Any], bytes]
"""Encodes a value: its content without the key of its field."""

_Field = tuple[str, _Write, bytes]
"""Name of a field, empty for an embedded message; what encodes it with its key; and the bytes of
an absent one."""

_VARINT, _DELIMITED, _FIXED64 = 0, 2, 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ZERO_TIME = datetime(1, 1, 1, tzinfo=UTC)
_LIST_METADATA, _ITEM = 1, 2
"""Fields of every list."""


def encode_protobuf(obj: Object) -> bytes:
    """Encode an object of a built-in kind. Raises LookupError for another kind."""
    api_version, kind = obj["apiVersion"], obj["kind"]
    type_ = type_of(api_version, kind)
    if type_ is None:
        raise LookupError(f"{kind} of {api_version}")
    return _enveloped(api_version, kind, _content(type_.name, obj))


def encode_protobuf_item(type_name: str, obj: Object) -> bytes:
    """Encode an object of a type of the table as an item of a list."""
    return _key(_ITEM, _DELIMITED) + _delimited(_content(type_name, obj))


def join_protobuf_items(
    api_version: str, kind: str, metadata: Object, items: Iterable[bytes]
) -> bytes:
    """Join encoded items to a list."""
    head = _key(_LIST_METADATA, _DELIMITED) + _delimited(_content("meta.ListMeta", metadata))
    return _enveloped(api_version, kind, b"".join((head, *items)))


def encode_protobuf_event(kind: str, encoded: bytes) -> bytes:
    """Encode an event of a watch with an encoded object, after its length in four bytes."""
    raw = _key(1, _DELIMITED) + _delimited(encoded)
    event = _key(1, _DELIMITED) + _delimited(kind.encode()) + _key(2, _DELIMITED) + _delimited(raw)
    return struct.pack(">I", len(event)) + event


def _enveloped(api_version: str, kind: str, content: bytes) -> bytes:
    type_meta = b"".join(
        _key(number, _DELIMITED) + _delimited(text.encode())
        for number, text in ((1, api_version), (2, kind))
    )
    # The encoding and the media type of the content, which are empty.
    rest = _key(3, _DELIMITED) + b"\0" + _key(4, _DELIMITED) + b"\0"
    head = MAGIC + _key(1, _DELIMITED) + _delimited(type_meta) + _key(2, _DELIMITED)
    return b"".join((head, _number(len(content)), content, rest))


def _number(value: int) -> bytes:
    """Encode a number. A negative one has ten bytes."""
    if 0 <= value < 0x80:
        return _BYTES[value]
    if 0 < value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_BYTES = [bytes([value]) for value in range(0x80)]


@functools.cache
def _key(number: int, wire_type: int) -> bytes:
    return _number(number << 3 | wire_type)


def _delimited(data: bytes) -> bytes:
    return _number(len(data)) + data


def _content(type_name: str, obj: Object) -> bytes:
    return _encode(_fields_of(type_name), obj)


def _encode(fields: list[_Field], obj: Object) -> bytes:
    parts = []
    for name, write, absent in fields:
        value = obj.get(name) if name else obj
        parts.append(absent if value is None else write(value))
    return b"".join(parts)


@functools.cache
def _fields_of(type_name: str) -> list[_Field]:
    return _fields(message_of(type_name))


def _fields(message: Message) -> list[_Field]:
    fields: list[_Field] = []
    for number, field in message.items():
        if isinstance(field, dict):
            write = _keyed(number, _DELIMITED, functools.partial(_embedded, _fields(field)))
            fields.append(("", write, b""))
        elif field.type.startswith("[]"):
            fields.append((field.name, _list_writer(number, field.type[2:]), b""))
        elif field.type.startswith("{}"):
            fields.append((field.name, _map_writer(number, field.type[2:]), b""))
        else:
            write = _field_writer(number, field.type)
            absent = b"" if field.pointer else _absent(write, field.type)
            fields.append((field.name, write, absent))
    return fields


def _embedded(fields: list[_Field], obj: Object) -> bytes:
    return _delimited(_encode(fields, obj))


def _keyed(number: int, wire_type: int, write: _Write) -> _Write:
    key = _key(number, wire_type)
    return lambda value: key + write(value)


def _field_writer(number: int, kind: str) -> _Write:
    """Return what encodes a field of a kind with its key."""
    if kind in _SCALARS:
        return _keyed(number, *_SCALARS[kind])
    if kind.startswith("[]"):
        # A list within a map is a message of its own.
        items = _list_writer(1, kind[2:])
        return _keyed(number, _DELIMITED, lambda value: _delimited(items(value)))
    if kind in ALTERNATIVES:
        alternative = functools.partial(_alternative, ALTERNATIVES[kind])
        return _keyed(number, _DELIMITED, lambda value: _delimited(alternative(value)))
    if kind == "apiextensions.v1.JSON":
        return _keyed(number, _DELIMITED, _json)
    return _keyed(number, _DELIMITED, lambda value: _delimited(_content(kind, value)))


def _absent(write: _Write, kind: str) -> bytes:
    """Return the bytes of an absent field that is no pointer: those of its zero value."""
    if kind == "bytes":
        return b""
    return write(_ZEROS.get(kind, {}))


def _list_writer(number: int, kind: str) -> _Write:
    write = _field_writer(number, kind)
    return lambda items: b"".join(map(write, items))


def _map_writer(number: int, kind: str) -> _Write:
    key, write = _key(number, _DELIMITED), _field_writer(2, kind)
    key_of_entry = _key(1, _DELIMITED)

    def write_map(values: Object) -> bytes:
        parts = []
        for name in sorted(values):
            entry = key_of_entry + _delimited(name.encode()) + write(values[name])
            parts.append(key + _delimited(entry))
        return b"".join(parts)

    return write_map


def _text(value: str) -> bytes:
    data = value.encode()
    return _number(len(data)) + data


def _time(text: str) -> bytes:
    return _timestamp(text, micro=False)


def _microtime(text: str) -> bytes:
    return _timestamp(text, micro=True)


@functools.lru_cache(4096)
def _timestamp(text: str, *, micro: bool) -> bytes:
    """Encode a time. Kubernetes keeps fractions of a second in a MicroTime only.

    The objects of a list have few different times.
    """
    moment = datetime.fromisoformat(text) if text else _ZERO_TIME
    if moment == _ZERO_TIME:
        return b"\0"
    since = moment - _EPOCH
    nanoseconds = since.microseconds * 1000 if micro else 0
    seconds = since // timedelta(seconds=1)
    return _delimited(_key(1, _VARINT) + _number(seconds) + _key(2, _VARINT) + _number(nanoseconds))


def _int_or_string(value: int | str) -> bytes:
    is_text = isinstance(value, str)
    number, text = (0, value) if isinstance(value, str) else (value, "")
    return _delimited(
        b"".join(
            (
                *(_key(1, _VARINT), _number(int(is_text))),
                *(_key(2, _VARINT), _number(int(number))),
                *(_key(3, _DELIMITED), _text(text)),
            )
        )
    )


def _quantity(value: object) -> bytes:
    return _delimited(_key(1, _DELIMITED) + _text(str(value)))


def _raw(value: Any) -> bytes:
    return b"\0" if value is None else _json(value)


def _json(value: Any) -> bytes:
    return _delimited(_key(1, _DELIMITED) + _delimited(msgspec.json.encode(value)))


def _alternative(other: str, value: Any) -> bytes:
    """Encode a part of a CRD that is a schema or a boolean, or a schema or a list."""
    is_schema = isinstance(value, dict)
    if other == "Bool":
        schema = _key(2, _DELIMITED) + _delimited(_content(SCHEMA, value)) if is_schema else b""
        return _key(1, _VARINT) + _BYTES[is_schema or bool(value)] + schema
    if is_schema:
        return _key(1, _DELIMITED) + _delimited(_content(SCHEMA, value))
    if other == "Array":
        return b"".join(_key(2, _DELIMITED) + _delimited(_content(SCHEMA, item)) for item in value)
    return b"".join(_key(2, _DELIMITED) + _text(item) for item in value)


_SCALARS: dict[str, tuple[int, _Write]] = {
    "string": (_DELIMITED, _text),
    "int32": (_VARINT, lambda value: _number(int(value))),
    "int64": (_VARINT, lambda value: _number(int(value))),
    "bool": (_VARINT, lambda value: _BYTES[bool(value)]),
    "bytes": (_DELIMITED, lambda value: _delimited(base64.b64decode(value))),
    "double": (_FIXED64, lambda value: struct.pack("<d", value)),
    "time": (_DELIMITED, _time),
    "microtime": (_DELIMITED, _microtime),
    "intstr": (_DELIMITED, _int_or_string),
    "quantity": (_DELIMITED, _quantity),
    "raw": (_DELIMITED, _raw),
    "fields": (_DELIMITED, _raw),
}
"""Wire type of a scalar, and what encodes it."""

_ZEROS: dict[str, Any] = {
    "string": "",
    "int32": 0,
    "int64": 0,
    "bool": False,
    "double": 0.0,
    "time": "",
    "microtime": "",
    "intstr": 0,
    "quantity": "0",
    "raw": None,
    "fields": None,
}
