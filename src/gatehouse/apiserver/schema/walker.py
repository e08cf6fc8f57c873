"""Applies a schema to a value: defaults, unknown fields, violations; all in one walk."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

from gatehouse.apiserver.errors import Cause
from gatehouse.apiserver.schema.shapes import Schema

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


class Walk:
    """One application of a schema to an object; the object is changed in place."""

    def __init__(self) -> None:
        self.causes: list[Cause] = []
        self.unknown: list[str] = []
        """Fields that the schema does not know; they were removed."""

    def value(self, schema: Schema, value: Any, path: str) -> Any:
        """Default, prune and check ``value``; gives the value to keep."""
        kind: str | None = schema.get("type")
        if schema.get("x-kubernetes-int-or-string"):
            if not isinstance(value, int | str) or isinstance(value, bool):
                self._type(path, value, "integer or string")
            return value
        if kind is None:
            return value
        if not isinstance(value, _TYPES[kind]) or (kind != "boolean" and isinstance(value, bool)):
            self._type(path, value, kind)
            return value
        checks: dict[str, Callable[[Schema, Any, str], None]] = {
            "object": self._object,
            "array": self._array,
            "string": self._string,
            "integer": self._number,
            "number": self._number,
        }
        if kind in checks:
            checks[kind](schema, value, path)
        return value

    def _object(self, schema: Schema, value: dict[str, Any], path: str) -> None:
        properties: dict[str, Schema] = schema.get("properties", {})
        additional = schema.get("additionalProperties")
        for name, inner in properties.items():
            if name not in value and "default" in inner:
                value[name] = _copy(inner["default"])
            if value.get(name, "") is None and not inner.get("nullable"):
                # Null is the same as absent (pruning of nulls before defaulting).
                del value[name]
                if "default" in inner:
                    value[name] = _copy(inner["default"])
        for name in schema.get("required", ()):
            if name not in value:
                self._say("FieldValueRequired", f"{path}.{name}", "Required value")
        for name in list(value):
            place = f"{path}.{name}" if path else name
            if name in properties:
                value[name] = self.value(properties[name], value[name], place)
            elif additional is not None:
                value[name] = self.value(additional, value[name], f"{path}[{name}]")
            elif not schema.get("x-kubernetes-preserve-unknown-fields"):
                self.unknown.append(place)
                del value[name]
        self._count(len(value), schema, "minProperties", "maxProperties", path)

    def _array(self, schema: Schema, value: list[Any], path: str) -> None:
        self._count(len(value), schema, "minItems", "maxItems", path)
        for index, item in enumerate(value):
            value[index] = self.value(schema["items"], item, f"{path}[{index}]")
        keys = schema.get("x-kubernetes-list-map-keys")
        if not keys:
            return
        seen: set[tuple[Any, ...]] = set()
        for index, item in enumerate(value):
            if not isinstance(item, dict):
                continue
            identity = tuple(str(item.get(key)) for key in keys)
            if identity in seen:
                shown = ", ".join(f'"{key}":"{item.get(key)}"' for key in keys)
                message = f"Duplicate value: {{{shown}}}"
                self._say("FieldValueDuplicate", f"{path}[{index}]", message)
            seen.add(identity)

    def _string(self, schema: Schema, value: str, path: str) -> None:
        allowed = schema.get("enum")
        if allowed is not None and value not in allowed:
            shown = ", ".join(f'"{item}"' for item in allowed)
            message = f'Unsupported value: "{value}": supported values: {shown}'
            self._say("FieldValueNotSupported", path, message)
        if len(value) < schema.get("minLength", 0):
            least = schema["minLength"]
            self._bad(path, value, f"should be at least {least} chars long")
        if len(value) > schema.get("maxLength", len(value)):
            most = schema["maxLength"]
            message = f"Too long: may not be more than {most} bytes"
            self._say("FieldValueTooLong", path, message)
        pattern = schema.get("pattern")
        if pattern is not None and not _compiled(pattern).search(value):
            self._bad(path, value, f"should match '{pattern}'")

    def _number(self, schema: Schema, value: float, path: str) -> None:
        if value < schema.get("minimum", value):
            self._bad(path, value, f"should be greater than or equal to {schema['minimum']}")
        if value > schema.get("maximum", value):
            self._bad(path, value, f"should be less than or equal to {schema['maximum']}")
        allowed = schema.get("enum")
        if allowed is not None and value not in allowed:
            shown = ", ".join(str(item) for item in allowed)
            message = f"Unsupported value: {value}: supported values: {shown}"
            self._say("FieldValueNotSupported", path, message)

    def _count(self, number: int, schema: Schema, least: str, most: str, path: str) -> None:
        if number < schema.get(least, 0):
            self._bad(path, number, f"should have at least {schema[least]} items")
        if number > schema.get(most, number):
            message = f"Too many: {number}: must have at most {schema[most]} items"
            self._say("FieldValueTooMany", path, message)

    def _type(self, path: str, value: Any, kind: str) -> None:
        message = f"Invalid value: {_shown(value)}: {path} in body must be of type {kind}"
        self._say("FieldValueTypeInvalid", path, message)

    def _bad(self, path: str, value: Any, why: str) -> None:
        message = f"Invalid value: {_shown(value)}: {path} in body {why}"
        self._say("FieldValueInvalid", path, message)

    def _say(self, reason: str, path: str, message: str) -> None:
        self.causes.append(Cause(reason, message, path))


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value[:200]}"'
    names = {dict: "object", list: "array", bool: "boolean", type(None): "null"}
    return str(value) if isinstance(value, int | float) else f'"{names[type(value)]}"'


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copy(item) for item in value]
    return value


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    # "$" of RE2 is the end of the text; Python's allows a newline behind it.
    return re.compile(re.sub(r"\$$", r"\\Z", pattern))
