"""Evaluation of `x-kubernetes-validations` over a value.

https://kubernetes.io/docs/reference/using-api/cel
"""

from __future__ import annotations

from typing import Any

from kube_api_server.causes import duplicate_cause, forbidden_cause, invalid_cause, required_cause
from kube_api_server.errors import Cause
from kube_api_server.structural import cel, list_keys
from kube_api_server.structural.schema_node import SchemaNode
from kube_base.types.objects import Schema

_ABSENT = cel.NO_OLD_VALUE


class _CallCostError(Exception):
    """A rule that costs too much: no other rule of the object is evaluated."""

    def __init__(self, cause: Cause) -> None:
        super().__init__(cause.message)
        self.cause = cause


class CELRule:
    """A compiled rule."""

    def __init__(self, rule: Schema) -> None:
        self.text: str = rule["rule"].strip()
        self.message: str = (rule.get("message") or "").strip()
        self.reason: str = rule.get("reason") or ""
        self.field: str = rule.get("fieldPath") or ""
        self.optional_old = bool(rule.get("optionalOldSelf"))
        self.program = cel.compile_rule(self.text, optional_old=self.optional_old)
        self.transition = cel.uses_variable(self.text, "oldSelf")
        expression = rule.get("messageExpression")
        self.message_program = cel.compile_rule(expression) if expression else None

    def cause(self, node: SchemaNode, activation: Any, path: str) -> Cause | None:
        """Return the violation; None if the rule holds. Raises _CallCostError."""
        result = self.program.run(activation)
        kind = node.type or "object"
        if result is True:
            return None
        if isinstance(result, cel.CostLimitError):
            why = (
                f"'{result.text}': no further validation rules will be run due to call cost "
                f"exceeds limit for rule: {self.message or self.text}"
            )
            raise _CallCostError(invalid_cause(path or "<nil>", kind, why))
        if isinstance(result, cel.EvaluationError):
            why = f"{result.text} evaluating rule: {self.message or self.text}"
            return invalid_cause(path or "<nil>", kind, why)
        field = f"{path}{self.field}" if self.field.startswith("[") else path + self.field
        return _cause(self.reason, kind, self._message(activation), field.lstrip(".") or "<nil>")

    def _message(self, activation: Any) -> str:
        if self.message_program is not None:
            message = self.message_program.run(activation)
            if isinstance(message, str) and message.strip() and "\n" not in message.strip():
                return message.strip()
        return self.message or f"failed rule: {self.text}"


def _cause(reason: str, kind: str, detail: str, field: str) -> Cause:
    match reason:
        case "FieldValueForbidden":
            return forbidden_cause(field, detail)
        case "FieldValueRequired":
            return required_cause(field, detail)
        case "FieldValueDuplicate":
            return duplicate_cause(field, kind)
    return invalid_cause(field, kind, detail)


_RULES: dict[int, tuple[SchemaNode, list[CELRule]]] = {}


def rules_of(node: SchemaNode) -> list[CELRule]:
    """Return the compiled rules of a node. Raises ValueError if one does not compile."""
    cached = _RULES.get(id(node))
    if cached is None or cached[0] is not node:
        cached = _RULES[id(node)] = (node, [CELRule(rule) for rule in node.rules])
    return cached[1]


def evaluate_rules(node: SchemaNode, new: Any, old: Any) -> list[Cause]:
    """Return the violations of all rules of an object."""
    causes: list[Cause] = []
    before = _ABSENT if old is None else old
    try:
        _walk(node, new, before, "", causes, unchanged=False)
    except _CallCostError as error:
        causes.append(error.cause)
    return causes


def _walk(
    node: SchemaNode, value: Any, old: Any, path: str, causes: list[Cause], *, unchanged: bool
) -> None:
    if value is None or not node.ruled:
        return
    unchanged = unchanged or (old is not _ABSENT and value == old)
    if node.rules:
        _apply(node, value, old, path, causes, unchanged=unchanged)
    for inner in node.all_of:
        if inner.rules:
            _apply(inner, value, old, path, causes, unchanged=unchanged)
    if isinstance(value, dict):
        before = old if isinstance(old, dict) else {}
        for name, item in value.items():
            inner_node = node.property(name)
            if inner_node is not None:
                field = f"{path}.{name}" if path else name
            elif node.additional is not None:
                inner_node, field = node.additional, f"{path}[{name}]"
            else:
                continue
            gone = before.get(name, _ABSENT)
            _walk(inner_node, item, gone, field, causes, unchanged=unchanged)
    elif isinstance(value, list) and node.items is not None and node.items.ruled:
        former = list_keys.FormerItems(node, old, _ABSENT)
        for index, item in enumerate(value):
            gone = former.counterpart(item)
            _walk(node.items, item, gone, f"{path}[{index}]", causes, unchanged=unchanged)


def _apply(
    node: SchemaNode, value: Any, old: Any, path: str, causes: list[Cause], *, unchanged: bool
) -> None:
    activation = None
    for rule in rules_of(node):
        if rule.transition:
            if old is _ABSENT and not rule.optional_old:
                continue
        elif unchanged:
            continue
        if activation is None:
            activation = cel.activation(cel.view(node, value), _old_view(node, old))
        cause = rule.cause(node, activation, path)
        if cause is not None:
            causes.append(cause)


def _old_view(node: SchemaNode, old: Any) -> Any:
    return old if old is _ABSENT else cel.view(node, old)
