"""Decoding of request bodies: JSON, YAML and Kubernetes' protobuf, within limits."""

from __future__ import annotations

import contextlib
import functools
import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from kube_api_server.builtin.protobuf import decode_protobuf
from kube_api_server.builtin.protobuf_messages import PROTOBUF_TYPE
from kube_api_server.errors import StatusError, bad_request
from kube_api_server.formatting import quote_go
from kube_api_server.http import depth
from kube_base.types import yaml_documents
from kube_base.types.document_limits import MAX_NODES
from kube_base.types.objects import Object

APPLY_PATCH = "application/apply-patch+yaml"

MAX_DUPLICATES = 10
"""Duplicate fields that an error message names."""

_MAX_PATH_LENGTH = 1024
"""Characters of the path of a duplicate field. Keys may be as long as the body."""

_Place = tuple["_Place | None", str]
"""An object in a document: the place of the object or list around it, and its key or index."""


class DecodedBody(msgspec.Struct, frozen=True):
    """A document. The last value of a duplicate field counts."""

    value: Any
    duplicates: tuple[str, ...] = ()
    """Warnings of duplicate fields, if they were looked for."""
    is_yaml: bool = False

    def duplicate_errors(self) -> tuple[str, ...]:
        """Return the errors of strict decoding. All duplicates of a YAML document are one."""
        if not self.duplicates or not self.is_yaml:
            return self.duplicates
        return ("\n  ".join(("yaml: unmarshal errors:", *self.duplicates)),)


def decode_body(data: bytes, content_type: str, *, duplicates: bool = False) -> DecodedBody:
    """Decode a body, and look for duplicate fields on request.

    Raises ApiError 400, or 415 for a kind that protobuf does not cover.
    """
    if content_type == PROTOBUF_TYPE:
        # A map entry has three fields: itself, its key and its value.
        decoder = functools.partial(decode_protobuf, max_fields=2 * MAX_NODES)
        return DecodedBody(_limited(decoder, data, "protobuf"))
    is_yaml = content_type in ("application/yaml", APPLY_PATCH)
    if is_yaml and data[:1] != b"{":
        return _decode_yaml(data)
    check_json_size(data)
    try:
        value = _limited(msgspec.json.decode, data, "JSON")
    except StatusError as error:
        if is_yaml and isinstance(error.__cause__, msgspec.DecodeError):
            # YAML allows what JSON does not, such as a comma after the last field.
            return _decode_yaml(data)
        raise
    fields = duplicate_fields(data) if duplicates else []
    if fields and is_yaml:
        # The text may have escapes of JSON that YAML does not have.
        with contextlib.suppress(StatusError):
            return msgspec.structs.replace(_decode_yaml(data), value=value)
    return DecodedBody(value, tuple(f'duplicate field "{field}"' for field in fields))


def _decode_yaml(data: bytes) -> DecodedBody:
    try:
        document = yaml_documents.decode_yaml(data)
    except yaml_documents.YamlDocumentError as error:
        raise bad_request(f"error parsing YAML: {error}") from error
    duplicates = (
        f"line {line}: key {quote_go(key)} already set in map"
        for line, key in document.repeated[:MAX_DUPLICATES]
    )
    return DecodedBody(document.value, tuple(duplicates), is_yaml=True)


def check_json_size(data: bytes) -> None:
    """Raise ApiError 400 for a JSON text with too many nodes, before it is decoded.

    A decoder holds the interpreter's lock for the time of all nodes together.
    """
    if _separators(data) <= MAX_NODES:
        return
    unescaped = data.replace(rb"\\", b"").replace(rb"\"", b"")
    # A document of one string has no nodes.
    strings = unescaped.count(b'"') // 2 - 1
    if strings > MAX_NODES or _separators(_outside_strings(unescaped)) > MAX_NODES:
        raise depth.too_many("error parsing JSON")


def _outside_strings(unescaped: bytes) -> bytes:
    """Return a JSON text without its strings, which contain no escaped quotes.

    Takes time proportional to the size, also for strings that do not end. A regular expression
    would look for the end of each of them.
    """
    return b"".join(unescaped.split(b'"')[::2])


def _separators(data: bytes) -> int:
    """Return the number of nodes of a JSON text whose strings have no separators, or more."""
    return sum(map(data.count, (b",", b":", b"[", b"{")))


def _limited(decoder: Callable[[bytes], Any], data: bytes, name: str) -> Any:
    try:
        decoded = decoder(data)
    except RecursionError as error:
        raise depth.too_deep(f"error parsing {name}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_request(f"error parsing {name}: {error}") from error
    depth.check_depth(decoded, f"error parsing {name}")
    return decoded


def duplicate_fields(data: bytes) -> list[str]:
    """Return the paths of duplicate fields of a JSON text, at most `MAX_DUPLICATES`.

    The last value would win, so that strict decoding refuses them. A text that is no JSON has none.
    """
    repeated: dict[int, list[str]] = {}
    """Keys by the identity of their object, which lives until the end of the call."""

    def collect(pairs: list[tuple[str, Any]]) -> Object:
        decoded = dict(pairs)
        if len(decoded) < len(pairs):
            counts = Counter(key for key, _ in pairs)
            repeated[id(decoded)] = [key for key, count in counts.items() if count > 1]
        return decoded

    try:
        whole = json.loads(data, object_pairs_hook=collect)
    except ValueError:
        return []
    paths: list[str] = []
    if repeated:
        for place, obj in _objects(whole, None):
            remaining = MAX_DUPLICATES - len(paths)
            keys = repeated.get(id(obj), ())[:remaining]
            paths += [_path((place, f".{key}")) for key in keys]
            if len(paths) >= MAX_DUPLICATES:
                break
    return paths


def _objects(value: Any, place: _Place | None) -> Iterator[tuple[_Place | None, Object]]:
    """Yield every object of a document with its place, outer ones first."""
    if isinstance(value, dict):
        yield place, value
        for key, inner in value.items():
            if isinstance(inner, (dict, list)):
                yield from _objects(inner, (place, f".{key}"))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            if isinstance(inner, (dict, list)):
                yield from _objects(inner, (place, f"[{index}]"))


def _path(place: _Place | None) -> str:
    """Return the path of a place, shortened to `_MAX_PATH_LENGTH`."""
    steps: list[str] = []
    while place is not None:
        place, step = place
        steps.append(step)
    path = "".join(reversed(steps)).removeprefix(".")
    return path if len(path) <= _MAX_PATH_LENGTH else f"{path[:_MAX_PATH_LENGTH]}..."
