"""Configuration of an Envoy data plane as YAML: resources by type, without key material."""

from __future__ import annotations

import contextlib
import importlib
import sqlite3
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import yaml
from google.protobuf import any_pb2, json_format, symbol_database
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from udpa.annotations import sensitive_pb2

from gatehouse.dataplane.xds import sidecar_configs
from gatehouse.dataplane.xds.resources import REMOVE_ORDER, SIDECAR_CONFIG, Resource

if TYPE_CHECKING:
    # The import is slow, and only `dump` needs it.
    from envoy.config.core.v3 import base_pb2

REDACTED = "[redacted]"

_SECRET_HEADERS = ("authorization", "proxy-authorization", "cookie", "set-cookie")
_SECRET_FIELDS = ("envoy.extensions.filters.http.jwt_authn.v3.JwtProvider.local_jwks",)
"""Fields that may contain keys but are not marked as sensitive in Envoy's messages."""

_SOURCE = "envoy.config.core.v3.DataSource"
_HEADER = "envoy.config.core.v3.HeaderValue"

Object = dict[str, Any]


class _Dumper(yaml.SafeDumper):
    """Writes multi-line text, such as certificates, as a block."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


def _fields(dumper: yaml.SafeDumper, found: OrderedDict[str, Any]) -> yaml.MappingNode:
    return dumper.represent_dict(found.items())


_Dumper.add_representer(str, _text)
_Dumper.add_representer(OrderedDict, _fields)


def read(database: Path) -> list[Resource]:
    """Return the resources that Envoy accepted last, from its agent's file. Raises OSError."""
    # The agent writes to this file. A read-only connection does not change it.
    uri = f"{database.absolute().as_uri()}?mode=ro"
    try:
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
            rows = connection.execute("SELECT type_url, name, body, version FROM resources")
            return [Resource(*row) for row in rows]
    except sqlite3.Error as error:
        raise OSError(f"{database}: {error}") from error


def dump(resources: list[Resource]) -> str:
    """Return resources as YAML, keyed by type and name."""
    # The message types must be imported before packed messages can be parsed.
    importlib.import_module("gatehouse.compiler.backends.envoy")
    by_type: dict[str, Object] = {}
    types = {type_url: place for place, type_url in enumerate(REMOVE_ORDER)}
    last = len(types)
    for each in sorted(resources, key=lambda one: (types.get(one.type_url, last), one.key)):
        short = each.type_url.rpartition(".")[2] if each.type_url != SIDECAR_CONFIG else "Companion"
        by_type.setdefault(short, {})[each.name] = _to_object(each)
    return yaml.dump(by_type, Dumper=_Dumper, sort_keys=False, width=100, allow_unicode=True)


def _to_object(resource: Resource) -> Object:
    if resource.type_url == SIDECAR_CONFIG:
        return _files(resource)
    packed = any_pb2.Any(type_url=resource.type_url, value=resource.body)
    message = _unpacked(packed)
    if message is None:
        return {"unreadable": f"{len(resource.body)} bytes of {resource.type_url}"}
    _redact(message)
    found: Object = json_format.MessageToDict(message, preserving_proto_field_name=True)
    return found


def _files(resource: Resource) -> Object:
    """Return the files of a sidecar without content, since any of them may contain secrets."""
    try:
        found = sidecar_configs.files(resource)
    except ValueError as error:
        return {"unreadable": str(error)}
    return {"files": {path: f"{REDACTED} ({len(body)} bytes)" for path, body in found.items()}}


def _unpacked(packed: any_pb2.Any) -> Message | None:
    """Return a packed message, or None if its type is unknown or its bytes are malformed."""
    try:
        made = symbol_database.Default().GetSymbol(packed.type_url.rpartition("/")[2])()
        made.ParseFromString(packed.value)
    except (KeyError, DecodeError):
        return None
    return made


def _redact(message: Message) -> None:
    """Redact key material in a message and in the messages packed in it."""
    kind = message.DESCRIPTOR.full_name
    if isinstance(message, any_pb2.Any):
        _redact_packed(message)
        return
    if kind == _HEADER:
        _redact_header(cast("base_pb2.HeaderValue", message))
    if kind == _SOURCE:
        _readable(cast("base_pb2.DataSource", message))
    for field, value in message.ListFields():
        if _is_secret(field):
            message.ClearField(field.name)
            _mark(message, field)
            continue
        for each in _messages(field, value):
            _redact(each)


def _redact_header(header: base_pb2.HeaderValue) -> None:
    if header.key.lower() in _SECRET_HEADERS:
        header.value, header.raw_value = REDACTED, b""


def _redact_packed(packed: any_pb2.Any) -> None:
    inner = _unpacked(packed)
    if inner is None:
        # It cannot be parsed and may contain key material.
        packed.CopyFrom(any_pb2.Any())
        return
    _redact(inner)
    packed.value = inner.SerializeToString(deterministic=True)


def _is_secret(field: FieldDescriptor) -> bool:
    # Its stub lacks the type of messages that it extends.
    extension: Any = sensitive_pb2.sensitive
    marked: bool = field.GetOptions().Extensions[extension]
    return marked or field.full_name in _SECRET_FIELDS


def _mark(message: Message, field: FieldDescriptor) -> None:
    """Mark a field as redacted if its type can hold text."""
    kind = field.message_type.full_name if field.message_type is not None else ""
    if kind == _SOURCE and not field.is_repeated:
        getattr(message, field.name).inline_string = REDACTED
    elif kind == _SOURCE:
        getattr(message, field.name).add(inline_string=REDACTED)
    elif field.type == field.TYPE_STRING and not field.is_repeated:
        setattr(message, field.name, REDACTED)


def _readable(source: base_pb2.DataSource) -> None:
    """Convert inline bytes that are text, such as a certificate, to text."""
    if source.WhichOneof("specifier") == "inline_bytes":
        with contextlib.suppress(UnicodeDecodeError):
            source.inline_string = source.inline_bytes.decode()


def _messages(field: FieldDescriptor, value: Any) -> Iterator[Message]:
    """Yield the messages in a field."""
    if field.message_type is None:
        return
    if field.message_type.GetOptions().map_entry:
        yield from (each for each in value.values() if hasattr(each, "ListFields"))
    elif field.is_repeated:
        yield from value
    else:
        yield value
