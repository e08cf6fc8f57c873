"""Problems of backends without endpoints: when conditions report them, and their Events.

A change of endpoints is served at once. Its report waits, because endpoints may come and go all the
time and each report writes the statuses of all routes of the Service.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from gatehouse.compiler.frontends.gateway_api.backend_problems import (
    BackendProblem,
    backend_problem_key,
)
from gatehouse.compiler.frontends.gateway_api.cluster_key import ClusterKey
from gatehouse.incremental.query import Key
from gatehouse.incremental.table import Table

REPORT_SECONDS = 5.0
"""Time in seconds for which a problem must exist before it is reported. Objects that are applied
together arrive one after another."""

REPORT_INTERVAL_SECONDS = 60.0
"""Minimum time in seconds between two reports of a problem of one backend."""

Problems = Table[tuple[str, ClusterKey], BackendProblem]
"""Problems of the backends of a Gateway, by name of the cluster."""

_EMPTY: Problems = Table()


class BackendReports:
    """Stores the problems to report as inputs of the compilation."""

    def __init__(
        self,
        put: Callable[[Key, Any], bool],
        record: Callable[[Key, str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``put`` stores an input and returns whether it changed.

        ``record`` records an Event about a Service or XBackend. ``clock`` returns seconds that
        never decrease.
        """
        self._put, self._record, self._clock = put, record, clock
        self._by_gateway: Table[Key, Problems] | None = None
        """The last observed problems; None before the first pass."""
        self._problems: dict[Key, BackendProblem] = {}
        """Problems as they are now, by key of the input."""
        self._reported: dict[Key, str] = {}
        self._reported_at: dict[Key, float] = {}
        """Time of the last report by key, as long as it delays the next one."""
        self._due: dict[Key, float] = {}
        """Time of the next change of a report, by key."""

    def update(self, by_gateway: Table[Key, Problems]) -> bool:
        """Take in the problems of a pass. Return whether an input changed."""
        if by_gateway is self._by_gateway and not self._due:
            return False
        now, first = self._clock(), self._by_gateway is None
        before = self._by_gateway if self._by_gateway is not None else Table[Key, Problems]()
        if by_gateway is not before:
            for gateway, old, new in before.diff(by_gateway):
                self._take_in(gateway, old or _EMPTY, new or _EMPTY, now, first=first)
            self._by_gateway = by_gateway
        due = [key for key, at in self._due.items() if at <= now]
        changed = False
        for key in due:
            del self._due[key]
            # Problems of before the start of this controller have been recorded.
            changed |= self._report(key, now, record=not first)
        return changed

    def _take_in(
        self, gateway: Key, old: Problems, new: Problems, now: float, *, first: bool
    ) -> None:
        for (_, cluster), _, problem in old.diff(new):
            key = backend_problem_key(gateway, cluster)
            if problem is None:
                self._problems.pop(key, None)
            else:
                self._problems[key] = problem
            text = None if problem is None else problem.text
            if text == self._reported.get(key):
                self._due.pop(key, None)
            elif text is None or first:
                self._due[key] = now
            else:
                earliest = (
                    self._reported_at.get(key, now - REPORT_INTERVAL_SECONDS)
                    + REPORT_INTERVAL_SECONDS
                )
                self._due.setdefault(key, max(now + REPORT_SECONDS, earliest))

    def _report(self, key: Key, now: float, *, record: bool) -> bool:
        problem = self._problems.get(key)
        if problem is None:
            self._reported.pop(key, None)
            self._forget_old(now)
            return self._put(key, None)
        self._reported[key] = problem.text
        # The oldest report comes first.
        self._reported_at.pop(key, None)
        self._reported_at[key] = now
        if record:
            self._record(problem.backend, problem.text)
        return self._put(key, problem.text)

    def _forget_old(self, now: float) -> None:
        """Drop the times of reports that delay no other one, of backends without a problem."""
        while self._reported_at:
            key, reported_at = next(iter(self._reported_at.items()))
            if reported_at + REPORT_INTERVAL_SECONDS > now:
                return
            del self._reported_at[key]

    def next_wakeups(self) -> list[float]:
        """Return the seconds until the next update is due, as a list of at most one element."""
        if not self._due:
            return []
        return [max(0.0, min(self._due.values()) - self._clock())]
