"""Decoding of Kubernetes' protobuf bodies, which Go clients send for built-in kinds."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from contextvars import ContextVar
from datetime import datetime, timedelta
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
from kube_api_server.errors import StatusError, bad_request
from kube_base.types.builtin_types import types
from kube_base.types.builtin_types.types import TypeField
from kube_base.types.objects import Object

Wire = tuple[int, int | bytes]
"""A field number and its value: a number, or bytes."""


_EPOCH = datetime(1970, 1, 1)

_remaining: ContextVar[Iterator[int]] = ContextVar("remaining")
"""One item for each field that may still be read."""


def decode_protobuf(data: bytes, max_fields: int = 100_000) -> Object:
    """Decode an object. Raises ApiError 415 for an unknown kind, 400 for malformed data."""
    _remaining.set(iter(range(max_fields)))
    if not data.startswith(MAGIC):
        raise bad_request("the body does not start with the prefix of Kubernetes' protobuf")
    try:
        envelope = dict(_fields(data[len(MAGIC) :]))
        meta = dict(_fields(_bytes(envelope.get(1, b""))))
        version, kind = _bytes(meta.get(1, b"")).decode(), _bytes(meta.get(2, b"")).decode()
        type_ = type_of(version, kind)
        if type_ is None:
            message = f"{kind} of {version} is not supported as protobuf; send application/json"
            raise StatusError(415, "UnsupportedMediaType", message)
        obj = _object(type_.name, _bytes(envelope.get(2, b"")))
    except (ValueError, IndexError, struct.error, TypeError, OverflowError) as error:
        raise bad_request(f"error parsing protobuf: {error}") from error
    return {"apiVersion": version, "kind": kind, **obj}


def _fields(data: bytes) -> Iterator[Wire]:
    """Yield the fields of a message in order. Raises ValueError."""
    place, remaining = 0, _remaining.get()
    while place < len(data):
        if next(remaining, None) is None:
            raise ValueError("more keys and values than allowed")
        tag, place = _varint(data, place)
        match tag & 7:
            case 0:
                number, place = _varint(data, place)
                yield tag >> 3, number
            case 1:
                yield tag >> 3, data[place : place + 8]
                place += 8
            case 2:
                length, place = _varint(data, place)
                if place + length > len(data):
                    raise ValueError("a field is longer than its message")
                yield tag >> 3, data[place : place + length]
                place += length
            case 5:
                yield tag >> 3, data[place : place + 4]
                place += 4
            case other:
                raise ValueError(f"wire type {other}")


def _varint(data: bytes, place: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = data[place]
        result |= (byte & 0x7F) << shift
        place += 1
        if byte < 0x80:
            return result, place
        shift += 7
        if shift > 63:
            raise ValueError("a number has more than 64 bits")


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise TypeError("a number where bytes are expected")
    return value


def _object(name: str, data: bytes) -> Object:
    """Return an object of a type of the table."""
    result: Object = {}
    _read(message_of(name), data, result)
    return result


def _read(message: Message, data: bytes, result: Object) -> None:
    """Read fields into `result`, including those of embedded messages."""
    for number, value in _fields(data):
        field = message.get(number)
        if isinstance(field, dict):
            _read(field, _bytes(value), result)
        elif field is not None:
            _read_field(field, value, result)


def _read_field(field: TypeField, value: int | bytes, result: Object) -> None:
    if field.type.startswith("[]"):
        result.setdefault(field.name, []).append(_value(field.type[2:], value))
        return
    if field.type.startswith("{}"):
        key, item = _entry(field.type[2:], _bytes(value))
        result.setdefault(field.name, {})[key] = item
        return
    decoded = _value(field.type, value)
    is_set = decoded is not None and (field.pointer or field.required)
    if decoded or isinstance(decoded, dict) or is_set:
        result[field.name] = decoded


def _entry(kind: str, data: bytes) -> tuple[str, Any]:
    pair = dict(_fields(data))
    return _bytes(pair.get(1, b"")).decode(), _value(kind, pair.get(2, b""))


def _value(kind: str, value: int | bytes) -> Any:
    if kind in ("int32", "int64"):
        if not isinstance(value, int):
            raise TypeError("bytes where a number is expected")
        return _signed(value)
    if kind == "bool":
        return bool(value)
    data = _bytes(value)
    if kind in _READERS:
        return _READERS[kind](data)
    if kind.startswith("[]"):
        # A list within a map is a message of its own.
        return [_value(kind[2:], item) for _, item in _fields(data)]
    if kind in ALTERNATIVES:
        return _alternative(kind, data)
    if types.types_by_name()[kind].open:
        return _open(data)
    return _object(kind, data)


def _signed(number: int | bytes) -> int:
    number = int(number)
    return number - (1 << 64) if number >> 63 else number


def _time(data: bytes) -> str | None:
    return _timestamp(data, "seconds")


def _microtime(data: bytes) -> str | None:
    return _timestamp(data, "microseconds")


def _timestamp(data: bytes, precision: str) -> str | None:
    parts = dict(_fields(data))
    if not parts:
        return None
    microseconds = int(parts.get(2, 0)) // 1000
    moment = _EPOCH + timedelta(seconds=_signed(parts.get(1, 0)), microseconds=microseconds)
    return f"{moment.isoformat(timespec=precision)}Z"


def _int_or_string(data: bytes) -> int | str:
    parts = dict(_fields(data))
    if parts.get(1, 0) == 0:
        return _signed(parts.get(2, 0))
    return _bytes(parts.get(3, b"")).decode()


def _quantity(data: bytes) -> str:
    return _bytes(dict(_fields(data)).get(1, b"")).decode()


def _raw(data: bytes) -> Any:
    return msgspec.json.decode(_bytes(dict(_fields(data)).get(1, b"")) or b"null")


def _open(data: bytes) -> Any:
    """Decode a type that Go code defines: JSON, or an empty object."""
    parts = dict(_fields(data))
    if not parts:
        return {}
    if 1 in parts and isinstance(parts[1], bytes):
        return msgspec.json.decode(parts[1])
    raise ValueError("this part of the object can be sent as JSON only")


def _alternative(kind: str, data: bytes) -> Any:
    """Decode a part of a CRD that is a schema or a boolean, or a schema or a list."""
    fields = list(_fields(data))
    if ALTERNATIVES[kind] == "Bool":
        nested = [value for number, value in fields if number == 2]
        return _object(SCHEMA, _bytes(nested[-1])) if nested else bool(dict(fields).get(1, 0))
    nested = [value for number, value in fields if number == 1]
    if nested:
        return _object(SCHEMA, _bytes(nested[-1]))
    items = [_bytes(value) for number, value in fields if number == 2]
    if ALTERNATIVES[kind] == "Array":
        return [_object(SCHEMA, item) for item in items]
    return [item.decode() for item in items]


_READERS: dict[str, Any] = {
    "string": lambda data: data.decode(),
    "bytes": lambda data: base64.b64encode(data).decode(),
    "double": lambda data: struct.unpack("<d", data)[0],
    "time": _time,
    "microtime": _microtime,
    "intstr": _int_or_string,
    "quantity": _quantity,
    "raw": _raw,
    "fields": _raw,
    "any": _open,
}
