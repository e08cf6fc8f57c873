"""Compilation of the expressions that select devices. No scheduler of this server evaluates them.

https://kubernetes.io/docs/reference/using-api/cel/#dynamic-resource-allocation
"""

from __future__ import annotations

import functools
import re
from typing import Any

from cel_expr_python import cel

from kube_api_server.structural import cel_types
from kube_base.types.objects import Schema

_ANY: Schema = {"x-kubernetes-int-or-string": True}
_BY_DOMAIN: Schema = {
    "type": "object",
    "additionalProperties": {"type": "object", "additionalProperties": _ANY},
}
_DEVICE: Schema = {
    "type": "object",
    "properties": {
        "driver": {"type": "string"},
        "attributes": _BY_DOMAIN,
        "capacity": _BY_DOMAIN,
    },
}
_TWO_VARIABLES = re.compile(
    r"\.\s*(all|exists|existsOne|transformList|transformMap|transformMapEntry)"
    r"\(\s*\w+\s*,\s*\w+\s*,"
)
"""Macros that the compiler does not have."""

_Signature = tuple[str, Any, tuple[Any, ...]]
"""Name, result and parameters of a function."""

_STRING, _BOOL, _INT, _DYN = cel.Type.STRING, cel.Type.BOOL, cel.Type.INT, cel.Type.DYN
_LIST = cel.Type.List(_DYN)
_DECLARED: tuple[_Signature, ...] = (
    ("semver", _DYN, (_STRING,)),
    ("semver", _DYN, (_STRING, _BOOL)),
    ("isSemver", _BOOL, (_STRING,)),
    ("isSemver", _BOOL, (_STRING, _BOOL)),
    ("sets.contains", _BOOL, (_LIST, _LIST)),
    ("sets.equivalent", _BOOL, (_LIST, _LIST)),
    ("sets.intersects", _BOOL, (_LIST, _LIST)),
    ("ip.isCanonical", _BOOL, (_STRING,)),
)
_MEMBERS: tuple[_Signature, ...] = (
    ("major", _INT, (_DYN,)),
    ("minor", _INT, (_DYN,)),
    ("patch", _INT, (_DYN,)),
    ("sign", _INT, (_DYN,)),
    ("add", _DYN, (_DYN, _DYN)),
    ("sub", _DYN, (_DYN, _DYN)),
    ("asApproximateFloat", cel.Type.DOUBLE, (_DYN,)),
    ("ip", _DYN, (_DYN,)),
    ("masked", _DYN, (_DYN,)),
    ("containsCIDR", _BOOL, (_DYN, _DYN)),
    ("isUnspecified", _BOOL, (_DYN,)),
    ("isLinkLocalUnicast", _BOOL, (_DYN,)),
    ("isLinkLocalMulticast", _BOOL, (_DYN,)),
    ("isGlobalUnicast", _BOOL, (_DYN,)),
    ("getQuery", _DYN, (_DYN,)),
    ("findAll", cel.Type.List(_STRING), (_STRING, _STRING, _INT)),
)
"""Functions of Kubernetes that are no functions of rules here, for the compiler only."""


def compile_selector(text: str) -> str:
    """Return why an expression is invalid; empty for a valid one."""
    if _TWO_VARIABLES.search(text):
        return ""
    try:
        program = cel_types.compile_typed(text, _environment())
    except ValueError as error:
        return str(error)
    kind = program.result_type
    if kind in (cel.Type.BOOL, cel.Type.DYN):
        return ""
    return f"must evaluate to bool or the unknown type, not {kind.name()}"


@functools.cache
def _environment() -> Any:
    declared = [*_functions(_DECLARED, member=False), *_functions(_MEMBERS, member=True)]
    return cel_types.device_environment(_DEVICE, cel.CelExtension("devices", declared))


def _functions(signatures: tuple[_Signature, ...], *, member: bool) -> list[Any]:
    return [
        cel.FunctionDecl(
            name,
            [
                cel.Overload(
                    f"{name}_of_{len(parameters)}",
                    return_type=result,
                    parameters=list(parameters),
                    is_member=member,
                )
            ],
        )
        for name, result, parameters in signatures
    ]
