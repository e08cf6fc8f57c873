"""Validation of CustomResourceDefinitions: names, versions, schemas, columns and changes."""

from __future__ import annotations

from collections.abc import Iterator

from kube_api_server.causes import duplicate_cause, invalid_cause, required_cause
from kube_api_server.errors import Cause
from kube_api_server.objects import jsonpath
from kube_api_server.objects.metadata import LABEL_1035_RULE, is_label_1035
from kube_api_server.structural import schema_validation as structural
from kube_base.types.objects import Object


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
    yield from _check_names(spec)
    numbers = [version.get("name") for version in versions]
    accepted = _schemas(old) if old is not None else {}
    for index, version in enumerate(versions):
        field = f"spec.versions[{index}]"
        if version.get("name") in numbers[:index]:
            yield duplicate_cause(field, version["name"])
        if not is_label_1035(version.get("name", "")):
            yield invalid_cause(f"{field}.name", version.get("name"), LABEL_1035_RULE)
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


def _check_names(spec: Object) -> Iterator[Cause]:
    """Yield the violations of names, which become parts of paths and of names of resources."""
    names = spec.get("names") or {}
    mixed = "may have mixed case, but should otherwise match: "
    for field, why in (("plural", ""), ("singular", ""), ("kind", mixed), ("listKind", mixed)):
        name = names.get(field) or ""
        if name and not is_label_1035(name.lower() if why else name):
            yield invalid_cause(f"spec.names.{field}", name, why + LABEL_1035_RULE)
    for field in ("shortNames", "categories"):
        for index, name in enumerate(names.get(field) or ()):
            if not is_label_1035(name):
                yield invalid_cause(f"spec.names.{field}[{index}]", name, LABEL_1035_RULE)
    if names.get("kind") and names.get("kind") == names.get("listKind"):
        why = "kind and listKind may not be the same"
        yield invalid_cause("spec.names.listKind", names["listKind"], why)


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
