"""Events about objects, with aggregation: equal Events are counted, not repeated."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
import structlog

from gatehouse.apis.resources import EVENTS
from gatehouse.kube.client import (
    AlreadyExists,
    ApiError,
    Client,
    NamespaceTerminating,
    NotFound,
    Unavailable,
)
from gatehouse.kube.event_budget import EventBudget
from kube_base.types.objects import Object

log = structlog.get_logger("gatehouse.kube.events")

_CACHE_SIZE = 1024
"""Maximum number of distinct Events in the aggregator."""

MAX_EVENT_MESSAGE_CHARACTERS = 1024
"""Maximum length of ``message`` in characters that API servers accept."""

FLUSH_SECONDS = 1.0
"""Interval in seconds between writes; equal Events within it are one write."""

RETRYABLE_STATUS = frozenset({0, 429, 503})
"""HTTP statuses (0 without a response) after which a write is retried."""

UNAVAILABLE_PAUSE_SECONDS = 5.0
"""Delay in seconds before the next write to an unavailable server."""


class EventKey(msgspec.Struct, frozen=True):
    """Object and content of an Event. Equal keys are one Event with a count."""

    kind: str
    api_version: str
    namespace: str
    name: str
    uid: str
    type: Literal["Normal", "Warning"]
    reason: str
    message: str

    @property
    def event_namespace(self) -> str:
        """Return the namespace of the Event: that of the object, ``default`` if it has none."""
        return self.namespace or "default"


class EventCount(msgspec.Struct):
    """Occurrences of an Event, and how many of them are written."""

    first: datetime
    last: datetime
    count: int = 1
    written: int = 0


class EventAggregator:
    """Counts equal Events within the budgets of their namespaces. No I/O; callers pass the time."""

    def __init__(
        self, capacity: int = _CACHE_SIZE, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``clock``: returns seconds that never decrease, for the budgets."""
        self._capacity, self._budget = capacity, EventBudget(clock)
        self._counts: dict[str, OrderedDict[EventKey, EventCount]] = {}
        """By namespace of the objects."""
        self._size = 0

    def add(self, key: EventKey, now: datetime) -> bool:
        """Count one Event. Return False if the budget of its namespace has no further write."""
        counts: Mapping[EventKey, EventCount] = self._counts.get(key.namespace, {})
        event_count = counts.get(key)
        is_written = event_count is None or event_count.written == event_count.count
        if is_written and not self._budget.take(key.namespace):
            return False
        if event_count is None:
            self._insert(key, EventCount(first=now, last=now))
        else:
            event_count.count += 1
            event_count.last = now
        self._counts[key.namespace].move_to_end(key)
        return True

    def _insert(self, key: EventKey, event_count: EventCount) -> None:
        self._counts.setdefault(key.namespace, OrderedDict())[key] = event_count
        self._size += 1
        if self._size > self._capacity:
            # The namespace with the most Events loses its oldest one, not one of another namespace.
            namespace = max(self._counts, key=lambda name: len(self._counts[name]))
            self._counts[namespace].popitem(last=False)
            self._size -= 1
            if not self._counts[namespace]:
                del self._counts[namespace]

    def unwritten(self) -> tuple[tuple[EventKey, EventCount], ...]:
        """Return the Events that are not completely written.

        The oldest Event of each namespace comes first, then the second one of each, and so on.
        """
        queues = (
            [(key, entry) for key, entry in counts.items() if entry.written < entry.count]
            for counts in self._counts.values()
        )
        rounds = itertools.zip_longest(*queues)
        return tuple(entry for row in rounds for entry in row if entry is not None)


def event_object(key: EventKey, event_count: EventCount, component: str) -> Object:
    """Build the core/v1 Event. Its name derives from the key, its first time and the component."""
    first, last = _stamp(event_count.first), _stamp(event_count.last)
    seed = msgspec.json.encode((key, first, component))
    digest = hashlib.sha256(seed).hexdigest()[:16]
    return {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        # Names have at most 253 characters, which the name of the object alone may have.
        "metadata": {
            "name": f"{key.name[:236].rstrip('-.')}.{digest}",
            "namespace": key.event_namespace,
        },
        "involvedObject": {
            "apiVersion": key.api_version,
            "kind": key.kind,
            "name": key.name,
            "uid": key.uid,
            **({"namespace": key.namespace} if key.namespace else {}),
        },
        "type": key.type,
        "reason": key.reason,
        "message": key.message,
        "source": {"component": component},
        "reportingComponent": component,
        "reportingInstance": component,
        "firstTimestamp": first,
        "lastTimestamp": last,
        "count": event_count.count,
    }


def _stamp(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Recorder:
    """Records Events without blocking and writes them in the background."""

    def __init__(
        self,
        client: Client,
        component: str,
        *,
        pause: float = FLUSH_SECONDS,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._component = component
        self._pause = pause
        self._wall = wall
        self._aggregator = EventAggregator()
        self._wake_up = asyncio.Event()

    def record(
        self,
        obj: Mapping[str, Any],
        type_: Literal["Normal", "Warning"],
        reason: str,
        message: str,
    ) -> None:
        """Record an Event about ``obj``, if the budget of its namespace allows it.

        Never blocks and never raises.
        """
        metadata = obj.get("metadata", {})
        key = EventKey(
            kind=obj.get("kind", ""),
            api_version=obj.get("apiVersion", ""),
            namespace=metadata.get("namespace", ""),
            name=metadata.get("name", ""),
            uid=metadata.get("uid", ""),
            type=type_,
            reason=reason,
            message=message[:MAX_EVENT_MESSAGE_CHARACTERS],
        )
        if self._aggregator.add(key, self._wall()):
            self._wake_up.set()
        else:
            log.debug("event not recorded", object=key.name, reason=reason, text=message)

    async def run(self) -> None:
        """Write recorded Events until cancelled."""
        while True:
            await self._wake_up.wait()
            self._wake_up.clear()
            pause = self._pause
            try:
                await self.flush()
            except Unavailable as error:
                log.debug("events delayed", error=str(error))
                pause = max(pause, UNAVAILABLE_PAUSE_SECONDS, error.retry_after or 0.0)
                self._wake_up.set()
            await asyncio.sleep(pause)

    async def flush(self) -> None:
        """Write all unwritten Events. Those that the server rejects are dropped and logged.

        Raises Unavailable if the server is not available; unwritten Events stay queued then.
        """
        for key, event_count in self._aggregator.unwritten():
            count, first_write = event_count.count, event_count.written == 0
            try:
                await self._write(event_object(key, event_count, self._component), first_write)
            except NamespaceTerminating as error:
                log.debug("event dropped", object=key.name, reason=key.reason, error=str(error))
            except ApiError as error:
                if isinstance(error, Unavailable) and error.status in RETRYABLE_STATUS:
                    raise
                log.warning("event dropped", object=key.name, reason=key.reason, error=str(error))
            event_count.written = count

    async def _write(self, event: Object, first_write: bool) -> None:
        name, namespace = event["metadata"]["name"], event["metadata"]["namespace"]
        if not first_write:
            try:
                patch = {key: event[key] for key in ("count", "lastTimestamp")}
                await self._client.patch(EVENTS, name, patch, namespace)
            except NotFound:
                # Events expire after about one hour; create it again.
                pass
            else:
                return
        try:
            await self._client.create(EVENTS, event)
        except AlreadyExists:
            log.debug("event exists", name=name)
