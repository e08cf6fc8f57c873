"""CustomResourceDefinitions: served resources, validation, status.

https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kube_api_server.builtin.columns import AGE, NAME
from kube_api_server.objects import jsonpath, timestamps
from kube_api_server.objects.registry import Registry
from kube_api_server.objects.served_resource import Column, Scale, ServedResource
from kube_base.types.objects import Object
from kube_base.types.resource import Resource

GROUP, PLURAL = "apiextensions.k8s.io", "customresourcedefinitions"
FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
PRESERVE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def served_by(definition: Object) -> list[ServedResource]:
    """Return the served versions of an accepted CRD."""
    spec, names = definition["spec"], definition["spec"]["names"]
    storage = next(v["name"] for v in spec["versions"] if v.get("storage"))
    return [
        _version(spec, names, version, storage)
        for version in spec["versions"]
        if version.get("served")
    ]


def _version(spec: Object, names: Object, version: Object, storage: str) -> ServedResource:
    subresources = version.get("subresources") or {}
    scale = subresources.get("scale")
    api_version = f"{spec['group']}/{version['name']}"
    warning = ""
    if version.get("deprecated"):
        warning = (
            version.get("deprecationWarning") or f"{api_version} {names['kind']} is deprecated"
        )
    return ServedResource(
        resource=Resource(
            spec["group"],
            version["name"],
            names["plural"],
            names["kind"],
            namespaced=spec["scope"] == "Namespaced",
        ),
        schema=(version.get("schema") or {}).get("openAPIV3Schema") or PRESERVE,
        storage_version=storage,
        short=tuple(names.get("shortNames") or ()),
        singular=names.get("singular", ""),
        list_kind=names.get("listKind", ""),
        categories=tuple(names.get("categories") or ()),
        status="status" in subresources,
        scale=scale
        and Scale(
            scale["specReplicasPath"],
            scale["statusReplicasPath"],
            scale.get("labelSelectorPath", ""),
        ),
        columns=_columns(version),
        builtin=False,
        warning=warning,
        selectable=tuple(
            field["jsonPath"].lstrip(".") for field in version.get("selectableFields") or ()
        ),
    )


def _columns(version: Object) -> tuple[Column, ...]:
    declared = version.get("additionalPrinterColumns")
    if not declared:
        return (NAME, AGE)
    return (NAME, *map(_column, declared))


def _column(declared: Object) -> Column:
    kind, path = declared["type"], declared["jsonPath"]
    return Column(
        declared["name"],
        _cell(kind, path),
        kind,
        wide=bool(declared.get("priority")),
        format=declared.get("format", ""),
        description=declared.get("description", ""),
    )


def _cell(kind: str, path: str) -> Callable[[Object], Any]:
    def read(obj: Object) -> Any:
        values = jsonpath.find_values(path, obj)
        if not values:
            return "<unknown>" if kind == "date" else None
        match kind:
            case "date":
                return timestamps.age(values[0])
            case "integer" | "number" if isinstance(values[0], int | float):
                return values[0]
            case "boolean" if isinstance(values[0], bool):
                return values[0]
        return _text(values[0])

    return read


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        inner = ",".join(f'"{item}"' if isinstance(item, str) else _text(item) for item in value)
        return f"[{inner}]"
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{_text(item)}" for key, item in value.items()) + "]"
    return "" if value is None else str(value)


def complete_status(definition: Object, registry: Registry) -> None:
    """Set the status of a CRD: accepted names, unless they conflict, and stored versions."""
    spec, names = definition["spec"], definition["spec"]["names"]
    status = definition["status"] = dict(definition.get("status") or {})
    conflict = _name_conflict(spec["group"], names, registry)
    status["acceptedNames"] = (
        dict(names) if not conflict else status.get("acceptedNames") or {"plural": "", "kind": ""}
    )
    storage = next(v["name"] for v in spec["versions"] if v.get("storage"))
    status["storedVersions"] = list(dict.fromkeys([*(status.get("storedVersions") or ()), storage]))
    accepted = {
        "type": "NamesAccepted",
        "status": "False" if conflict else "True",
        "reason": conflict[0] if conflict else "NoConflicts",
        "message": conflict[1] if conflict else "no conflicts found",
    }
    established = {
        "type": "Established",
        "status": "False" if conflict else "True",
        "reason": "NotAccepted" if conflict else "InitialNamesAccepted",
        "message": (
            "not all names are accepted" if conflict else "the initial names have been accepted"
        ),
    }
    conditions = list(status.get("conditions") or ())
    for condition in (accepted, established):
        _set_condition(conditions, condition)
    status["conditions"] = conditions


def is_established(definition: Object) -> bool:
    """Return whether a CRD is served."""
    conditions = (definition.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


def _name_conflict(group: str, names: Object, registry: Registry) -> tuple[str, str] | None:
    """Return reason and message of the condition if another resource has one of the names."""
    requested = {names["plural"], names.get("singular", ""), *(names.get("shortNames") or ())} - {
        ""
    }
    for served in registry.all():
        resource = served.resource
        if resource.group != group or resource.plural == names["plural"]:
            continue
        have = {resource.plural, served.singular_name, *served.short}
        for name in sorted(requested & have):
            return "PluralConflict", f'"{name}" is already in use'
        if resource.kind == names["kind"]:
            return "KindConflict", f'"{names["kind"]}" is already in use'
    return None


def _set_condition(conditions: list[Object], desired: Object) -> None:
    for index, condition in enumerate(conditions):
        if condition["type"] == desired["type"]:
            if condition["status"] != desired["status"]:
                conditions[index] = {**desired, "lastTransitionTime": timestamps.now()}
            return
    conditions.append({**desired, "lastTransitionTime": timestamps.now()})
