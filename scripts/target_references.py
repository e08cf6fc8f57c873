"""Schemas of references from policies and filters to other objects."""

from __future__ import annotations

from openapi_schemas import NAME, Schema, checked, fields, one_of, several

GATEWAY_API = "gateway.networking.k8s.io"

TARGET = fields("group kind name", group={"type": "string", "maxLength": 253}, kind=NAME, name=NAME)


def targets(*kinds: str, groups: tuple[str, ...] = (GATEWAY_API,)) -> Schema:
    """Return the schema of ``targetRefs``."""
    listed = ", ".join(f"'{kind}'" for kind in kinds)
    group_list = ", ".join(f"'{group}'" for group in groups)
    names = " or ".join(group or "empty" for group in groups)
    return several(
        TARGET,
        (f"self.all(t, t.kind in [{listed}])", f"kind must be one of {', '.join(kinds)}"),
        (f"self.all(t, t.group in [{group_list}])", f"group must be {names}"),
        (
            "self.all(a, self.exists_one(b, a.kind == b.kind && a.name == b.name))",
            "an object may be named once",
        ),
        least=1,
        most=16,
    )


def target(*kinds: str) -> Schema:
    """Return the schema of ``targetRef``."""
    listed = ", ".join(f"'{kind}'" for kind in kinds)
    return TARGET | {
        "x-kubernetes-validations": [
            checked(f"self.kind in [{listed}]", f"kind must be one of {', '.join(kinds)}"),
            checked(f"self.group == '{GATEWAY_API}'", f"group must be {GATEWAY_API}"),
        ]
    }


REFERENCE = fields("name", name=NAME)


def object_reference(*kinds: str) -> Schema:
    """Return the schema of a reference to an object of the core group, in any namespace."""
    return fields(
        "kind name",
        group={"type": "string", "enum": [""]},
        kind=one_of(*kinds),
        name=NAME,
        namespace={"type": "string", "minLength": 1, "maxLength": 63},
    )
