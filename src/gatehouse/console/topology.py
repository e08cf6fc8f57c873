"""Reported objects by revision, so that a page gets only what changed. No I/O."""

from __future__ import annotations

import secrets
from collections.abc import Iterable

import msgspec

from gatehouse.inspection.status_report import ReportedObject

ReportedKey = tuple[str, str, str]
"""Kind, namespace and name."""


class UnreadableKind(msgspec.Struct, frozen=True, rename="camel"):
    """A kind that the user may not list."""

    kind: str
    namespace: str = ""
    """Empty: in all namespaces, or the kind is cluster-scoped."""


class TopologyChanges(msgspec.Struct, frozen=True, rename="camel"):
    """Objects that changed after a revision."""

    revision: str
    """Revision of the answer, for the next ``since``."""
    complete: bool
    """The answer has all objects, and not only the changed ones."""
    objects: tuple[ReportedObject, ...]
    removed: tuple[ReportedKey, ...] = ()
    not_permitted: tuple[UnreadableKind, ...] = ()
    interruptions: tuple[str, ...] = ()
    """Errors of the API server, because of which objects may be outdated."""


def key_of_reported(item: ReportedObject) -> ReportedKey:
    """Return the key of an object."""
    return item.kind, item.namespace, item.name


class Topology:
    """Reported objects with the number of the revision in which each changed last."""

    def __init__(self) -> None:
        # Revisions of an earlier server must not be mistaken for those of this one.
        self._series = secrets.token_hex(4)
        self._number = 0
        self._objects: dict[ReportedKey, tuple[int, ReportedObject]] = {}
        self._removed: dict[ReportedKey, int] = {}
        self._not_permitted: tuple[UnreadableKind, ...] = ()
        self._interruptions: tuple[str, ...] = ()

    @property
    def revision(self) -> str:
        """Return the present revision."""
        return f"{self._series}-{self._number}"

    def update(
        self,
        reported: Iterable[ReportedObject],
        not_permitted: tuple[UnreadableKind, ...] = (),
        interruptions: tuple[str, ...] = (),
    ) -> bool:
        """Replace all objects. Return whether there is a new revision."""
        number, changed = self._number + 1, False
        objects: dict[ReportedKey, tuple[int, ReportedObject]] = {}
        for item in reported:
            key = key_of_reported(item)
            known = self._objects.get(key)
            objects[key] = known if known and known[1] == item else (number, item)
            changed = changed or objects[key] is not known
            self._removed.pop(key, None)
        for key in self._objects.keys() - objects.keys():
            self._removed[key], changed = number, True
        about = (not_permitted, interruptions)
        changed = changed or about != (self._not_permitted, self._interruptions)
        self._objects, (self._not_permitted, self._interruptions) = objects, about
        self._number = number if changed else self._number
        return changed

    def changes(self, since: str = "") -> TopologyChanges:
        """Return the changes after a revision; all objects if the revision is unknown."""
        series, _, number = since.partition("-")
        known = series == self._series and number.isdecimal() and int(number) <= self._number
        after = int(number) if known else -1
        objects = tuple(item for revision, item in self._objects.values() if revision > after)
        removed = tuple(key for key, revision in self._removed.items() if revision > after)
        return TopologyChanges(
            self.revision,
            not known,
            objects,
            removed if known else (),
            self._not_permitted,
            self._interruptions,
        )

    def with_problems(self) -> tuple[ReportedObject, ...]:
        """Return the objects with problems."""
        return tuple(item for _, item in self._objects.values() if item.problems)
