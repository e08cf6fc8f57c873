"""Configuration of an Envoy data plane as YAML: resources by type, without key material."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import math
import sqlite3
import textwrap
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec
import yaml
from google.protobuf import any_pb2, json_format, symbol_database
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from udpa.annotations import sensitive_pb2

from gatehouse.cli.secret_digest import SecretDigest
from gatehouse.dataplane.xds import sidecar_configs
from gatehouse.dataplane.xds.resources import (
    REMOVE_ORDER,
    SIDECAR_CONFIG_TYPE_URL,
    XdsResource,
)
from kube_base.types.objects import Object

if TYPE_CHECKING:
    # The import is slow, and only `dump` needs it.
    from envoy.config.core.v3 import base_pb2
    from google.protobuf import struct_pb2

_SECRET_HEADERS = ("authorization", "proxy-authorization", "cookie", "set-cookie")
_SECRET_FIELDS = ("envoy.extensions.filters.http.jwt_authn.v3.JwtProvider.local_jwks",)
"""Fields that may contain keys but are not marked as sensitive in Envoy's messages."""

_SOURCE = "envoy.config.core.v3.DataSource"
_HEADER = "envoy.config.core.v3.HeaderValue"
_STRUCT = "google.protobuf.Struct"


class _Dumper(yaml.SafeDumper):
    """Writes multi-line text, such as certificates, as a block."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


def _fields(dumper: yaml.SafeDumper, fields: OrderedDict[str, Any]) -> yaml.MappingNode:
    return dumper.represent_dict(fields.items())


_Dumper.add_representer(str, _text)
_Dumper.add_representer(OrderedDict, _fields)


class StoredResources(msgspec.Struct, frozen=True):
    """Content of the file of an Envoy's agent."""

    accepted: list[XdsResource]
    """Resources that Envoy accepted last."""
    previous: list[XdsResource]
    """Those before the last update; empty if they are not stored."""


def read_resources(database: Path) -> StoredResources:
    """Return the resources in the file of an agent. Raises OSError."""
    # The agent writes to this file. A read-only connection does not change it.
    uri = f"{database.absolute().as_uri()}?mode=ro"
    try:
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.execute("BEGIN")
            rows = connection.execute("SELECT type_url, name, body, version FROM resources")
            accepted = {row[:2]: XdsResource(*row) for row in rows}
            replaced = {
                row[:2]: XdsResource(*row) if row[2] is not None else None
                for row in _replaced_rows(connection)
            }
    except sqlite3.Error as error:
        raise OSError(f"{database}: {error}") from error
    previous = [*filter(None, {**accepted, **replaced}.values())] if replaced else []
    return StoredResources([*accepted.values()], previous)


