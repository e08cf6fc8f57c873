"""Recent changes of a store, bounded by their number and by their size."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from kube_api_server.storage.entries import StoreEvent


class History:
    """Changes in order. The oldest ones are evicted."""

    def __init__(self, max_number: int, max_bytes: int) -> None:
        self._max_number, self._max_bytes = max_number, max_bytes
        self._events: deque[StoreEvent] = deque()
        self._bytes = 0
        self.evicted = 0
        """Revision of the newest change that was evicted; 0 for none."""

    def append(self, event: StoreEvent) -> None:
        """Add a change, and evict old ones. The newest change is never evicted."""
        self._events.append(event)
        self._bytes += event.size
        while len(self._events) > self._max_number or (
            self._bytes > self._max_bytes and len(self._events) > 1
        ):
            oldest = self._events.popleft()
            self._bytes -= oldest.size
            self.evicted = oldest.revision

    def clear(self) -> None:
        """Remove all changes."""
        self._events.clear()
        self._bytes = 0

    def __iter__(self) -> Iterator[StoreEvent]:
        """Iterate over the changes, oldest first."""
        return iter(self._events)

    def __reversed__(self) -> Iterator[StoreEvent]:
        """Iterate over the changes, newest first."""
        return reversed(self._events)
