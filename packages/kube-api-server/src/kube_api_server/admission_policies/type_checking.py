"""Type checks of policies, with the schemas of the kinds that they match, for their status.

https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/#type-checking
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from kube_api_server.objects.admission import Admission
from kube_api_server.objects.registry import Registry
from kube_api_server.objects.served_resource import ServedResource
from kube_api_server.objects.write_request import WriteRequest
from kube_api_server.structural import cel_types
from kube_base.types.builtin_types import schemas
from kube_base.types.objects import Object, Schema

MAX_TYPES = 10
"""Maximum number of kinds with which a policy is checked, as in Kubernetes."""

_RECURSIVE = ("CustomResourceDefinition",)
"""Kinds whose schema contains itself, so that it has no type."""


def register_type_checks(registry: Registry, admission: Admission) -> None:
    """Set the result of the type checks in the status of every policy that is written."""

    def finish(_: WriteRequest, obj: Object, __: Object | None) -> None:
        obj["status"] = {
            **(obj.get("status") or {}),
            "observedGeneration": obj["metadata"].get("generation", 1),
            "typeChecking": type_checking(obj, registry),
        }

    admission.finishing.setdefault("validatingadmissionpolicies", []).append(finish)


def type_checking(policy: Object, registry: Registry) -> Object:
    """Return the warnings about the expressions of a policy, as `status.typeChecking`."""
    spec = policy.get("spec") or {}
    environments = [
        (f"{served.resource.api_version}, Kind={served.resource.kind}", _environment(served))
        for served in itertools.islice(_matched(spec, registry), MAX_TYPES)
    ]
    warnings = []
    for index, validation in enumerate(spec.get("validations") or ()):
        for name in ("expression", "messageExpression"):
            text = (validation.get(name) or "").strip()
            problems = [
                f"{kind}: {problem}\n"
                for kind, environment in environments
                if text and (problem := _problem(text, environment))
            ]
            if problems:
                field = f"spec.validations[{index}].{name}"
                warnings.append({"fieldRef": field, "warning": "\n".join(problems)})
    return {"expressionWarnings": warnings} if warnings else {}


def _matched(spec: Object, registry: Registry) -> Iterator[ServedResource]:
    """Yield the kinds that rules without wildcards name, each one once."""
    yielded = set()
    for rule in (spec.get("matchConstraints") or {}).get("resourceRules") or ():
        groups, versions = rule.get("apiGroups") or (), rule.get("apiVersions") or ()
        if any("*" in pattern for pattern in (*groups, *versions)):
            continue
        resources = sorted(rule.get("resources") or ())
        names = itertools.product(sorted(groups), sorted(versions), resources)
        for group, version, plural in names:
            served = registry.find(group, version, plural)
            if served is None or served in yielded or served.resource.kind in _RECURSIVE:
                continue
            yielded.add(served)
            yield served


def _environment(served: ServedResource) -> Any:
    text: Schema = {"type": "string"}
    head = {"apiVersion": text, "kind": text, "metadata": schemas.schema_of("meta.ObjectMeta")}
    properties = {**(served.schema.get("properties") or {}), **head}
    return cel_types.policy_environment({"type": "object", "properties": properties})


def _problem(text: str, environment: Any) -> str:
    try:
        cel_types.compile_typed(text, environment)
    except ValueError as error:
        return str(error)
    return ""
