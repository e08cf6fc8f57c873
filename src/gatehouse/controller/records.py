"""Records of objects: from their statuses at first, from compile passes after that.

A pass reads the record of the pass before, so that no edit of another object takes away what an
object owns. The API server's copy of a status is older: it is written when data planes have
confirmed the object. So it counts only for objects that no pass of this controller has compiled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gatehouse.compiler.frontends import combined
from gatehouse.compiler.frontends.inputs import record_key
from gatehouse.incremental.query import Key
from gatehouse.incremental.table import Table


class StatusRecords:
    """The inputs of the next pass that are records. Costs depend on the changed objects."""

    def __init__(self) -> None:
        self._statuses: Table[Key, combined.Status] = Table()
        """Desired statuses of the last pass."""
        self._uids: dict[Key, str] = {}
        """UID of each object with a record."""
        self._read: set[Key] = set()
        """Objects whose record is that of their status."""

    def read(self, key: Key, raw: Mapping[str, Any] | None) -> dict[Key, Any]:
        """Return the changed input for an object from the API server; None for ``raw``: deleted."""
        read_record = combined.KINDS.by_name[key[0]].read_record
        if read_record is None:
            return {}
        if raw is None:
            self._uids.pop(key, None)
            self._read.discard(key)
            return {record_key(key): None}
        uid = raw["metadata"].get("uid", "")
        if self._uids.get(key) == uid and key not in self._read:
            return {}
        self._uids[key] = uid
        self._read.add(key)
        return {record_key(key): read_record(raw)}

    def update(self, statuses: Table[Key, combined.Status]) -> dict[Key, Any]:
        """Return the changed inputs after a pass with these desired statuses.

        They change no result: a pass that reads them has the same one.
        """
        changed = {key for key, _, _ in self._statuses.diff(statuses)} | self._read
        self._statuses, self._read = statuses, set()
        records = ((key, statuses.get(key)) for key in changed & self._uids.keys())
        return {
            record_key(key): status.next_record for key, status in records if status is not None
        }
