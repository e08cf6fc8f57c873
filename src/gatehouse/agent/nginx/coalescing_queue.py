"""Requests to apply: one in progress, of the waiting ones only the newest counts. Pure."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class CoalescingQueue(Generic[T]):
    """Holds what is in progress and the newest of what came since."""

    def __init__(self) -> None:
        self.in_progress: T | None = None
        self.waiting: T | None = None

    def put(self, request: T) -> T | None:
        """Take in a request; returns the waiting one that it replaces."""
        replaced, self.waiting = self.waiting, request
        return replaced

    def start_next(self) -> T | None:
        """Begin with the waiting request, unless one is in progress; None: nothing to begin."""
        if self.in_progress is not None:
            return None
        self.in_progress, self.waiting = self.waiting, None
        return self.in_progress

    def finish(self) -> None:
        """What was in progress has ended."""
        self.in_progress = None
