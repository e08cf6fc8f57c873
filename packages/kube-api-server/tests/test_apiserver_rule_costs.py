"""Limits of the estimated cost of CEL rules in CRDs, and rules on old values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from kube_api_server.objects import crd_validation
from kube_api_server.structural import cel_types
from kube_api_server.structural.cel_costs import largest_cost
from kube_api_server.structural.cel_ranges import LARGEST_COST
from kube_api_server.structural.cel_sizes import declared_sizes
from kube_api_server.structural.compiled import compile_schema
from kube_api_server.structural.schema_validation import check_schema

Schema = dict[str, Any]

RECORDED = yaml.safe_load(Path(__file__).with_name("rule_costs.yaml").read_text())
TEXT: Schema = {"type": "string"}
SHORT: Schema = {"type": "string", "maxLength": 10}
COSTLY = "self.contains(self)"
"""A rule that costs about 10^11 for a text without a maximum length, and 18 for a short one."""
ADVICE = (
    " (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, "
    "maps, and strings are declared)"
)


def ruled(schema: Schema, *rules: str, **more: Any) -> Schema:
    return schema | {"x-kubernetes-validations": [{"rule": rule, **more} for rule in rules]}


def spec(schema: Schema) -> Schema:
    return {"type": "object", "properties": {"spec": schema}}


def causes(schema: Schema) -> list[tuple[str, str]]:
    return [
        (cause.field.replace(".properties[spec]", ""), cause.message.removesuffix(ADVICE))
        for cause in check_schema(spec(schema), "schema")
    ]


@pytest.mark.parametrize(("rule", "cost"), RECORDED["costs"].items())
def test_cost_of_rule_is_that_of_kubernetes(rule: str, cost: int) -> None:
    schema = RECORDED["schema"]
    environment = cel_types.typed_environment(schema, resource=True, optional_old=False)
    sizes = declared_sizes(schema, resource=True)
    assert sizes is not None
    assert largest_cost(cel_types.compile_typed(rule, environment).serialized(), sizes) == cost


@pytest.mark.parametrize(
    ("schema", "factor"),
    [
        (ruled(TEXT, COSTLY), "more than 100x"),
        (ruled(SHORT, COSTLY), ""),
        ({"type": "array", "items": ruled(SHORT, COSTLY)}, "1.9x"),
        ({"type": "array", "maxItems": 100, "items": ruled(SHORT, COSTLY)}, ""),
        ({"type": "object", "additionalProperties": ruled(SHORT, COSTLY)}, "1.9x"),
        ({"type": "object", "maxProperties": 9, "additionalProperties": ruled(SHORT, COSTLY)}, ""),
        (ruled({"type": "string", "maxLength": 26_000}, "self.contains('a' + self)"), "10.8x"),
    ],
)
def test_rule_above_limit_is_forbidden(schema: Schema, factor: str) -> None:
    reported = [message for _, message in causes(schema) if "entire" not in message]
    expected = f"Forbidden: estimated rule cost exceeds budget by factor of {factor}"
    assert reported == ([expected] if factor else [])


def test_message_above_limit_is_forbidden() -> None:
    schema = ruled(TEXT, "true", messageExpression="self.contains(self) ? 'a' : 'b'")
    rule = "schema.x-kubernetes-validations[0]"
    expected = "Forbidden: estimated messageExpression cost exceeds budget by factor of"
    assert causes(schema)[0] == (f"{rule}.messageExpression", f"{expected} more than 100x")


def test_total_above_limit_names_the_most_expensive_rules() -> None:
    rules = [f"self.matches('{'a' * length}')" for length in (20, 60, 40, 30, 50)]
    schema = {"type": "object", "properties": {"a": ruled(TEXT, *rules * 7)}}
    reported = causes(schema)
    named = [field.split("[")[-1] for field, message in reported if "contributed" in message]
    assert named == [f"{index}].rule" for index in (1, 6, 11, 16)]
    name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
    assert reported[-1] == ("schema", f"Forbidden: {name} exceeds budget by factor of 1.123026x")


def test_unchanged_schema_is_not_checked_again() -> None:
    """An upgrade of the server must not make stored definitions read-only."""
    definition = crd(ruled(TEXT, COSTLY))
    assert list(crd_validation.check_crd(definition, None))
    assert not list(crd_validation.check_crd(definition, definition))


def test_costs_do_not_exceed_the_largest_number() -> None:
    schema = {"type": "array", "items": TEXT}
    rule = "self.all(a, self.all(b, self.all(c, self.all(d, a == b))))"
    environment = cel_types.typed_environment(schema, resource=False, optional_old=False)
    sizes = declared_sizes(schema)
    assert sizes is not None
    serialized = cel_types.compile_typed(rule, environment).serialized()
    assert largest_cost(serialized, sizes) == LARGEST_COST


@pytest.mark.parametrize(
    ("schema", "within"),
    [
        (ruled(SHORT, "self == oldSelf"), ""),
        ({"type": "array", "maxItems": 3, "items": ruled(SHORT, "self == oldSelf")}, "schema"),
        (
            {
                "type": "array",
                "maxItems": 3,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": ruled(
                    {"type": "object", "properties": {"name": SHORT}}, "self == oldSelf"
                ),
            },
            "",
        ),
        (
            {
                "type": "object",
                "maxProperties": 3,
                "additionalProperties": ruled(SHORT, "self == oldSelf"),
            },
            "",
        ),
        (
            {
                "type": "object",
                "x-kubernetes-map-type": "atomic",
                "properties": {"a": ruled(SHORT, "self == oldSelf")},
            },
            "schema",
        ),
        ({"type": "array", "maxItems": 3, "items": ruled(SHORT, "self != 'oldSelf'")}, ""),
    ],
)
def test_rule_on_old_value_needs_one(schema: Schema, within: str) -> None:
    why = "oldSelf cannot be used on the uncorrelatable portion of the schema within"
    reported = [message for _, message in causes(schema)]
    path = "schema.properties[spec]"
    expected = f'Invalid value: "self == oldSelf": {why} {path}'
    assert reported == ([expected] if within else [])


def test_optional_old_value_must_be_used() -> None:
    [reported] = causes(ruled(SHORT, "self == 'a'", optionalOldSelf=True))
    why = "may not be set if oldSelf is not used in rule"
    field = "schema.x-kubernetes-validations[0].optionalOldSelf"
    assert reported == (field, f"Invalid value: true: {why}")


def crd(schema: Schema) -> Schema:
    version = {"name": "v1", "served": True, "storage": True}
    return {
        "metadata": {"name": "things.costs.example"},
        "spec": {
            "group": "costs.example",
            "names": {"plural": "things", "kind": "Thing"},
            "scope": "Namespaced",
            "versions": [version | {"schema": {"openAPIV3Schema": spec(schema)}}],
        },
    }


PAIRS = "self.all(x, self.all(y, x == y))"
"""A rule with as many iterations as there are pairs of items."""


@pytest.mark.parametrize(("items", "allowed"), [(99, True), (100, False)])
def test_evaluation_with_more_than_10000_iterations_is_invalid(items: int, allowed: bool) -> None:
    values = {"type": "array", "items": TEXT}
    schema = compile_schema(spec(ruled(values, PAIRS, "self.size() < 0")))
    violations = [
        (cause.field, cause.message) for cause in schema.validate({"spec": ["a"] * items}, None)
    ]
    exceeded = (
        "Invalid value: \"array\": 'operation cancelled: actual cost limit exceeded': no further "
        f"validation rules will be run due to call cost exceeds limit for rule: {PAIRS}"
    )
    failed = 'Invalid value: "array": failed rule: self.size() < 0'
    assert violations == [("spec", failed if allowed else exceeded)]
