"""Queue of apply requests: one in progress; of the waiting ones only the newest counts. No I/O."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class CoalescingQueue(Generic[T]):
    """The request in progress and the newest request received since."""

    def __init__(self) -> None:
        self.in_progress: T | None = None
        self.waiting: T | None = None

    def put(self, request: T) -> T | None:
        """Enqueue a request. Return the waiting request that it replaces, if any."""
        replaced, self.waiting = self.waiting, request
        return replaced

    def start_next(self) -> T | None:
        """Start the waiting request. Return None if none waits or one is in progress."""
        if self.in_progress is not None:
            return None
        self.in_progress, self.waiting = self.waiting, None
        return self.in_progress

    def finish(self) -> None:
        """Mark the request in progress as finished."""
        self.in_progress = None
