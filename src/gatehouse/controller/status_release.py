"""Statuses from the compile pass that determines them until they are written."""

from __future__ import annotations

import time
from collections.abc import Collection

from gatehouse.controller.compilation import CompileResult
from gatehouse.controller.deferred_status import DeferredStatuses
from gatehouse.controller.outputs import published_name
from gatehouse.controller.overdue_statuses import OverdueStatuses, counted
from gatehouse.controller.publisher import Publisher
from gatehouse.controller.status_writer import StatusWriter
from gatehouse.incremental.query import Key


class StatusRelease:
    """Holds the status of a route back until data planes serve its configuration."""

    def __init__(self, statuses: StatusWriter, publisher: Publisher) -> None:
        self._statuses, self._publisher = statuses, publisher
        self._deferred, self.overdue = DeferredStatuses(), OverdueStatuses()
        self._anew: set[Key] = set()
        """Objects that were deleted since the last pass. There may be others of their names."""

    def begin_anew(self, key: Key) -> None:
        """Forget the status of an object that was deleted.

        Another object of its name gets the status of the next pass, although that may be equal.
        """
        self._forget(key)
        self._anew.add(key)

    def next_release(self) -> float | None:
        """Return the earliest time at which a status is released in any case, or None."""
        return self._deferred.next_release()

    def update(
        self, before: CompileResult, result: CompileResult, changed: Collection[Key]
    ) -> None:
        """Write new statuses.

        ``changed``: the Gateways with a new configuration or report.
        """
        now = time.monotonic()
        if result is not before or self._anew:
            self._defer(before, result, now)

        def served(key: Key) -> int | None:
            name = published_name(key)
            return self._publisher.served_number(name) if key in result.gateways else None

        released = [*self._deferred.release_ready(changed, served, now)]
        if not released and not self.overdue:
            return
        waiting = counted(self._publisher.waiting, result.gateways)
        for key, status, awaited in released:
            self._statuses.set_desired(key, self.overdue.released(key, status, awaited, waiting))
        for key, status in self.overdue.caught_up(changed, waiting):
            self._statuses.set_desired(key, status)

    def _defer(self, before: CompileResult, result: CompileResult, now: float) -> None:
        latest = self._publisher.latest_number
        statuses = {key: status for key, _, status in before.statuses.diff(result.statuses)}
        if self._anew:
            statuses |= {key: result.statuses.get(key) for key in self._anew}
            self._anew.clear()
        for key, status in statuses.items():
            if status is None:
                self._forget(key)
                continue
            self._statuses.set_record(key, status.next_record)
            gateways = result.attached.get(key, ())
            awaited = {gateway: latest(published_name(gateway)) for gateway in gateways}
            self._deferred.defer(key, status, awaited, now)

    def _forget(self, key: Key) -> None:
        self._deferred.discard(key)
        self.overdue.discard(key)
        self._statuses.forget(key)
