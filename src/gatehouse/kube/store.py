"""Store of an informer: lists and watch events in, changes out. No I/O.

Invariant: after any sequence of lists and events, the returned changes, applied in order to an
empty map, are exactly the objects of the last list plus the events since.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from gatehouse.kube.watch_decoder import WatchEvent
from kube_base.types.objects import Object, ObjectName


class Change(NamedTuple):
    """A change of one object."""

    old: Object | None
    """The object before; None if it was not in the store."""
    new: Object | None
    """The object now; None if it was deleted."""


Changes = dict[ObjectName, Change]
"""The changes of one batch: at most one for each object."""


def _name_of(obj: Mapping[str, Any]) -> ObjectName:
    """Return the namespace and name of an object."""
    metadata = obj["metadata"]
    return metadata.get("namespace") or "", metadata["name"]


class Store:
    """The objects of one collection at one resource version."""

    def __init__(self) -> None:
        self._objects: dict[ObjectName, Object] = {}
        self.objects: Mapping[ObjectName, Object] = MappingProxyType(self._objects)
        """Live view. Objects in it are never changed, only replaced."""
        self.resource_version = ""
        """Version to watch from; empty if a list is required first."""

    def replace(self, items: Iterable[Object], resource_version: str) -> Changes:
        """Apply a complete list. Return the changes; objects missing in it count as deleted."""
        fresh = {_name_of(item): item for item in items}
        changes: Changes = {}
        for name, item in fresh.items():
            old = self._objects.get(name)
            if not _same(old, item):
                changes[name] = Change(old, item)
        for name in self._objects.keys() - fresh.keys():
            changes[name] = Change(self._objects[name], None)
        self._apply(changes)
        self.resource_version = resource_version
        return changes

    def receive(self, events: Iterable[WatchEvent]) -> Changes:
        """Apply events in the order of the watch. Return at most one change for each object."""
        changes: Changes = {}
        for event in events:
            version = event.object.get("metadata", {}).get("resourceVersion")
            if version:
                self.resource_version = version
            if event.type in ("BOOKMARK", "ERROR"):
                continue
            name = _name_of(event.object)
            old = self._objects.get(name)
            if name in changes:
                # An object that is created and deleted within one batch has no other old state.
                old = changes[name].old or changes[name].new
            elif event.type == "DELETED":
                if old is None:
                    continue
            elif _same(old, event.object):
                continue
            changes[name] = Change(old, None if event.type == "DELETED" else event.object)
        self._apply(changes)
        return changes

    def forget_version(self) -> None:
        """Require a list next; objects stay readable until then."""
        self.resource_version = ""

    def _apply(self, changes: Changes) -> None:
        for name, change in changes.items():
            if change.new is None:
                self._objects.pop(name, None)
            else:
                self._objects[name] = change.new


def _same(old: Object | None, new: Object) -> bool:
    if old is None:
        return False
    before, after = old["metadata"], new["metadata"]
    # Compare the UID too: versions may coincide after a restore of the server's store.
    return bool(after.get("resourceVersion")) and (
        before.get("resourceVersion") == after.get("resourceVersion")
        and before.get("uid") == after.get("uid")
    )
