"""Public interface of a compiled schema."""

from __future__ import annotations

from kube_api_server.errors import Cause
from kube_api_server.structural import cel_validation, list_uniqueness, prune_default, validate
from kube_api_server.structural.schema_node import SchemaNode, node_of
from kube_base.types.objects import Object, Schema

BLOCKING = frozenset(
    {
        "FieldValueNotSupported",
        "FieldValueRequired",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueTypeInvalid",
    }
)
"""Violations after which rules cannot be evaluated."""

UNCHECKED = Cause(
    "FieldValueInvalid",
    "Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation",
    "<nil>",
)


class CompiledSchema:
    """A schema of complete objects. Does not cover apiVersion, kind and metadata."""

    def __init__(self, schema: Schema) -> None:
        self.node: SchemaNode = node_of(schema)

    def prepare(self, obj: Object, *, nulls: bool = False) -> list[str]:
        """Prune unknown fields and set defaults in place. Return the paths of unknown fields.

        `nulls` leaves nulls of fields without a default, which are invalid.
        """
        preparation = prune_default.Preparation(nulls=nulls)
        preparation.prepare_object(self.node, obj)
        return preparation.unknown

    def prune(self, obj: Object) -> list[str]:
        """Prune unknown fields in place, without setting defaults. Return their paths."""
        unknown: list[str] = []
        prune_default.prune_object(self.node, obj, unknown)
        return unknown

    def validate(self, new: Object, old: Object | None, *, blocked: bool = False) -> list[Cause]:
        """Return the violations of `new`. Parts that are unchanged since `old` are not validated.

        `blocked` skips the evaluation of rules, because of violations elsewhere.
        """
        causes = validate.validate_object(self.node, new, old)
        if self.node.keyed and (
            old is None or not list_uniqueness.duplicate_items(self.node, old, "")
        ):
            causes += list_uniqueness.duplicate_items(self.node, new, "")
        if self.node.ruled:
            if any(cause.reason in BLOCKING for cause in causes):
                causes.append(UNCHECKED)
            elif not blocked:
                causes += cel_validation.evaluate_rules(self.node, new, old)
        return causes


def compile_schema(schema: Schema) -> CompiledSchema:
    """Compile a schema. It may contain itself."""
    return CompiledSchema(schema)
