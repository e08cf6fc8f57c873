"""Estimates of what the evaluation of a CEL rule may cost at most, from its syntax tree.

The units, and the way from a rule to its cost, are those of CEL's Go implementation. A rule beyond
the limits could keep the server busy, so a definition that has one is invalid:
https://kubernetes.io/docs/reference/using-api/cel/#resource-constraints
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import msgspec
from cel.expr import checked_pb2, syntax_pb2
from google.protobuf import any_pb2, message

from kube_api_server.structural import cel_sizes
from kube_api_server.structural.cel_call_costs import Operand, SizedCall, call_cost
from kube_api_server.structural.cel_ranges import (
    LARGEST_COST,
    NOTHING,
    ONE,
    UNKNOWN_RANGE,
    EntrySizes,
    Range,
    exactly,
)
from kube_api_server.structural.cel_sizes import Declared

_NEW_LIST, _NEW_MAP, _NEW_OBJECT = exactly(10), exactly(30), exactly(40)
_ACCUMULATORS = ("@result", "__result__")
_FIXED = frozenset(
    {
        checked_pb2.Type.BOOL,
        checked_pb2.Type.INT64,
        checked_pb2.Type.UINT64,
        checked_pb2.Type.DOUBLE,
    }
)
"""Primitive types whose values all have one size."""

_TIMES = frozenset({checked_pb2.Type.TIMESTAMP, checked_pb2.Type.DURATION})
_TEXTS = frozenset({checked_pb2.Type.STRING, checked_pb2.Type.BYTES})
_EXTREMES = frozenset({"min", "max", "sum"})
"""Functions whose results have the type of the items."""

_Path = tuple[str, ...]


def largest_cost(serialized: bytes, declared: Declared) -> int:
    """Return what an expression may cost at most.

    ``serialized``: a cel.expr.CheckedExpr in a google.protobuf.Any. ``declared``: sizes of the
    values of `self`.
    """
    try:
        packed = any_pb2.Any.FromString(serialized)
        checked = checked_pb2.CheckedExpr.FromString(packed.value)
    except message.DecodeError:
        return 0  # The expression is nested more deeply than protobuf messages may be.
    return _Walk(checked, declared).cost(checked.expr).most


class _Variable(msgspec.Struct, frozen=True):
    """A variable of a macro."""

    path: _Path
    size: Range | None
    entries: EntrySizes | None = None


class _Walk:
    """Walk over a syntax tree that collects sizes by the number of an expression."""

    def __init__(self, checked: checked_pb2.CheckedExpr, declared: Declared) -> None:
        self._types, self._references = checked.type_map, checked.reference_map
        self._declared = declared
        self._paths: dict[int, _Path] = {}
        self._variables: defaultdict[str, list[_Variable]] = defaultdict(list)
        self._sizes: dict[int, Range] = {}
        self._entries: dict[int, EntrySizes] = {}

    def cost(self, expression: syntax_pb2.Expr) -> Range:
        """Return the cost of an expression."""
        match expression.WhichOneof("expr_kind"):
            case "ident_expr":
                name = expression.ident_expr.name
                variable = self._variable(name)
                self._paths[expression.id] = (name,) if variable is None else variable.path
                return ONE
            case "select_expr":
                return self._select(expression)
            case "call_expr":
                return self._call(expression)
            case "list_expr":
                return self._list(expression)
            case "struct_expr":
                return self._struct(expression)
            case "comprehension_expr":
                fold = expression.comprehension_expr
                bind = self._bind if _is_bind(fold) else self._comprehension
                return bind(expression)
            case _:
                return NOTHING

    def _sum(self, expressions: Iterable[syntax_pb2.Expr]) -> Range:
        return sum(map(self.cost, expressions), NOTHING)

    def _select(self, expression: syntax_pb2.Expr) -> Range:
        selected = expression.select_expr
        cost = self.cost(selected.operand)
        if selected.test_only:
            return cost
        self._paths[expression.id] = (*self._path(selected.operand), selected.field)
        kind = self._kind(selected.operand)
        return cost + ONE if kind in ("map_type", "message_type", "type_param") else cost

    def _list(self, expression: syntax_pb2.Expr) -> Range:
        elements = expression.list_expr.elements
        cost = self._sum(elements) + _NEW_LIST
        self._entries[expression.id] = EntrySizes(True, ONE, self._union(elements))
        return cost

    def _struct(self, expression: syntax_pb2.Expr) -> Range:
        entries = expression.struct_expr.entries
        values = [entry.value for entry in entries]
        if expression.struct_expr.message_name:
            return self._sum(values) + _NEW_OBJECT
        keys = [entry.map_key for entry in entries]
        cost = self._sum(keys) + self._sum(values) + _NEW_MAP
        self._entries[expression.id] = EntrySizes(False, self._union(keys), self._union(values))
        return cost

    def _union(self, expressions: Iterable[syntax_pb2.Expr]) -> Range:
        """Return the range of the sizes of expressions."""
        sizes = [self._size_or_unknown(expression) for expression in expressions]
        result = sizes[0] if sizes else NOTHING
        for size in sizes:
            result = result.union(size)
        return result

    def _call(self, expression: syntax_pb2.Expr) -> Range:
        call, number = expression.call_expr, expression.id
        if call.function == "dyn":
            argument = call.args[0]
            cost = self.cost(argument) + ONE
            self._copy(number, argument)
            return cost
        arguments = [self._operand(argument) for argument in call.args]
        target = self._operand(call.target) if call.HasField("target") else None
        overloads = self._references[number].overload_id
        cost, size = Range(LARGEST_COST, 0), None
        for overload in overloads:
            estimate = call_cost(call.function, overload, SizedCall(arguments, target))
            cost = cost.union(estimate.cost)
            if estimate.size is not None:
                size = estimate.size if size is None else size.union(estimate.size)
            if estimate.entries is not None:
                self._entries[number] = estimate.entries
            if overload in ("index_list", "index_map"):
                entries = self._entries_of(call.args[0])
                size = None if entries is None else entries.value
                step = cel_sizes.ITEMS if overload == "index_list" else cel_sizes.VALUES
                self._paths[number] = (*self._path(call.args[0]), step)
            if size is None:
                size = self._size(expression)
        if size is not None:
            self._sizes[number] = size
        if not overloads:
            return NOTHING
        return cost if target is None else cost + target.cost

    def _operand(self, expression: syntax_pb2.Expr) -> Operand:
        cost = self.cost(expression)
        kind = self._type(expression)
        items: Range | None = None
        if self._kind(expression) == "list_type":
            path = self._path(expression)
            declared = self._declared.at((*path[1:], cel_sizes.ITEMS)) if path else None
            items = UNKNOWN_RANGE if declared is None else Range(0, declared.longest)
        constant = expression.const_expr
        return Operand(
            cost,
            self._size_or_unknown(expression),
            self._entries_of(expression),
            items,
            kind.list_type.elem_type.primitive in _TEXTS,
            constant.int64_value if constant.HasField("int64_value") else None,
            expression.call_expr.function,
        )

    def _comprehension(self, expression: syntax_pb2.Expr) -> Range:
        """Return the cost of `all`, `exists`, `exists_one`, `map` and `filter`."""
        fold = expression.comprehension_expr
        cost = self.cost(fold.iter_range) + self.cost(fold.accu_init)
        with_result = self._variables[fold.accu_var]
        with_result.append(self._local(fold.accu_init))
        with_item = self._variables[fold.iter_var]
        with_item.append(self._item(fold.iter_range))
        step = self.cost(fold.loop_condition) + self.cost(fold.loop_step)
        with_item.pop()
        cost += self.cost(fold.result)
        with_result.pop()
        number = self._size_or_unknown(fold.iter_range)
        if fold.accu_init.HasField("const_expr"):
            size = self._size(fold.accu_init)
            if size is not None:
                self._sizes[expression.id] = size
        elif fold.accu_init.WhichOneof("expr_kind") in ("list_expr", "struct_expr"):
            self._sizes[expression.id] = number
            entries = self._entries_of(fold.loop_step)
            if entries is not None:
                self._entries[expression.id] = entries
        return cost + number * step

    def _bind(self, expression: syntax_pb2.Expr) -> Range:
        """Return the cost of `cel.bind`."""
        fold = expression.comprehension_expr
        cost = self.cost(fold.iter_range) + self.cost(fold.accu_init)
        self._variables[fold.accu_var].append(self._local(fold.accu_init))
        cost += self.cost(fold.result)
        self._variables[fold.accu_var].pop()
        self._copy(expression.id, fold.result)
        return cost

    def _local(self, value: syntax_pb2.Expr) -> _Variable:
        return _Variable(self._path(value), self._size(value), self._entries_of(value))

    def _item(self, values: syntax_pb2.Expr) -> _Variable:
        """Return the variable of an item of a list, or of a key of a map."""
        entries = self._entries_of(values)
        if entries is not None:
            of_list = entries.of_list
        else:
            of_list = self._kind(values) == "list_type"
        step = cel_sizes.ITEMS if of_list else cel_sizes.KEYS
        size = None if entries is None else entries.value if of_list else entries.key
        return _Variable((*self._path(values), step), size)

    def _variable(self, name: str) -> _Variable | None:
        variables = self._variables[name]
        return variables[-1] if variables else None

    def _path(self, expression: syntax_pb2.Expr) -> _Path:
        if expression.HasField("ident_expr"):
            variable = self._variable(expression.ident_expr.name)
            if variable is not None:
                return variable.path
        return self._paths.get(expression.id, ())

    def _copy(self, number: int, source: syntax_pb2.Expr) -> None:
        size, entries = self._size(source), self._entries_of(source)
        if size is not None:
            self._sizes[number] = size
        if entries is not None:
            self._entries[number] = entries

    def _size_or_unknown(self, expression: syntax_pb2.Expr) -> Range:
        size = self._size(expression)
        return UNKNOWN_RANGE if size is None else size

    def _size(self, expression: syntax_pb2.Expr) -> Range | None:
        """Return the size of an expression: number of characters, items or entries."""
        if expression.id in self._sizes:
            return self._sizes[expression.id]
        size = _literal_size(expression)
        if size is not None:
            return size
        path = self._path(expression)
        declared = self._declared.at(path[1:]) if path else None
        if declared is not None:
            self._sizes[expression.id] = Range(0, declared.longest)
            return self._sizes[expression.id]
        if _is_fixed(self._type(expression)):
            return ONE
        if expression.HasField("ident_expr"):
            variable = self._variable(expression.ident_expr.name)
            return None if variable is None else variable.size
        return None

    def _entries_of(self, expression: syntax_pb2.Expr) -> EntrySizes | None:
        if expression.id in self._entries:
            return self._entries[expression.id]
        if expression.HasField("ident_expr"):
            variable = self._variable(expression.ident_expr.name)
            return None if variable is None else variable.entries
        return None

    def _kind(self, expression: syntax_pb2.Expr) -> str:
        """Return the kind of the type of an expression, for lists of lists from the schema."""
        kind = self._types[expression.id].WhichOneof("type_kind") or "dyn"
        path = self._path(expression)
        declared = self._declared.at(path[1:]) if kind == "dyn" and path else None
        if declared is None:
            return kind
        if declared.items is not None:
            return "list_type" if declared.keys is None else "map_type"
        return "message_type" if declared.fields else kind

    def _type(self, expression: syntax_pb2.Expr) -> checked_pb2.Type:
        call = expression.call_expr
        if call.function in _EXTREMES and call.HasField("target"):
            return self._types[call.target.id].list_type.elem_type
        return self._types[expression.id]


def _literal_size(expression: syntax_pb2.Expr) -> Range | None:
    match expression.WhichOneof("expr_kind"):
        case "const_expr":
            constant = expression.const_expr
            value = getattr(constant, constant.WhichOneof("constant_kind") or "null_value")
            return exactly(len(value) if isinstance(value, str | bytes) else 1)
        case "list_expr":
            return exactly(len(expression.list_expr.elements))
        case "struct_expr" if not expression.struct_expr.message_name:
            return exactly(len(expression.struct_expr.entries))
        case _:
            return None


def _is_fixed(kind: checked_pb2.Type) -> bool:
    match kind.WhichOneof("type_kind"):
        case "primitive":
            return kind.primitive in _FIXED
        case "well_known":
            return kind.well_known in _TIMES
        case "abstract_type" if kind.abstract_type.name == "optional_type":
            return _is_fixed(kind.abstract_type.parameter_types[0])
        case _:
            return False


def _is_bind(fold: syntax_pb2.Expr.Comprehension) -> bool:
    return (
        fold.iter_range.HasField("list_expr")
        and not fold.iter_range.list_expr.elements
        and fold.loop_condition.const_expr.HasField("bool_value")
        and not fold.loop_condition.const_expr.bool_value
        and fold.accu_var not in _ACCUMULATORS
    )
