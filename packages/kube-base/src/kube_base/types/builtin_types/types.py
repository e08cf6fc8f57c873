"""Parser of the table of types, `kinds.txt`.

A line without indentation names a type (`atomic`: merged as a whole). The lines under it are its
fields: name, protobuf field number (`2.5`: field 5 of a message embedded as field 2; 0: never in
protobuf), type, and flags. Types are scalars, names of types, `[]` a list, `{}` a map with string
keys. Flags: `required`; `pointer`, a struct that may be absent, or a scalar whose zero is a value;
`always`, written even if absent, as its zero value; `default=` JSON; `map=` keys, `set` and
`atomic`, how server-side apply merges; `merge=` key and `retainKeys`, how a strategic merge patch
merges.
"""

from __future__ import annotations

import functools
import json
from importlib import resources
from typing import Any

import msgspec

SCALARS = frozenset(
    [
        "string",
        "int32",
        "int64",
        "double",
        "bool",
        "bytes",
        "intstr",
        "quantity",
        "time",
        "microtime",
        "raw",
        "fields",
        "any",
    ]
)


class TypeField(msgspec.Struct, frozen=True):
    """A field of a type."""

    name: str
    path: tuple[int, ...]
    """Protobuf field numbers from the outermost message inwards; empty if it has none."""
    type: str
    required: bool = False
    pointer: bool = False
    always: bool = False
    default: Any = None
    list_keys: tuple[str, ...] = ()
    """Keys of an associative list."""
    merge: str = ""
    """Merge strategy of server-side apply for lists and maps: `map`, `set` or `atomic`."""
    patch_key: str | None = None
    """Key by which a strategic merge patch merges items; empty for lists of scalars."""
    retain_keys: bool = False


class Type(msgspec.Struct, frozen=True):
    """A type of the table."""

    name: str
    atomic: bool
    fields: dict[str, TypeField]
    open: bool
    """True if the type accepts any value, because only Go code defines it."""


@functools.cache
def types_by_name() -> dict[str, Type]:
    """Return all types by name, such as `core.v1.ServicePort`."""
    text = resources.files(__package__).joinpath("kinds.txt").read_text(encoding="utf-8")
    result: dict[str, Type] = {}
    name, atomic, fields = "", False, list[TypeField]()
    for line in [*text.splitlines(), ""]:
        if line.startswith("#"):
            continue
        if line.startswith("  "):
            fields.append(_field(line.split(maxsplit=3)))
            continue
        if name:
            known = {field.name: field for field in fields if field.name != "*"}
            result[name] = Type(name, atomic, known, len(known) < len(fields))
        name, _, flag = line.partition(" ")
        atomic, fields = flag == "atomic", []
    return result


def _field(parts: list[str]) -> TypeField:
    if parts[0] == "*":
        return TypeField("*", (), "any")
    name, path, kind, *rest = parts
    head, _, default = (" " + "".join(rest)).partition(" default=")
    flags = dict(flag.partition("=")[::2] for flag in head.split())
    merge = next((word for word in ("map", "set", "atomic") if word in flags), "")
    return TypeField(
        name,
        () if path == "0" else tuple(map(int, path.split("."))),
        kind,
        required="required" in flags,
        pointer="pointer" in flags,
        always="always" in flags,
        default=json.loads(default) if default else None,
        list_keys=tuple(flags["map"].split(",")) if "map" in flags else (),
        merge=merge,
        patch_key=flags.get("merge"),
        retain_keys="retainKeys" in flags,
    )
