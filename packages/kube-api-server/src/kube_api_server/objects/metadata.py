"""Metadata of all kinds: types, names, labels, owners."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from kube_api_server.causes import forbidden_cause, invalid_cause, required_cause
from kube_api_server.errors import Cause
from kube_api_server.objects.served_resource import ServedResource
from kube_api_server.structural.compiled import CompiledSchema, compile_schema
from kube_base.types.builtin_types.schemas import schema_of
from kube_base.types.objects import Object

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LABEL_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_VALUE = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"
_KEY = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"

SUBDOMAIN = re.compile(_SUBDOMAIN)
SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    f"for validation is '{_SUBDOMAIN}')"
)
MAX_SUBDOMAIN_LENGTH = 253
NAME_LABEL = re.compile(_LABEL)
NAME_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex "
    f"used for validation is '{_LABEL}')"
)

_VALUE_PATTERN, _KEY_PATTERN = re.compile(_VALUE), re.compile(_KEY)

LABEL_1035_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or "
    f"'abc-123', regex used for validation is '{_LABEL_1035}')"
)
_LABEL_1035_PATTERN = re.compile(_LABEL_1035)

_NAME_RULES: dict[str, tuple[re.Pattern[str], int, str]] = {
    "subdomain": (
        SUBDOMAIN,
        253,
        SUBDOMAIN_RULE,
    ),
    "label": (
        NAME_LABEL,
        63,
        NAME_LABEL_RULE,
    ),
    "label1035": (
        _LABEL_1035_PATTERN,
        63,
        LABEL_1035_RULE,
    ),
    "path": (re.compile(r"(?!\.{1,2}\Z)[^/%]+"), 253, "may not be '.' or '..' or contain '/', '%'"),
}

_STANDARD_FINALIZERS = (
    "customresourcecleanup.apiextensions.k8s.io",
    "foregroundDeletion",
    "kubernetes",
    "orphan",
)
MAX_ANNOTATIONS_BYTES = 256 * 1024
"""Maximum total size of the keys and values of annotations in bytes."""


@functools.cache
def compiled() -> CompiledSchema:
    """Return the schema of ObjectMeta."""
    return compile_schema(
        {"type": "object", "properties": {"metadata": schema_of("meta.ObjectMeta")}}
    )


_FIELDS = frozenset(schema_of("meta.ObjectMeta")["properties"])


_COLLECTIONS = ("labels", "annotations", "finalizers", "ownerReferences")


def prune_metadata(metadata: Object, *, applied: bool = False) -> list[str]:
    """Remove unknown and empty fields of metadata. Return the paths of the unknown ones.

    The manager of `applied` metadata owns empty fields and nulls, so that they stay.
    """
    for key in [key for key, value in metadata.items() if value is None]:
        if not (applied and key in _COLLECTIONS):
            del metadata[key]
    for key in () if applied else _COLLECTIONS:
        if metadata.get(key) in ({}, []):
            del metadata[key]
    for key in () if applied else ("labels", "annotations"):
        texts = metadata.get(key)
        if isinstance(texts, dict) and None in texts.values():
            metadata[key] = {name: "" if text is None else text for name, text in texts.items()}
    unknown = [key for key in metadata if key not in _FIELDS]
    for key in unknown:
        del metadata[key]
    return [f"metadata.{key}" for key in unknown]


_STRINGS = ("name", "generateName", "namespace", "uid", "resourceVersion", "creationTimestamp")


def types(metadata: Object) -> str | None:
    """Return a message about a metadata field of the wrong type, as from a decoder; else None."""
    for key in _STRINGS:
        if key in metadata and not isinstance(metadata[key], str):
            return _mistyped(metadata[key], key, "string")
    for key in ("labels", "annotations"):
        value = metadata.get(key)
        if not isinstance(value, dict | None):
            return _mistyped(value, key, "map[string]string")
        for inner in (value or {}).values():
            if not isinstance(inner, str | None):
                return _mistyped(inner, key, "string")
    for key, kind in (("finalizers", str), ("ownerReferences", dict), ("managedFields", dict)):
        value = metadata.get(key)
        if not isinstance(value, list | None):
            return _mistyped(value, key, f"[]{kind.__name__}")
        for inner in value or ():
            if not isinstance(inner, kind):
                return _mistyped(inner, key, kind.__name__)
    return None


def _mistyped(value: Any, field: str, expected: str) -> str:
    return f"json: cannot unmarshal {_json_type(value)} into Go struct field ObjectMeta.metadata.{field} of type {expected}"  # noqa: E501


def _json_type(value: Any) -> str:
    """Return the JSON type of a value as Go's decoder names it."""
    match value:
        case bool():
            return "bool"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case dict():
            return "object"
    return "null"