def _replaced_rows(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
    # The file of an earlier version of the agent lacks the table.
    tables = connection.execute("SELECT name FROM sqlite_master WHERE name = 'replaced'")
    if tables.fetchone() is None:
        return []
    return connection.execute("SELECT type_url, name, body, version FROM replaced").fetchall()


class ResourceDump:
    """Conversion of resources to YAML, keyed by type and name. A digest stands for each secret."""

    def __init__(self, digest: SecretDigest) -> None:
        # The message types must be imported before packed messages can be parsed.
        importlib.import_module("gatehouse.compiler.backends.envoy")
        self._digest = digest
        self._texts: dict[tuple[str, str, str], str] = {}

    def text(self, resources: Iterable[XdsResource]) -> str:
        """Return resources as text. One that was dumped before is not dumped again."""
        places = {type_url: place for place, type_url in enumerate(REMOVE_ORDER)}
        ordered = sorted(resources, key=lambda one: (places.get(one.type_url, math.inf), one.key))
        lines = []
        for type_url, group in itertools.groupby(ordered, lambda one: one.type_url):
            short = type_url.rpartition(".")[2]
            lines.append(f"{short if type_url != SIDECAR_CONFIG_TYPE_URL else 'Companion'}:\n")
            lines += map(self._entry, group)
        return "".join(lines)

    def _entry(self, resource: XdsResource) -> str:
        key = (*resource.key, resource.version)
        if key not in self._texts:
            text = yaml.dump(
                {resource.name: _to_object(resource, self._digest)},
                Dumper=_Dumper, sort_keys=False, width=98, allow_unicode=True,
            )  # fmt: skip
            self._texts[key] = textwrap.indent(text, "  ")
        return self._texts[key]


def _to_object(resource: XdsResource, digest: SecretDigest) -> Object:
    if resource.type_url == SIDECAR_CONFIG_TYPE_URL:
        return _files(resource, digest)
    packed = any_pb2.Any(type_url=resource.type_url, value=resource.body)
    message = _unpacked(packed)
    if message is None:
        return {"unreadable": f"{len(resource.body)} bytes of {resource.type_url}"}
    _redact(message, digest)
    content: Object = json_format.MessageToDict(message, preserving_proto_field_name=True)
    return content


def _files(resource: XdsResource, digest: SecretDigest) -> Object:
    """Return the files of a sidecar without content, since any of them may contain secrets."""
    try:
        files = sidecar_configs.sidecar_files(resource)
    except ValueError as error:
        return {"unreadable": str(error)}
    return {"files": {path: digest.mark(body, len(body)) for path, body in files.items()}}


def _unpacked(packed: any_pb2.Any) -> Message | None:
    """Return a packed message, or None if its type is unknown or its bytes are malformed."""
    try:
        message = symbol_database.Default().GetSymbol(packed.type_url.rpartition("/")[2])()
        message.ParseFromString(packed.value)
    except (KeyError, DecodeError):
        return None
    return message


def _redact(message: Message, digest: SecretDigest) -> None:
    """Redact key material in a message and in the messages packed in it."""
    kind = message.DESCRIPTOR.full_name
    if isinstance(message, any_pb2.Any):
        _redact_packed(message, digest)
        return
    if kind == _HEADER:
        _redact_header(cast("base_pb2.HeaderValue", message), digest)
    if kind == _SOURCE:
        _readable(cast("base_pb2.DataSource", message))
    if kind == _STRUCT:
        _redact_struct(cast("struct_pb2.Struct", message), digest)
    for field, value in message.ListFields():
        if _is_secret(field):
            mark = digest.mark(_content(message, field))
            message.ClearField(field.name)
            _mark(message, field, mark)
            continue
        for inner in _messages(field, value):
            _redact(inner, digest)


def _redact_header(header: base_pb2.HeaderValue, digest: SecretDigest) -> None:
    if header.key.lower() in _SECRET_HEADERS:
        content = header.raw_value or header.value.encode()
        header.value, header.raw_value = digest.mark(content), b""


def _redact_struct(struct: struct_pb2.Struct, digest: SecretDigest) -> None:
    """Redact headers in metadata."""
    for key, value in struct.fields.items():
        if key.lower() in _SECRET_HEADERS:
            value.string_value = digest.mark(value.SerializeToString(deterministic=True))


def _redact_packed(packed: any_pb2.Any, digest: SecretDigest) -> None:
    inner = _unpacked(packed)
    if inner is None:
        # It cannot be parsed and may contain key material.
        packed.CopyFrom(any_pb2.Any())
        return
    _redact(inner, digest)
    packed.value = inner.SerializeToString(deterministic=True)


def _is_secret(field: FieldDescriptor) -> bool:
    # Its stub lacks the type of messages that it extends.
    extension: Any = sensitive_pb2.sensitive
    marked: bool = field.GetOptions().Extensions[extension]
    return marked or field.full_name in _SECRET_FIELDS


def _content(message: Message, field: FieldDescriptor) -> bytes:
    """Return the content of a field in the wire format."""
    copy = type(message)()
    copy.CopyFrom(message)
    for other, _ in message.ListFields():
        if other.name != field.name:
            copy.ClearField(other.name)
    return copy.SerializeToString(deterministic=True)


def _mark(message: Message, field: FieldDescriptor, mark: str) -> None:
    """Mark a field as redacted if its type can hold text."""
    kind = field.message_type.full_name if field.message_type is not None else ""
    if kind == _SOURCE and not field.is_repeated:
        getattr(message, field.name).inline_string = mark
    elif kind == _SOURCE:
        getattr(message, field.name).add(inline_string=mark)
    elif field.type == field.TYPE_STRING and not field.is_repeated:
        setattr(message, field.name, mark)


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
        yield from (item for item in value.values() if hasattr(item, "ListFields"))
    elif field.is_repeated:
        yield from value
    else:
        yield value
