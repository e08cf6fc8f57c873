"""A compiled policy and its evaluation on a request. No I/O."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from kube_api_server.causes import invalid_cause, required_cause
from kube_api_server.errors import Cause
from kube_api_server.structural import cel
from kube_base.types.objects import Object

CODES = {"Invalid": 422, "Forbidden": 403, "Unauthorized": 401, "RequestEntityTooLarge": 413}
"""HTTP status codes by reason of a validation."""


class Denial(msgspec.Struct, frozen=True):
    """A failed validation."""

    message: str
    reason: str = "Invalid"


class _Validation:
    def __init__(self, spec: Object) -> None:
        self.text = spec["expression"].strip()
        self.program = cel.compile_rule(self.text)
        expression = spec.get("messageExpression")
        self.message_program = cel.compile_rule(expression) if expression else None
        self.message, self.reason = spec.get("message") or "", spec.get("reason") or "Invalid"

    def denial(self, activation: Any) -> Denial | cel.EvaluationError | None:
        result = self.program.run(activation)
        if result is True:
            return None
        if isinstance(result, cel.EvaluationError):
            return cel.EvaluationError(f"expression '{self.text}' resulted in error: {result.text}")
        rendered = (
            self.message_program.run(activation) if self.message_program is not None else None
        )
        message = (
            rendered.strip() if isinstance(rendered, str) and rendered.strip() else self.message
        )
        return Denial(message.strip() or f"failed expression: {self.text}", self.reason)


class AdmissionPolicy:
    """A ValidatingAdmissionPolicy. Raises ValueError if an expression does not compile."""

    def __init__(self, obj: Object) -> None:
        spec = obj.get("spec") or {}
        self.name = str(obj["metadata"]["name"])
        self.constraints: Object = spec.get("matchConstraints") or {}
        self.param_kind: Object | None = spec.get("paramKind")
        self._strict = spec.get("failurePolicy") != "Ignore"
        self._conditions = [
            (match_condition["name"], cel.compile_rule(match_condition["expression"]))
            for match_condition in spec.get("matchConditions") or ()
        ]
        self._variables = [
            (variable["name"], cel.compile_rule(variable["expression"]))
            for variable in spec.get("variables") or ()
        ]
        self._validations = [
            _Validation(validation) for validation in spec.get("validations") or ()
        ]

    def denials(self, data: Object) -> Iterator[Denial]:
        """Yield the failed validations of a request. `data` are its CEL variables."""
        activation = cel.bind(**data)
        for name, condition in self._conditions:
            result = condition.run(activation)
            if isinstance(result, cel.EvaluationError):
                why = f"match condition '{name}' resulted in error: {result.text}"
                yield from self._failed(why)
                return
            if result is not True:
                return
        variables: Object = {}
        for name, program in self._variables:
            value = program.run(cel.bind(**data, variables=variables))
            # A failed variable matters only to the expressions that use it.
            if not isinstance(value, cel.EvaluationError):
                variables[name] = value
        activation = cel.bind(**data, variables=variables)
        for validation in self._validations:
            verdict = validation.denial(activation)
            if isinstance(verdict, cel.EvaluationError):
                yield from self._failed(verdict.text)
            elif verdict is not None:
                yield verdict

    def _failed(self, why: str) -> Iterator[Denial]:
        if self._strict:
            yield Denial(why)


def check_policy(obj: Object, _: Object | None) -> Iterator[Cause]:
    """Yield the violations of the expressions of a policy."""
    spec = obj.get("spec") or {}
    if not spec.get("validations") and not spec.get("auditAnnotations"):
        why = "validations or auditAnnotations must be specified"
        yield required_cause("spec.validations", why)
    fields = (
        ("matchConditions", "expression"),
        ("variables", "expression"),
        ("validations", "expression"),
        ("validations", "messageExpression"),
        ("auditAnnotations", "valueExpression"),
    )
    for field, name in fields:
        for index, entry in enumerate(spec.get(field) or ()):
            text, field_path = entry.get(name) or "", f"spec.{field}[{index}].{name}"
            if not text.strip():
                if name != "messageExpression":
                    yield required_cause(field_path)
                continue
            if cel.uses_variable(text, "authorizer"):
                yield invalid_cause(field_path, text, "the variable authorizer is not supported")
                continue
            try:
                cel.compile_rule(text)
            except ValueError as error:
                yield invalid_cause(field_path, text, f"compilation failed: {error}")