def check_metadata(
    served: ServedResource, metadata: Object, old: Object | None = None
) -> Iterator[Cause]:
    """Yield the violations of an object's metadata, whose types are right."""
    yield from _name(served, metadata)
    if old is not None and old.get("deletionTimestamp"):
        yield from _added_finalizers(metadata, old)
    for key, value in metadata.get("labels", {}).items():
        yield from _label(key, value)
    annotations = metadata.get("annotations", {})
    if annotations:
        yield from _annotations(annotations)
    for owner in metadata.get("ownerReferences", ()):
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                place = f"metadata.ownerReferences.{field}"
                yield invalid_cause(place, "", "must not be empty")
    if sum(bool(o.get("controller")) for o in metadata.get("ownerReferences", ())) > 1:
        message = "Invalid value: only one reference can have Controller set to true"
        yield Cause("FieldValueInvalid", message, "metadata.ownerReferences")
    for index, finalizer in enumerate(metadata.get("finalizers", ())):
        field = f"metadata.finalizers[{index}]"
        yield from check_label_name(finalizer, field)
        if "/" not in finalizer and served.builtin and finalizer not in _STANDARD_FINALIZERS:
            why = "name is neither a standard finalizer name nor is it fully qualified"
            yield invalid_cause(field, finalizer, why)


def _name(served: ServedResource, metadata: Object) -> Iterator[Cause]:
    name = metadata.get("name")
    if not name:
        yield required_cause("metadata.name", "name or generateName is required")
        return
    pattern, max_length, why = _NAME_RULES[served.name_rule]
    if len(name) > max_length:
        yield invalid_cause("metadata.name", name, f"must be no more than {max_length} characters")
    if not pattern.fullmatch(name):
        yield invalid_cause("metadata.name", name, why)


def is_label_1035(name: str) -> bool:
    """Return whether a name is a DNS label that starts with a letter."""
    return len(name) <= 63 and _LABEL_1035_PATTERN.fullmatch(name) is not None


def check_label(field: str, name: str) -> Iterator[Cause]:
    """Yield the violations of a name that must be a DNS label."""
    if len(name) > 63:
        yield invalid_cause(field, name, "must be no more than 63 characters")
    if not NAME_LABEL.fullmatch(name):
        yield invalid_cause(field, name, NAME_LABEL_RULE)


def check_subdomain(field: str, name: str) -> Iterator[Cause]:
    """Yield the violations of a name that must be a DNS subdomain."""
    if len(name) > MAX_SUBDOMAIN_LENGTH:
        why = f"must be no more than {MAX_SUBDOMAIN_LENGTH} characters"
        yield invalid_cause(field, name, why)
    if not SUBDOMAIN.fullmatch(name):
        yield invalid_cause(field, name, SUBDOMAIN_RULE)


def _added_finalizers(metadata: Object, old: Object) -> Iterator[Cause]:
    """Yield the violation of a finalizer that is added while the object is being deleted."""
    before = old.get("finalizers") or ()
    added = [name for name in metadata.get("finalizers") or () if name not in before]
    if added:
        text = msgspec.json.encode(added).decode()
        why = "no new finalizers can be added if the object is being deleted, found new finalizers"
        yield forbidden_cause("metadata.finalizers", f"{why} {text}")


def _label(key: str, value: str) -> Iterator[Cause]:
    yield from check_label_name(key, "metadata.labels")
    yield from check_label_value(value, "metadata.labels")


def check_label_value(value: str, field: str) -> Iterator[Cause]:
    """Yield the violation of the value of a label."""
    if len(value) > 63:
        yield invalid_cause(field, value, "must be no more than 63 bytes")
    elif not _VALUE_PATTERN.fullmatch(value):
        why = (
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' "
            "or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or "
            f"'my_value',  or '12345', regex used for validation is '{_VALUE}')"
        )
        yield invalid_cause(field, value, why)


def check_label_name(key: str, field: str) -> Iterator[Cause]:
    """Yield the violations of the name of a label, which may have a prefix."""
    prefix, slash, name = key.rpartition("/")
    if slash and not (SUBDOMAIN.fullmatch(prefix) and len(prefix) <= 253):
        yield invalid_cause(field, key, f"prefix part {SUBDOMAIN_RULE}")
    if len(name) > 63:
        yield invalid_cause(field, key, "name part must be no more than 63 bytes")
    elif not _KEY_PATTERN.fullmatch(name):
        why = (
            "name part must consist of alphanumeric characters, '-', '_' or '.', and must start "
            "and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', "
            f"regex used for validation is '{_KEY}')"
        )
        yield invalid_cause(field, key, why)


def _annotations(annotations: dict[str, str]) -> Iterator[Cause]:
    size = 0
    for key, value in annotations.items():
        yield from check_label_name(key.lower(), "metadata.annotations")
        size += len(key.encode()) + len(value.encode())
    if size > MAX_ANNOTATIONS_BYTES:
        message = f"Too long: may not be more than {MAX_ANNOTATIONS_BYTES} bytes"
        yield Cause("FieldValueTooLong", message, "metadata.annotations")
