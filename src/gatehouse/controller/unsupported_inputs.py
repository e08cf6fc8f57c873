"""Inputs of the front end about what data planes cannot serve, one for each object concerned.

Only the statuses of objects whose findings change are computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gatehouse.compiler.frontends import gateway_api
from gatehouse.compiler.frontends.combined import REPORTED
from gatehouse.compiler.ir.unsupported import Unsupported
from gatehouse.incremental.query import Key

_REPORTED = frozenset(resource.kind for resource in REPORTED)


class UnsupportedInputs:
    """Keeps the inputs of each Gateway equal to the latest findings about it."""

    def __init__(self, put: Callable[[Key, Any], bool]) -> None:
        """``put`` stores an input and returns whether it changed."""
        self._put = put
        self._subjects: dict[Key, frozenset[Key]] = {}

    def update(self, gateway: Key, findings: Iterable[Unsupported]) -> bool:
        """Store the findings about a Gateway. Return whether any changed."""
        by_subject: dict[Key, list[Unsupported]] = {}
        for finding in findings:
            by_subject.setdefault(_subject(gateway, finding), []).append(finding)
        changed = False
        for subject in self._subjects.get(gateway, frozenset()) | by_subject.keys():
            entries = tuple(by_subject[subject]) if subject in by_subject else None
            changed |= self._put(gateway_api.unsupported_key(gateway, subject), entries)
        self._subjects[gateway] = frozenset(by_subject)
        if not by_subject:
            del self._subjects[gateway]
        return changed


def _subject(gateway: Key, finding: Unsupported) -> Key:
    """Return the object whose status reports a finding: its origin, if that has a status."""
    origin = finding.origin
    if origin.kind not in _REPORTED:
        return gateway
    return (origin.kind, origin.namespace, origin.name)
