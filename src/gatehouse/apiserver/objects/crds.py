"""CustomResourceDefinitions: served resources, validation, status.

https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from gatehouse.apis.objects import Object
from gatehouse.apis.resources import Resource
from gatehouse.apiserver.builtin.columns import AGE, NAME
from gatehouse.apiserver.causes import invalid_cause, required_cause
from gatehouse.apiserver.errors import Cause
from gatehouse.apiserver.objects import jsonpath, timestamps
from gatehouse.apiserver.objects.registry import Registry
from gatehouse.apiserver.objects.served_resource import Column, Scale, ServedResource
from gatehouse.apiserver.structural import schema_validation as structural

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


def check_crd(definition: Object, old: Object | None) -> Iterator[Cause]:
    """Yield the violations of a CRD whose fields have the right types."""
    spec = definition["spec"]
    names, versions = spec.get("names") or {}, spec.get("versions") or []
    expected = f"{names.get('plural')}.{spec.get('group')}"
    if definition["metadata"].get("name") != expected:
        why = 'must be spec.names.plural+"."+spec.group'
        yield invalid_cause("metadata.name", definition["metadata"].get("name"), why)
    if "." not in str(spec.get("group", "")):
        yield invalid_cause(
            "spec.group", spec.get("group"), "should be a domain with at least one dot"
        )
    storage = [version for version in versions if version.get("storage")]
    if len(storage) != 1:
        why = "must have exactly one version marked as storage version"
        yield invalid_cause("spec.versions", [v.get("name") for v in versions], why)
    numbers = [version.get("name") for version in versions]
    accepted = _schemas(old) if old is not None else {}
    for index, version in enumerate(versions):
        field = f"spec.versions[{index}]"
        if version.get("name") in numbers[:index]:
            yield Cause("FieldValueDuplicate", f'Duplicate value: "{version["name"]}"', field)
        schema = _schema(version)
        if schema is None:
            yield required_cause(f"{field}.schema.openAPIV3Schema", "schemas are required")
            continue
        # A check compiles all CEL rules; changes of metadata and status leave the schema as it is.
        if schema != accepted.get(version.get("name")):
            yield from structural.check_schema(schema, f"{field}.schema.openAPIV3Schema")
        yield from _check_columns(version, field)
    if (spec.get("conversion") or {}).get("strategy") == "Webhook":
        yield invalid_cause("spec.conversion.strategy", "Webhook", "only None is supported")
    if old is not None:
        yield from _check_change(spec, old["spec"])


def _schemas(definition: Object) -> dict[str, Object | None]:
    return {version["name"]: _schema(version) for version in definition["spec"]["versions"]}


def _schema(version: Object) -> Object | None:
    return (version.get("schema") or {}).get("openAPIV3Schema")


def _check_columns(version: Object, field: str) -> Iterator[Cause]:
    for number, column in enumerate(version.get("additionalPrinterColumns") or ()):
        try:
            jsonpath.find_values(column.get("jsonPath", ""), {})
        except ValueError as error:
            place = f"{field}.additionalPrinterColumns[{number}].jsonPath"
            yield invalid_cause(place, column.get("jsonPath"), str(error))


def _check_change(spec: Object, old: Object) -> Iterator[Cause]:
    for field in ("group", "scope"):
        if spec.get(field) != old.get(field):
            yield invalid_cause(f"spec.{field}", spec.get(field), "field is immutable")
    for field in ("plural", "kind"):
        if spec["names"].get(field) != old["names"].get(field):
            yield invalid_cause(
                f"spec.names.{field}", spec["names"].get(field), "field is immutable"
            )


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
