"""Compiled schemas: frequently used keywords are attributes, patterns are compiled."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, Protocol

import re2

from kube_base.runtime.quiet_re2 import quiet_options
from kube_base.types.builtin_types.schemas import NULL_ITEM, OMITTED, ZERO
from kube_base.types.objects import Schema
from kube_base.types.quantities import KEYWORD as QUANTITY


class Pattern(Protocol):
    """A compiled regular expression."""

    def search(self, text: str) -> Any:
        """Find the pattern anywhere in ``text``."""


_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


class SchemaNode:
    """One schema. Inner schemas are compiled on first use, because schemas may be cyclic."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.int_or_string = bool(schema.get("x-kubernetes-int-or-string"))
        kind = schema.get("type", "")
        self.type = "integer,string" if self.int_or_string else kind
        self.python_types = (int, str) if self.int_or_string else _PYTHON_TYPES.get(kind, ())
        self.omitted = bool(schema.get(OMITTED))
        """True for lists, maps and scalars of built-in kinds that are not written if empty."""
        self.null_item = schema.get(NULL_ITEM)
        """Value of the items of lists and maps of built-in kinds that are null."""
        self.nullable = bool(schema.get("nullable"))
        self.preserve = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
        self.quantity = bool(schema.get(QUANTITY))
        self.embedded = bool(schema.get("x-kubernetes-embedded-resource"))
        self.default = schema.get("default")
        self.required: tuple[str, ...] = tuple(schema.get("required") or ())
        self.enum = schema.get("enum")
        self.format: str = schema.get("format") or ""
        pattern = schema.get("pattern")
        self.pattern: Pattern | None = compile_pattern(pattern) if pattern else None
        self.min_length, self.max_length = schema.get("minLength"), schema.get("maxLength")
        self.min_items, self.max_items = schema.get("minItems"), schema.get("maxItems")
        self.min_properties = schema.get("minProperties")
        self.max_properties = schema.get("maxProperties")
        self.numeric = any(key in schema for key in ("minimum", "maximum", "multipleOf"))
        self.unique = bool(schema.get("uniqueItems"))
        self.list_type: str = schema.get("x-kubernetes-list-type") or "atomic"
        self.list_keys: tuple[str, ...] = tuple(schema.get("x-kubernetes-list-map-keys") or ())
        self.rules: list[Schema] = schema.get("x-kubernetes-validations") or []
        self.combined = any(schema.get(key) for key in ("allOf", "anyOf", "oneOf", "not"))
        self.children: dict[str, SchemaNode] = {}
        """Nodes of properties, filled on first use."""

    def property(self, name: str) -> SchemaNode | None:
        """Return the node of a named property; None if the schema does not name it."""
        child = self.children.get(name)
        if child is None:
            inner = self.properties.get(name)
            if inner is None:
                return None
            child = self.children[name] = node_of(inner)
        return child

    @functools.cached_property
    def properties(self) -> dict[str, Schema]:
        """Schemas of named properties."""
        return self.schema.get("properties") or {}

    @functools.cached_property
    def defaulted(self) -> list[str]:
        """Properties with a default. A default of null counts only if null is a zero value."""
        return [
            name
            for name, inner in self.properties.items()
            if inner.get("default") is not None or inner.get(ZERO)
        ]

    @functools.cached_property
    def quantities(self) -> list[str]:
        """Properties that are quantities."""
        return [name for name, inner in self.properties.items() if inner.get(QUANTITY)]

    @functools.cached_property
    def additional(self) -> SchemaNode | None:
        """Node of unnamed properties; None if they are not allowed."""
        inner = self.schema.get("additionalProperties")
        if inner is True:
            return ANYTHING
        return node_of(inner) if isinstance(inner, dict) else None

    @functools.cached_property
    def items(self) -> SchemaNode | None:
        """Node of the items of a list."""
        inner = self.schema.get("items")
        return node_of(inner) if isinstance(inner, dict) else None

    @functools.cached_property
    def all_of(self) -> list[SchemaNode]:
        """Nodes of `allOf`."""
        return [node_of(inner) for inner in self.schema.get("allOf") or ()]

    @functools.cached_property
    def any_of(self) -> list[SchemaNode]:
        """Nodes of `anyOf`."""
        return [node_of(inner) for inner in self.schema.get("anyOf") or ()]

    @functools.cached_property
    def one_of(self) -> list[SchemaNode]:
        """Nodes of `oneOf`."""
        return [node_of(inner) for inner in self.schema.get("oneOf") or ()]

    @functools.cached_property
    def none_of(self) -> SchemaNode | None:
        """Node of `not`."""
        inner = self.schema.get("not")
        return node_of(inner) if inner else None

    @functools.cached_property
    def ruled(self) -> bool:
        """True if this schema or an inner one has CEL rules."""
        return _contains(self.schema, set(), lambda inner: "x-kubernetes-validations" in inner)

    @functools.cached_property
    def keyed(self) -> bool:
        """True if this schema or an inner one has sets or associative lists."""
        return _contains(
            self.schema,
            set(),
            lambda inner: inner.get("x-kubernetes-list-type") in ("set", "map"),
        )


def _contains(schema: Schema, visited: set[int], test: Callable[[Schema], bool]) -> bool:
    if id(schema) in visited:
        return False
    visited.add(id(schema))
    if test(schema):
        return True
    inner = list((schema.get("properties") or {}).values())
    inner += [schema.get("items"), schema.get("additionalProperties")]
    inner += schema.get("allOf") or []
    return any(isinstance(part, dict) and _contains(part, visited, test) for part in inner)


_NODES: dict[int, tuple[Schema, SchemaNode]] = {}


def node_of(schema: Schema) -> SchemaNode:
    """Return the node of a schema. The same dict has the same node."""
    cached = _NODES.get(id(schema))
    if cached is None or cached[0] is not schema:
        cached = _NODES[id(schema)] = (schema, SchemaNode(schema))
    return cached[1]


def forget(schema: Schema) -> None:
    """Remove the nodes of a schema that is no longer served."""
    cached = _NODES.pop(id(schema), None)
    if cached is None or cached[0] is not schema:
        return
    inner = list((schema.get("properties") or {}).values())
    inner += [schema.get("items"), schema.get("additionalProperties")]
    for key in ("allOf", "anyOf", "oneOf"):
        inner += schema.get(key) or []
    for part in inner:
        if isinstance(part, dict):
            forget(part)


@functools.lru_cache(4096)
def compile_pattern(pattern: str) -> Pattern:
    """Compile a pattern with RE2. Patterns that RE2 rejects are compiled with Python's `re`."""
    try:
        compiled: Pattern = re2.compile(pattern, quiet_options())
    except re2.error:
        return re.compile(re.sub(r"\$$", r"\\Z", pattern))
    return compiled


ANYTHING = SchemaNode({"x-kubernetes-preserve-unknown-fields": True})
