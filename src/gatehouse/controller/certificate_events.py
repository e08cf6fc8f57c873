"""Events of certificates that do not hold: they expire while nobody looks at a status."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gatehouse.compiler.frontends import combined, upstream_cluster
from gatehouse.controller.compilation import CompileResult
from gatehouse.incremental.query import Key
from gatehouse.incremental.table import Table
from gatehouse.kube.events import Recorder

TOLD = ("CertificateValid",)
"""Types of conditions."""


class CertificateEvents:
    """One Warning for each such condition of an UpstreamCluster that is new, or says another
    thing.
    """

    def __init__(
        self, current: Callable[[Key], Mapping[str, Any] | None], recorder: Recorder
    ) -> None:
        """``current``: the object as last seen."""
        self._current, self._recorder = current, recorder
        self._last: Table[Key, combined.Status] = Table()

    def follow(self, found: CompileResult) -> None:
        """Take in what a pass found."""
        before, self._last = self._last, found.statuses
        for key, old, new in before.diff(found.statuses):
            said = _said(new) - _said(old)
            about = self._current(key) if said else None
            if about is not None:
                for reason, message in sorted(said):
                    self._recorder.record(about, "Warning", reason, message)


def _said(status: combined.Status | None) -> set[tuple[str, str]]:
    if not isinstance(status, upstream_cluster.ClusterStatus):
        return set()
    return {(each.reason, each.message) for each in status.conditions if each.type in TOLD}
