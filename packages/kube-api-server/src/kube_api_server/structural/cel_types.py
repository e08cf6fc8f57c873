"""Types of CEL rules, from the schemas that they validate.

Objects of a schema become protobuf messages, so that CEL's own compiler checks the types of a rule.
Parts of a schema without a type are no fields:
https://kubernetes.io/docs/reference/using-api/cel/#type-checking
"""

from __future__ import annotations

import functools
import re
from typing import Any

from cel_expr_python import cel
from google.protobuf import descriptor_pb2, descriptor_pool, duration_pb2, struct_pb2, timestamp_pb2

from kube_api_server.structural.cel import Program, extensions, property_names
from kube_base.types.objects import Schema

BOOL, STRING, DYN = cel.Type.BOOL, cel.Type.STRING, cel.Type.DYN
_Field = descriptor_pb2.FieldDescriptorProto
_IMPORTED = [module.DESCRIPTOR for module in (struct_pb2, timestamp_pb2, duration_pb2)]
_TIME, _DURATION = ".google.protobuf.Timestamp", ".google.protobuf.Duration"
_ANYTHING, _ANY_LIST = ".google.protobuf.Value", ".google.protobuf.ListValue"
_ANY_MAP = ".google.protobuf.Struct"
_SCALARS = {
    "string": (_Field.TYPE_STRING, cel.Type.STRING),
    "integer": (_Field.TYPE_INT64, cel.Type.INT),
    "number": (_Field.TYPE_DOUBLE, cel.Type.DOUBLE),
    "boolean": (_Field.TYPE_BOOL, cel.Type.BOOL),
}
_FORMATS = {
    "date-time": (_TIME, cel.Type.TIMESTAMP),
    "date": (_TIME, cel.Type.TIMESTAMP),
    "duration": (_DURATION, cel.Type.DURATION),
}
_NAME: Schema = {"type": "string"}
_METADATA: Schema = {"type": "object", "properties": {"name": _NAME, "generateName": _NAME}}
OF_RESOURCES: Schema = {"apiVersion": _NAME, "kind": _NAME, "metadata": _METADATA}
"""Fields that every resource declares."""
_STRUCT = re.compile(r" not found in struct '[^']*'")
"""Part of the compiler's messages that CEL's Go implementation does not have."""
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def typed_environment(schema: Schema, *, resource: bool, optional_old: bool) -> Any:
    """Return the environment for rules at a part of a schema, with typed `self` and `oldSelf`.

    `resource` is set at the root of a schema.
    """
    types = _Messages()
    own = types.of(schema | {"x-kubernetes-embedded-resource": True} if resource else schema)
    old = cel.Type.DYN if optional_old else own
    return cel.NewEnv(
        descriptor_pool=types.pool(),
        variables={"self": own, "oldSelf": old},
        extensions=[*extensions(), _comparisons()],
    )


def policy_environment(schema: Schema) -> Any:
    """Return the environment for expressions of policies, with typed `object` and `oldObject`.

    `schema` is that of a whole object. It must not contain itself.
    """
    types = _Messages()
    own = types.of(schema)
    untyped = dict.fromkeys(("request", "params", "namespaceObject", "variables"), DYN)
    return cel.NewEnv(
        descriptor_pool=types.pool(),
        variables={"object": own, "oldObject": own, **untyped},
        extensions=[*extensions(), _comparisons()],
    )


def device_environment(schema: Schema, functions: Any) -> Any:
    """Return the environment for selectors of devices, with a typed `device`."""
    types = _Messages()
    own = types.of(schema)
    return cel.NewEnv(
        descriptor_pool=types.pool(),
        variables={"device": own},
        extensions=[*extensions(), functions, _comparisons()],
    )


def compile_typed(text: str, environment: Any) -> Program:
    """Compile an expression in a typed environment. Raises ValueError, the compiler's message."""
    try:
        return Program(environment.compile(text))
    except RuntimeError as error:
        _, _, why = str(error).partition("ERROR: ")
        reason = _STRUCT.sub("", why.removesuffix(" [INVALID_ARGUMENT]") or str(error))
        raise ValueError(f"compilation failed: ERROR: {reason}") from error


@functools.cache
def _comparisons() -> Any:
    """Return the comparisons of integers with other numbers, for the compiler only."""
    kinds = (cel.Type.INT, cel.Type.DOUBLE)
    declared = [
        cel.FunctionDecl(
            f"_{operator}_",
            [
                cel.Overload(f"{name}_{a.name()}_{b.name()}", return_type=BOOL, parameters=[a, b])
                for a, b in (kinds, kinds[::-1])
            ],
        )
        for operator, name in (("<", "less"), ("<=", "most"), (">", "greater"), (">=", "least"))
    ]
    return cel.CelExtension("comparisons", declared)


