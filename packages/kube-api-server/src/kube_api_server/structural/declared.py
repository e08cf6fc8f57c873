"""Fields that a CEL rule selects although its schema does not declare them, also in lists of lists.

Kubernetes compiles rules against types derived from schemas. A part of a schema without a type
becomes no field, whatever its values, so no rule can read it:
https://kubernetes.io/docs/reference/using-api/cel/#type-checking
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from cel.expr import checked_pb2, syntax_pb2
from google.protobuf import any_pb2, message

from kube_api_server.structural import cel, cel_types
from kube_base.types.objects import Schema

_Scope = Mapping[str, Schema | None]
"""Schemas of variables; None if the type is unknown."""


def undefined(text: str, schema: Schema, *, resource: bool, optional_old: bool) -> Iterator[str]:
    """Yield an error, in the wording of CEL's compiler, for each undeclared field.

    `text` is a rule that compiles, at a part of a schema. `resource` is set at the root of a
    schema. The result of a function has no known type, so its fields are not checked.
    """
    try:
        packed = any_pb2.Any.FromString(cel.compile_rule(text).serialized())
        checked = checked_pb2.CheckedExpr.FromString(packed.value)
    except message.DecodeError:
        return  # The expression is nested more deeply than protobuf messages may be.
    own = schema | {"x-kubernetes-embedded-resource": True} if resource else schema
    walk = _Walk()
    walk.type_of(checked.expr, {"self": own, "oldSelf": None if optional_old else own})
    for number, field in walk.found:
        yield _located(text, checked.source_info.positions[number], field)


def _located(text: str, position: int, field: str) -> str:
    before, line = text[:position], text.split("\n")[text[:position].count("\n")]
    column = len(before) - (before.rfind("\n") + 1)
    at = f"<input>:{before.count(chr(10)) + 1}:{column + 1}"
    return f"{at}: undefined field '{field}'\n | {line}\n | {'.' * column}^"


class _Walk:
    """Walk over a syntax tree that collects selections of undeclared fields."""

    def __init__(self) -> None:
        self.found: list[tuple[int, str]] = []
        """IDs of expressions, and the fields that they select."""

    def type_of(self, expression: syntax_pb2.Expr, scope: _Scope) -> Schema | None:
        """Return the schema of an expression, None if it is unknown."""
        match expression.WhichOneof("expr_kind"):
            case "ident_expr":
                return scope.get(expression.ident_expr.name)
            case "select_expr":
                selected = expression.select_expr
                operand = self.type_of(selected.operand, scope)
                return self._select(expression.id, operand, selected.field)
            case "call_expr":
                return self._call(expression.id, expression.call_expr, scope)
            case "comprehension_expr":
                self._comprehension(expression.comprehension_expr, scope)
            case "list_expr":
                self._all(expression.list_expr.elements, scope)
            case "struct_expr":
                for entry in expression.struct_expr.entries:
                    self._all((entry.map_key, entry.value), scope)
        return None

    def _all(self, expressions: Iterable[syntax_pb2.Expr], scope: _Scope) -> list[Schema | None]:
        return [self.type_of(expression, scope) for expression in expressions]

    def _select(self, number: int, operand: Schema | None, field: str) -> Schema | None:
        if operand is None or operand.get("type") != "object":
            return None
        if "additionalProperties" in operand:
            return _element(operand)
        schema = _field(operand, field)
        if schema is None:
            self.found.append((number, field))
        return schema

    def _call(self, number: int, call: syntax_pb2.Expr.Call, scope: _Scope) -> Schema | None:
        if call.HasField("target"):
            self.type_of(call.target, scope)
        types = self._all(call.args, scope)
        match call.function:
            case "_[_]":
                return _element(types[0])
            case "_?_:_":
                return types[1] if types[1] == types[2] else None
            case "_?._":
                self._select(number, types[0], call.args[1].const_expr.string_value)
        return None

    def _comprehension(self, fold: syntax_pb2.Expr.Comprehension, scope: _Scope) -> None:
        """Walk a macro: `all`, `exists`, `exists_one`, `map`, `filter`, `bind`."""
        values = self.type_of(fold.iter_range, scope)
        of_list = values is not None and values.get("type") == "array"
        self.type_of(fold.accu_init, scope)
        inner = {**scope, fold.accu_var: None}
        variable = {fold.iter_var: _element(values) if of_list else None}
        self._all((fold.loop_condition, fold.loop_step), {**inner, **variable})
        self.type_of(fold.result, inner)


def _element(schema: Schema | None) -> Schema | None:
    """Return the schema of the items of a list, or of the values of a map."""
    schema_of_items = (schema or {}).get("items") or (schema or {}).get("additionalProperties")
    return schema_of_items if isinstance(schema_of_items, dict) else None


def _field(schema: Schema, name: str) -> Schema | None:
    """Return the schema of a field by its name in rules; None if it is not declared."""
    if schema.get("x-kubernetes-embedded-resource") and name in cel_types.OF_RESOURCES:
        of_resources: dict[str, Schema] = cel_types.OF_RESOURCES
        return of_resources[name]
    properties: Schema = schema.get("properties") or {}
    declared: Schema | None = next(
        (inner for key, inner in properties.items() if name in cel.property_names(key)), None
    )
    return declared if declared is not None and cel_types.has_type(declared) else None
