"""Managed fields of objects, and server-side apply."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from kube_api_server.fields import sets, typed
from kube_api_server.fields.sets import Tree
from kube_base.types.builtin_types import schemas
from kube_base.types.objects import Object, Schema

_UNTRACKED = frozenset(
    {
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
        "managedFields",
    }
)

_METADATA: Schema = {
    "type": "object",
    schemas.STRUCT: True,
    "properties": {
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
        "finalizers": {"type": "array", "x-kubernetes-list-type": "set"},
        "ownerReferences": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["uid"],
            "items": {"type": "object", "x-kubernetes-map-type": "atomic"},
        },
    },
}

BEFORE_FIRST_APPLY = "before-first-apply"


class FieldConflict(msgspec.Struct, frozen=True):
    """A field that another manager owns with another value."""

    manager: str
    """Name of the manager in messages, with the API version that it used."""
    field: str


class ConflictsError(Exception):
    """An apply without `force` that would take over fields of other managers."""

    def __init__(self, conflicts: tuple[FieldConflict, ...]) -> None:
        super().__init__(f"{len(conflicts)} conflicts")
        self.conflicts = conflicts


class ManagedFieldsEntry(msgspec.Struct, frozen=True):
    """Fields that one manager owns by one kind of operation."""

    manager: str
    operation: str
    version: str
    subresource: str
    time: str
    owned: Tree

    @property
    def identity(self) -> tuple[str, ...]:
        """Identity of an entry. A manager has at most one entry of each identity."""
        version = self.version if self.operation == "Update" else ""
        return (self.manager, self.operation, version, self.subresource)

    @property
    def description(self) -> str:
        """Name of the manager in conflicts."""
        text = f'"{self.manager}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        return f"{text} using {self.version}" if self.operation == "Update" else text


def update(
    before: Object | None,
    after: Object,
    schema: Schema,
    *,
    manager: str,
    api_version: str,
    now: str,
    subresource: str = "",
) -> list[Object]:
    """Return managedFields after a write that is not an apply. The writer owns what it changed.

    `after` contains the former managedFields, unless the writer cleared them with an empty list.
    """
    known = after["metadata"].get("managedFields")
    if known is None and before is not None:
        known = before["metadata"].get("managedFields")
    entries = _read(known)
    comparison = typed.compare(_tracked(before or {}), _tracked(after), _with_metadata(schema))
    if not comparison.changed and not comparison.removed:
        return known or []
    own_entry = ManagedFieldsEntry(manager, "Update", api_version, subresource, now, {})
    updated = _without(entries, comparison, own_entry)
    own = next((entry for entry in updated if entry.identity == own_entry.identity), None)
    owned = sets.join(own.owned, comparison.changed) if own else comparison.changed
    if own is None or owned != own.owned:
        updated = [entry for entry in updated if entry is not own]
        if owned:
            updated.append(msgspec.structs.replace(own_entry, owned=owned))
    return _write(updated, now, entries)


def apply_fields(
    live: Object | None,
    applied: Object,
    schema: Schema,
    *,
    manager: str,
    force: bool,
    api_version: str,
    now: str,
    subresource: str = "",
) -> Object:
    """Return the object after an apply. Raises ConflictsError, ValueError."""
    if applied.get("metadata", {}).get("managedFields"):
        raise ValueError("metadata.managedFields must be nil")
    whole = _with_metadata(schema)
    entries = _current_entries(live, whole, api_version, now) if live is not None else []
    config = _tracked(applied)
    owned = typed.fields_of(config, whole) or {}
    own_entry = ManagedFieldsEntry(manager, "Apply", api_version, subresource, now, owned)
    last = next((entry for entry in entries if entry.identity == own_entry.identity), None)
    others = [entry for entry in entries if entry is not last]
    merged = typed.merge_applied(_tracked(live or {}), config, whole)
    if last is not None:
        all_owned = owned
        for entry in others:
            all_owned = sets.join(all_owned, entry.owned)
        merged = typed.prune_unowned(merged, last.owned, all_owned, whole)
    comparison = typed.compare(_tracked(live or {}), merged, whole)
    conflicts = _conflicts(others, comparison.changed)
    if conflicts and not force:
        raise ConflictsError(conflicts)
    updated = _without(others, comparison, own_entry)
    if last is not None and last.owned == owned and last.version == api_version:
        own_entry = last
    result = _rebuilt(live, applied, merged)
    if owned:
        updated.append(own_entry)
    result["metadata"]["managedFields"] = _write(updated, now, entries)
    return result


def render_conflicts(
    conflicts: tuple[FieldConflict, ...],
) -> tuple[str, list[tuple[str, str, str]]]:
    """Return the message of a Status, and its causes: reason, message, field."""
    causes = [
        ("FieldManagerConflict", f"conflict with {conflict.manager}", conflict.field)
        for conflict in conflicts
    ]
    if len(conflicts) == 1:
        one = conflicts[0]
        return f"Apply failed with 1 conflict: conflict with {one.manager}: {one.field}", causes
    lines = []
    for name in sorted({conflict.manager for conflict in conflicts}):
        lines.append(f"conflicts with {name}:")
        lines += [f"- {conflict.field}" for conflict in conflicts if conflict.manager == name]
    return f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines), causes


def _read(managed: Iterable[Object] | None) -> list[ManagedFieldsEntry]:
    """Parse managedFields. Entries of unknown form own nothing."""
    return [
        ManagedFieldsEntry(
            str(entry.get("manager", "")),
            str(entry.get("operation", "Update")),
            str(entry.get("apiVersion", "")),
            str(entry.get("subresource", "")),
            str(entry.get("time", "")),
            entry.get("fieldsV1") or {},
        )
        for entry in managed or ()
        if entry
    ]


def _write(
    entries: list[ManagedFieldsEntry], now: str, before: list[ManagedFieldsEntry]
) -> list[Object]:
    """Format managedFields. The time of an entry is that of its last change."""
    known = {entry.identity: entry for entry in before}
    written: list[tuple[tuple[Any, ...], Object]] = []
    for entry in entries:
        if not entry.owned and entry.operation == "Update":
            continue
        old = known.get(entry.identity)
        time = old.time if old is not None and old.owned == entry.owned else now
        formatted: Object = {
            "manager": entry.manager,
            "operation": entry.operation,
            "apiVersion": entry.version,
            "time": time,
            "fieldsType": "FieldsV1",
            "fieldsV1": sets.sorted_tree(entry.owned),
        }
        if entry.subresource:
            formatted["subresource"] = entry.subresource
        order = (entry.operation, time, entry.manager, entry.version, entry.subresource)
        written.append((order, formatted))
    return [formatted for _, formatted in sorted(written, key=lambda pair: pair[0])]


def _without(
    entries: list[ManagedFieldsEntry], comparison: typed.Comparison, own_entry: ManagedFieldsEntry
) -> list[ManagedFieldsEntry]:
    """Remove changed fields from other managers, and removed fields from all."""
    updated = []
    for entry in entries:
        owned = sets.set_difference(entry.owned, comparison.removed)
        if entry.identity != own_entry.identity:
            owned = sets.set_difference(owned, comparison.changed)
        if owned:
            updated.append(
                entry if owned == entry.owned else msgspec.structs.replace(entry, owned=owned)
            )
    return updated


def _conflicts(others: list[ManagedFieldsEntry], changed: Tree) -> tuple[FieldConflict, ...]:
    return tuple(
        FieldConflict(entry.description, path)
        for entry in others
        for path in sets.paths(sets.intersection(entry.owned, changed))
    )


def _current_entries(
    live: Object, schema: Schema, api_version: str, now: str
) -> list[ManagedFieldsEntry]:
    """Return the entries of an object.

    Fields of an object without managedFields belong to the manager `BEFORE_FIRST_APPLY`.
    """
    managed = live["metadata"].get("managedFields")
    if managed:
        return _read(managed)
    difference = typed.compare({}, _tracked(live), schema)
    if not difference.changed:
        return []
    return [
        ManagedFieldsEntry(BEFORE_FIRST_APPLY, "Update", api_version, "", now, difference.changed)
    ]


def _tracked(obj: Object) -> Object:
    """Return an object without fields that cannot be owned."""
    body = {key: value for key, value in obj.items() if key not in ("apiVersion", "kind")}
    metadata = obj.get("metadata") or {}
    metadata_part = {key: value for key, value in metadata.items() if key not in _UNTRACKED}
    if metadata_part or "metadata" in body:
        body["metadata"] = metadata_part
    if not metadata_part:
        body.pop("metadata", None)
    return body


def _with_metadata(schema: Schema) -> Schema:
    return {**schema, "properties": {**(schema.get("properties") or {}), "metadata": _METADATA}}


def _rebuilt(live: Object | None, applied: Object, merged: Object) -> Object:
    """Restore the fields that cannot be owned in a merged object."""
    source = live if live is not None else applied
    metadata = {
        key: value for key, value in source.get("metadata", {}).items() if key in _UNTRACKED
    }
    for key in ("uid", "resourceVersion"):
        # The preconditions of the applier are checked later, against the stored object.
        if key in applied.get("metadata", {}):
            metadata[key] = applied["metadata"][key]
    head: Object = {key: source[key] for key in ("apiVersion", "kind") if key in source}
    return {**head, **merged, "metadata": {**metadata, **merged.get("metadata", {})}}
