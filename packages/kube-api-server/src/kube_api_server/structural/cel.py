"""CEL: rules are compiled once and evaluated on views of JSON values."""

from __future__ import annotations

import functools
import re
from datetime import datetime
from typing import Any

from cel_expr_python import cel
from cel_expr_python.ext import ext_bindings, ext_math, ext_optional, ext_strings

from kube_api_server.structural.cel_library import functions
from kube_api_server.structural.schema_node import SchemaNode


class _Absent:
    """Marker for an old value that does not exist."""


NO_OLD_VALUE = _Absent()


class EvaluationError:
    """An evaluation that failed."""

    def __init__(self, text: str) -> None:
        self.text = text


class CostLimitError(EvaluationError):
    """An evaluation with more iterations of loops than the library allows, which is 10,000."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")


class Program:
    """A compiled expression."""

    def __init__(self, expression: Any) -> None:
        self._expression = expression

    def serialized(self) -> bytes:
        """Return the checked syntax tree: a cel.expr.CheckedExpr in a google.protobuf.Any."""
        data: bytes = self._expression.serialize()
        return data

    @property
    def result_type(self) -> Any:
        """Type of the value."""
        return self._expression.return_type()

    def run(self, activation: Any) -> Any:
        """Return the value of the expression, or an EvaluationError."""
        try:
            result = self._expression.eval(activation)
        except (RuntimeError, TypeError, ValueError) as error:
            is_limit = "Iteration budget exceeded" in str(error)
            return CostLimitError() if is_limit else EvaluationError(str(error))
        if result.type() == cel.Type.ERROR:
            return EvaluationError(_go_message(result.value()))
        return result.value()


def _go_message(error: str) -> str:
    """Return an error in the wording of CEL's Go implementation where that is known."""
    matched = re.search(r'Key not found in map : "(.*)"', error)
    if matched:
        return f"no such key: {matched[1]}"
    matched = re.search(r"index=(-?\d+) size", error)
    if matched:
        return f"index out of bounds: {matched[1]}"
    if "String to Duration conversion failed" in error:
        return "type conversion error from 'string' to 'google.protobuf.Duration'"
    if "No matching overloads" in error:
        return "no such overload"
    return error.partition(": ")[2] or error


@functools.cache
def cel_environment() -> Any:
    """Return the environment for the compilation of rules."""
    return cel.NewEnv(
        variables={
            "self": cel.Type.DYN,
            "oldSelf": cel.Type.DYN,
            "present": cel.Type.BOOL,
            "before": cel.Type.DYN,
            "object": cel.Type.DYN,
            "oldObject": cel.Type.DYN,
            "request": cel.Type.DYN,
            "params": cel.Type.DYN,
            "namespaceObject": cel.Type.DYN,
            "variables": cel.Type.DYN,
        },
        extensions=extensions(),
    )


@functools.cache
def extensions() -> list[Any]:
    """Return the libraries of all environments."""
    return [
        ext_strings.ExtStrings(),
        ext_optional.ExtOptional(),
        ext_bindings.ExtBindings(),
        ext_math.ExtMath(),
        cel.CelExtension("kubernetes", functions()),
    ]


@functools.lru_cache(8192)
def compile_rule(text: str, *, optional_old: bool = False) -> Program:
    """Compile a rule. Raises ValueError with the compiler's message."""
    whole = text
    if optional_old and uses_variable(text, "oldSelf"):
        whole = f"cel.bind(oldSelf, present ? optional.of(before) : optional.none(), {text})"
    try:
        return Program(cel_environment().compile(whole))
    except RuntimeError as error:
        raise ValueError(str(error).partition("ERROR: ")[2] or str(error)) from error


def uses_variable(text: str, name: str) -> bool:
    """Return whether an expression uses a variable."""
    return re.search(rf"(?<![\w.\"']){name}\b", text) is not None


def activation(value: Any, old: Any) -> Any:
    """Bind `self` and `oldSelf`."""
    if old is NO_OLD_VALUE:
        data = {"self": value, "present": False, "before": None}
    else:
        data = {"self": value, "oldSelf": old, "present": True, "before": old}
    return cel_environment().Activation(data)


def bind(**data: Any) -> Any:
    """Bind variables by name."""
    return cel_environment().Activation(data)


_KEYWORDS = frozenset(
    {
        "true", "false", "null", "in", "as", "break", "const", "continue", "else", "for",
        "function", "if", "import", "let", "loop", "package", "namespace", "return", "var",
        "void", "while",
    }
)  # fmt: skip
_SYMBOLS = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_ESCAPED = re.compile(r"__|\.|-|/")


@functools.lru_cache(4096)
def property_names(name: str) -> tuple[str, ...]:
    """Return the names of a property in rules. A reserved word is known by two names."""
    if name in _KEYWORDS:
        return f"__{name}__", name
    return (_ESCAPED.sub(lambda match: _SYMBOLS[match[0]], name),)


def view(node: SchemaNode, value: Any) -> Any:
    """Return a value as rules see it: escaped names, typed numbers and times.

    An unchanged value is returned as the same object, so that most values are not copied.
    """
    if isinstance(value, dict):
        return _map(node, value)
    if isinstance(value, list):
        items = node.items
        if items is None or not items.python_types:
            return value
        converted = [view(items, item) for item in value]
        return (
            converted if any(a is not b for a, b in zip(converted, value, strict=True)) else value
        )
    if node.type == "number" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if node.format == "date-time" and isinstance(value, str):
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            return value
    return value


def _map(node: SchemaNode, value: dict[str, Any]) -> dict[str, Any]:
    changed: dict[str, Any] | None = None
    for name, item in value.items():
        inner = node.property(name)
        names = property_names(name) if inner is not None else (name,)
        inner = inner or node.additional
        converted = item if inner is None else view(inner, item)
        if (names != (name,) or converted is not item) and changed is None:
            changed = {}
            for earlier, before in value.items():
                if earlier == name:
                    break
                changed[earlier] = before
        if changed is not None:
            changed |= dict.fromkeys(names, converted)
    return value if changed is None else changed
