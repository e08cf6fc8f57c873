"""Events: short notes on an object for its author, the same note counted instead of repeated."""

from __future__ import annotations

import asyncio
import hashlib
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
    NotFound,
    Object,
    Unavailable,
)

log = structlog.get_logger("gatehouse.kube.events")

CACHE_SIZE = 1024
"""Different notes remembered for counting; the one not repeated for longest is forgotten first."""

MESSAGE_LIMIT = 1024
"""Characters of ``message`` that API servers accept."""

FLUSH_SECONDS = 1.0
"""Seconds between two rounds of writing: what repeats within is one write."""

RETRYABLE_STATUS = frozenset({0, 429, 503})
"""Statuses, 0 for no answer, with which a server asks for another attempt, whatever is written."""

UNAVAILABLE_PAUSE = 5.0
"""Seconds before a server that could not be asked is asked again."""


class EventKey(msgspec.Struct, frozen=True):
    """What is said about an object; two equal notes are one Event with a count."""

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
        """Where the Event lives: beside its object, or in ``default`` for a cluster-scoped one."""
        return self.namespace or "default"


class EventCount(msgspec.Struct):
    """How often a note was made, when first and last, and how much of that is written."""

    first: datetime
    last: datetime
    count: int = 1
    written: int = 0


class EventAggregator:
    """Counts notes. Pure: time comes with each note."""

    def __init__(self, remembered: int = CACHE_SIZE) -> None:
        self._remembered = remembered
        self._tallies: OrderedDict[EventKey, EventCount] = OrderedDict()

    def add(self, note: EventKey, now: datetime) -> None:
        """Count one note."""
        tally = self._tallies.get(note)
        if tally is None:
            self._tallies[note] = EventCount(first=now, last=now)
        else:
            tally.count += 1
            tally.last = now
        self._tallies.move_to_end(note)
        while len(self._tallies) > self._remembered:
            self._tallies.popitem(last=False)

    def unwritten(self) -> tuple[tuple[EventKey, EventCount], ...]:
        """Give what has to be written, the oldest first."""
        return tuple((n, t) for n, t in self._tallies.items() if t.written < t.count)


def event_object(note: EventKey, tally: EventCount, component: str) -> Object:
    """Make the core/v1 Event of a note. Its name follows from the note and its first time."""
    first, last = _stamp(tally.first), _stamp(tally.last)
    seed = msgspec.json.encode((note, first, component))
    digest = hashlib.sha256(seed).hexdigest()[:16]
    return {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        # 253 is the limit of a name; the object's own may be as long as that.
        "metadata": {
            "name": f"{note.name[:236].rstrip('-.')}.{digest}",
            "namespace": note.event_namespace,
        },
        "involvedObject": {
            "apiVersion": note.api_version,
            "kind": note.kind,
            "name": note.name,
            "uid": note.uid,
            **({"namespace": note.namespace} if note.namespace else {}),
        },
        "type": note.type,
        "reason": note.reason,
        "message": note.message,
        "source": {"component": component},
        "reportingComponent": component,
        "reportingInstance": component,
        "firstTimestamp": first,
        "lastTimestamp": last,
        "count": tally.count,
    }


def _stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Recorder:
    """Takes notes at once and writes them in the background; a note is never worth waiting for."""

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
        self._ledger = EventAggregator()
        self._woken = asyncio.Event()

    def record(
        self,
        obj: Mapping[str, Any],
        type_: Literal["Normal", "Warning"],
        reason: str,
        message: str,
    ) -> None:
        """Note something about ``obj``. Returns at once, raises nothing, may be called often."""
        metadata = obj.get("metadata", {})
        note = EventKey(
            kind=obj.get("kind", ""),
            api_version=obj.get("apiVersion", ""),
            namespace=metadata.get("namespace", ""),
            name=metadata.get("name", ""),
            uid=metadata.get("uid", ""),
            type=type_,
            reason=reason,
            message=message[:MESSAGE_LIMIT],
        )
        self._ledger.add(note, self._wall())
        self._woken.set()

    async def run(self) -> None:
        """Write what is noted, for ever."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            pause = self._pause
            try:
                await self.flush()
            except Unavailable as error:
                log.debug("events wait", reason=str(error))
                pause = max(pause, UNAVAILABLE_PAUSE, error.retry_after or 0.0)
                self._woken.set()
            await asyncio.sleep(pause)

    async def flush(self) -> None:
        """Write everything that is not written. What the server refuses is dropped, and logged.

        Raises Unavailable where it cannot be asked: what is not written yet stays noted.
        """
        for note, tally in self._ledger.unwritten():
            count, first_write = tally.count, tally.written == 0
            try:
                await self._write(event_object(note, tally, self._component), first_write)
            except ApiError as error:
                if isinstance(error, Unavailable) and error.status in RETRYABLE_STATUS:
                    raise
                log.warning("event dropped", object=note.name, reason=note.reason, error=str(error))
            tally.written = count

    async def _write(self, event: Object, first_write: bool) -> None:
        name, namespace = event["metadata"]["name"], event["metadata"]["namespace"]
        if not first_write:
            try:
                news = {key: event[key] for key in ("count", "lastTimestamp")}
                await self._client.patch(EVENTS, name, news, namespace)
            except NotFound:
                # Events live for an hour or so; this one is noted anew.
                pass
            else:
                return
        try:
            await self._client.create(EVENTS, event)
        except AlreadyExists:
            log.debug("event exists", name=name)
