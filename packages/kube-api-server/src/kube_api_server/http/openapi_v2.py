"""OpenAPI v2, as JSON and as the protobuf that kubectl up to 1.26 requires.

Field numbers come from gnostic's OpenAPIv2.proto. The document has only what those clients read:
the definitions, and the PATCH operations that show what the server supports.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

import msgspec
import yaml

from kube_api_server.http.openapi_v3 import definition_name, kind_definition, kind_of
from kube_api_server.objects.registry import Registry
from kube_api_server.objects.served_resource import ServedResource
from kube_base.types.objects import Object

REQUESTED_MEDIA_TYPE = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
OPENAPI_V2_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
"""Media type of the response. The one that clients request is not a well-formed media type."""


class OpenApi2:
    """OpenAPI v2 document of one registry, rebuilt after the registry has changed."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._generation = -1
        self._json = self._protobuf = b""

    def document(self, *, protobuf: bool) -> bytes:
        """Return the document of `/openapi/v2`."""
        if self._generation != self._registry.generation:
            whole = _document(self._registry)
            self._json = msgspec.json.encode(whole)
            self._protobuf = _encode(whole)
            self._generation = self._registry.generation
        return self._protobuf if protobuf else self._json


def _document(registry: Registry) -> Object:
    definitions: Object = {}
    paths: Object = {}
    for served in registry.all():
        definition = kind_definition(served, definitions, "#/definitions/")
        definitions[definition_name(served)] = definition
        if served.persisted:
            paths[_url(served)] = {"patch": _patch(served)}
    return {
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "v1"},
        "paths": paths,
        "definitions": {name: _plain(schema) for name, schema in definitions.items()},
    }


def _url(served: ServedResource) -> str:
    resource = served.resource
    base = f"/apis/{resource.group}" if resource.group else "/api"
    scope = "/namespaces/{namespace}" if resource.namespaced else ""
    return f"{base}/{resource.version}{scope}/{resource.plural}/{{name}}"


def _patch(served: ServedResource) -> Object:
    return {
        "parameters": [
            {"name": name, "in": "query", "type": "string"}
            for name in ("dryRun", "fieldManager", "fieldValidation", "force")
        ],
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": kind_of(served),
    }


_INTEGERS = {
    "maxLength": 11, "minLength": 12, "maxItems": 14, "minItems": 15, "maxProperties": 17,
    "minProperties": 18,
}  # fmt: skip
_DOUBLES = {"multipleOf": 6, "maximum": 7, "minimum": 9}
_BOOLEANS = {"exclusiveMaximum": 8, "exclusiveMinimum": 10, "uniqueItems": 16}
_TEXTS = {"$ref": 1, "format": 2, "title": 3, "description": 4, "pattern": 13}
"""Numbers of fields in protobuf by keyword."""

_KEYWORDS = (
    "type", "required", "additionalProperties", "items", "properties", "default", "enum",
    *_INTEGERS, *_DOUBLES, *_BOOLEANS, *_TEXTS,
)  # fmt: skip


def _plain(schema: Any) -> Object:
    """Reduce a schema to keywords of version 2."""
    if not isinstance(schema, dict):
        return {}
    for choice in schema.get("allOf") or ():
        if "$ref" in choice:
            schema = {**choice, **schema}
    about = {"description": schema["description"]} if schema.get("description") else {}
    if schema.get("x-kubernetes-int-or-string"):
        schema = {"type": "string", "format": "int-or-string", **about}
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        # A client with a partial list of fields would reject all other fields, and one that knows
        # that a part is an object would reject nulls in it.
        kinds = {k: v for k, v in schema.items() if k == "x-kubernetes-group-version-kind"}
        is_typed = "type" in schema and (kinds or schema["type"] != "object")
        return {**({"type": schema["type"]} if is_typed else {}), **about, **kinds}
    reduced = {key: value for key, value in schema.items() if key in _KEYWORDS or key[:2] == "x-"}
    reduced.pop("x-kubernetes-validations", None)
    if "properties" in reduced:
        reduced["properties"] = {n: _plain(inner) for n, inner in reduced["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(reduced.get(key), dict):
            reduced[key] = _plain(reduced[key])
        elif key in reduced:
            reduced[key] = {}
    return reduced


def _encode(document: Object) -> bytes:
    paths = b"".join(
        _field(2, _named(path, _field(8, _operation(item["patch"]))))
        for path, item in document["paths"].items()
    )
    definitions = b"".join(
        _field(1, _named(name, _schema(schema))) for name, schema in document["definitions"].items()
    )
    info = _text(1, document["info"]["title"]) + _text(2, document["info"]["version"])
    return b"".join((_text(1, "2.0"), _field(2, info), _field(8, paths), _field(9, definitions)))


def _operation(operation: Object) -> bytes:
    parameters = b""
    for parameter in operation["parameters"]:
        query = _text(2, "query") + _text(4, parameter["name"]) + _text(6, "string")
        # Nesting: items, a non-body parameter, a query parameter.
        parameters += _field(8, _field(1, _field(2, _field(3, query))))
    return parameters + _extensions(13, operation)


def _schema(schema: Object) -> bytes:
    parts = [_text(number, schema[key]) for key, number in _TEXTS.items() if schema.get(key)]
    parts += _limits(schema)
    parts += [_text(19, name) for name in schema.get("required") or ()]
    parts += [_field(20, _any(value)) for value in schema.get("enum") or ()]
    if isinstance(schema.get("additionalProperties"), dict):
        parts.append(_field(21, _field(1, _schema(schema["additionalProperties"]))))
    if schema.get("type"):
        parts.append(_field(22, _text(1, schema["type"])))
    if isinstance(schema.get("items"), dict):
        parts.append(_field(23, _field(1, _schema(schema["items"]))))
    if schema.get("properties"):
        inner = b"".join(
            _field(1, _named(name, _schema(value))) for name, value in schema["properties"].items()
        )
        parts.append(_field(25, inner))
    return b"".join(parts) + _extensions(31, schema)


def _limits(schema: Object) -> list[bytes]:
    """Return the default and the limits of values as fields."""
    parts = [_field(5, _any(schema["default"]))] if "default" in schema else []
    for key, value in schema.items():
        if number := _DOUBLES.get(key):
            parts.append(_varint(number << 3 | 1) + struct.pack("<d", value))
        elif number := _INTEGERS.get(key) or _BOOLEANS.get(key):
            parts.append(_varint(number << 3) + _varint(int(value)))
    return parts


def _any(value: Any) -> bytes:
    """Return a value as YAML, in the message for any value."""
    return _text(2, msgspec.json.encode(value).decode())


def _extensions(number: int, holder: Object) -> bytes:
    fields: Iterable[tuple[str, Any]] = (
        (key, value) for key, value in holder.items() if key.startswith("x-kubernetes-")
    )
    return b"".join(
        _field(number, _named(key, _text(2, yaml.safe_dump(value)))) for key, value in fields
    )


def _named(name: str, value: bytes) -> bytes:
    return _text(1, name) + _field(2, value)


def _text(number: int, text: str) -> bytes:
    return _field(number, text.encode())


def _field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