def has_type(schema: Any) -> bool:
    """Return whether a part of a schema has a type for CEL."""
    if not isinstance(schema, dict):
        return False
    if schema.get("x-kubernetes-int-or-string"):
        return True
    match schema.get("type"):
        case "array":
            return has_type(schema.get("items"))
        case "object":
            values = schema.get("additionalProperties")
            return has_type(values) if isinstance(values, dict) else True
        case kind:
            return kind in _SCALARS


class _Messages:
    """Messages of the objects of a schema."""

    def __init__(self) -> None:
        self._file = descriptor_pb2.FileDescriptorProto(
            name="schema.proto",
            package="schema",
            syntax="proto3",
            dependency=[imported.name for imported in _IMPORTED],
        )

    def pool(self) -> descriptor_pool.DescriptorPool:
        """Return a pool with all messages."""
        pool = descriptor_pool.DescriptorPool()
        for imported in _IMPORTED:
            pool.AddSerializedFile(imported.serialized_pb)
        pool.AddSerializedFile(self._file.SerializeToString())
        return pool

    def of(self, schema: Schema) -> Any:
        """Return the CEL type of values of a schema."""
        kind = schema.get("type")
        if schema.get("x-kubernetes-int-or-string") or not has_type(schema):
            return cel.Type.DYN
        if kind in _SCALARS:
            return self._scalar(schema)[1]
        if kind == "array":
            return cel.Type.List(self.of(schema["items"]))
        if isinstance(schema.get("additionalProperties"), dict):
            return cel.Type.Map(cel.Type.STRING, self.of(schema["additionalProperties"]))
        return cel.Type(self._message(schema)[1:])

    @staticmethod
    def _scalar(schema: Schema) -> tuple[Any, Any]:
        """Return the type of a field, or the name of its message, and the CEL type."""
        if schema["type"] == "string" and schema.get("format") == "byte":
            return _Field.TYPE_BYTES, cel.Type.BYTES
        if schema["type"] == "string" and schema.get("format") in _FORMATS:
            return _FORMATS[schema["format"]]
        return _SCALARS[schema["type"]]

    def _message(self, schema: Schema) -> str:
        """Add the message of an object; return its name."""
        name = f"Object{len(self._file.message_type)}"
        message = self._file.message_type.add(name=name)
        properties = {**(schema.get("properties") or {})}
        if schema.get("x-kubernetes-embedded-resource"):
            properties |= OF_RESOURCES
        for key, inner in properties.items():
            names = property_names(key)
            if has_type(inner) and _IDENTIFIER.fullmatch(names[0]):
                field = message.field.add(name=names[0], label=_Field.LABEL_OPTIONAL)
                self._set(field, inner, message)
                for other in names[1:]:
                    message.field.add().MergeFrom(field)
                    message.field[-1].name = other
        for number, field in enumerate(message.field, 1):
            field.number, field.json_name = number, f"f{number}"
        return f".schema.{name}"

    def _set(self, field: Any, schema: Schema, message: Any) -> None:
        """Set the type of a field."""
        kind, values = schema.get("type"), schema.get("additionalProperties")
        if schema.get("x-kubernetes-int-or-string"):
            type_: Any = _ANYTHING
        elif kind in _SCALARS:
            type_ = self._scalar(schema)[0]
        elif kind == "array":
            if _is_collection(schema["items"]):
                type_ = _ANY_LIST
            else:
                field.label = _Field.LABEL_REPEATED
                self._set(field, schema["items"], message)
                return
        elif isinstance(values, dict):
            type_ = self._entry(field, values, message)
        else:
            type_ = self._message(schema)
        if isinstance(type_, str):
            field.type, field.type_name = _Field.TYPE_MESSAGE, type_
        else:
            field.type = type_

    def _entry(self, field: Any, values: Schema, message: Any) -> str:
        """Return the name of the message of a map's entries."""
        name = "".join(part[:1].upper() + part[1:] for part in field.name.split("_")) + "Entry"
        if _is_collection(values) or any(entry.name == name for entry in message.nested_type):
            return _ANY_MAP
        entry = message.nested_type.add(name=name)
        entry.options.map_entry = True
        key = entry.field.add(name="key", number=1, label=_Field.LABEL_OPTIONAL)
        key.type = _Field.TYPE_STRING
        value = entry.field.add(name="value", number=2, label=_Field.LABEL_OPTIONAL)
        self._set(value, values, entry)
        field.label = _Field.LABEL_REPEATED
        return f".schema.{message.name}.{name}"


def _is_collection(schema: Schema) -> bool:
    """Return whether values are lists or maps, which protobuf cannot nest in others."""
    return schema.get("type") == "array" or isinstance(schema.get("additionalProperties"), dict)
