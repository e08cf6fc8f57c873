"""Events for conditions of UpstreamClusters that change without a change of the object."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gatehouse.compiler.frontends import combined, upstream_cluster
from gatehouse.controller.compilation import CompileResult
from gatehouse.incremental.query import Key
from gatehouse.incremental.table import Table
from gatehouse.kube.events import Recorder

CONDITION_TYPES = ("CertificateValid", "ServersReady")
"""Types of the conditions that are recorded as Events."""


class CertificateEvents:
    """Records one Warning for each condition in :data:`CONDITION_TYPES` that is new or changed."""

    def __init__(
        self, current: Callable[[Key], Mapping[str, Any] | None], recorder: Recorder
    ) -> None:
        """``current``: returns the object as last seen."""
        self._current, self._recorder = current, recorder
        self._last: Table[Key, combined.Status] = Table()

    def follow(self, result: CompileResult) -> None:
        """Record Events for the changes since the previous pass."""
        before, self._last = self._last, result.statuses
        for key, old, new in before.diff(result.statuses):
            new_conditions = _certificate_conditions(new) - _certificate_conditions(old)
            regarding = self._current(key) if new_conditions else None
            if regarding is not None:
                for reason, message in sorted(new_conditions):
                    self._recorder.record(regarding, "Warning", reason, message)


def _certificate_conditions(status: combined.Status | None) -> set[tuple[str, str]]:
    if not isinstance(status, upstream_cluster.ClusterStatus):
        return set()
    return {
        (condition.reason, condition.message)
        for condition in status.conditions
        if condition.type in CONDITION_TYPES
    }
