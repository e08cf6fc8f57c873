"""Schemas of filters follow from the views that decode them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import gatehouse_dev
import msgspec
import pytest
from view_schemas import spec_schema

from gatehouse.apis.meta import KubernetesObject, View
from gatehouse.compiler.frontends.gateway_api.compiled_filters import Filters
from gatehouse.compiler.frontends.gateway_api.extensions.extension_filters import ExtensionFilter

RULE = {"rule": "self.least < 9", "message": "least must be below 9"}


def described(text: str, **limits: Any) -> msgspec.Meta:
    """Return the annotation of a field."""
    return msgspec.Meta(description=text, **limits)


class Entry(View, frozen=True):
    """An entry of the list. A field that contains it has a description of its own."""

    source_name: Annotated[str, described("Name.", min_length=1, pattern="^[a-z]+$")]
    kind: Annotated[Literal["Header", "Cookie"], described("Kind.")] = "Header"


class ExampleSpec(View, frozen=True):
    """``spec`` of the example."""

    entries: Annotated[tuple[Entry, ...], described("Entries.", min_length=1, max_length=4)]
    nested: Annotated[Entry | None, described("Nested entry.")] = None
    texts: Annotated[dict[str, str], described("Texts.")] = msgspec.field(default_factory=dict)
    least: Annotated[int, described("Minimum.", ge=1, le=8)] = 1
    name: Annotated[str, described("Text.")] = ""
    is_strict: Annotated[bool, described("Whether it is strict.")] = False


class ExampleFilter(KubernetesObject, frozen=True):
    """Filter of an example,
    which no proxy serves."""

    spec: Annotated[
        ExampleSpec, msgspec.Meta(extra_json_schema={"x-kubernetes-validations": [RULE]})
    ]


def test_schema_has_the_fields_limits_and_rules_of_the_view() -> None:
    entry = {
        "type": "object",
        "properties": {
            "sourceName": {
                "type": "string", "description": "Name.", "minLength": 1, "pattern": "^[a-z]+$",
            },
            "kind": {
                "type": "string", "description": "Kind.", "enum": ["Cookie", "Header"],
                "default": "Header",
            },
        },
        "required": ["sourceName"],
    }  # fmt: skip
    assert spec_schema(ExampleFilter) == {
        "description": "Filter of an example, which no proxy serves.",
        "type": "object",
        "properties": {
            "entries": {
                "type": "array", "description": "Entries.", "items": entry, "minItems": 1,
                "maxItems": 4,
            },
            "nested": {**entry, "description": "Nested entry."},
            "texts": {
                "type": "object", "description": "Texts.",
                "additionalProperties": {"type": "string"},
            },
            "least": {
                "type": "integer", "description": "Minimum.", "minimum": 1, "maximum": 8,
                "default": 1,
            },
            "name": {"type": "string", "description": "Text."},
            "isStrict": {
                "type": "boolean", "description": "Whether it is strict.", "default": False,
            },
        },
        "required": ["entries"],
        "x-kubernetes-validations": [RULE],
    }  # fmt: skip


def test_filter_of_gatehouse_is_defined_by_its_record() -> None:
    record = ExtensionFilter(ExampleFilter, lambda _ask, _key: Filters())
    other = ExtensionFilter(ExampleFilter, record.translate, "gateway.nginx.org")
    (crd,) = gatehouse_dev.filter_definitions((record, other))
    assert crd["metadata"]["name"] == "examplefilters.gatehouse.dev"
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert schema["description"] == "Filter of an example, which no proxy serves."
    assert schema["properties"]["spec"]["properties"]["least"]["description"] == (
        "Minimum. Default: 1."
    )


class SilentSpec(View, frozen=True):
    """``spec`` of a filter without descriptions."""

    name: str


class SilentFilter(KubernetesObject, frozen=True):
    """Filter without descriptions."""

    spec: SilentSpec


def test_field_of_a_filter_without_a_description_is_refused() -> None:
    record = ExtensionFilter(SilentFilter, lambda _ask, _key: Filters())
    with pytest.raises(KeyError, match="name"):
        list(gatehouse_dev.filter_definitions((record,)))
