"""Watches: exact resumption, bookmarks, one encoding for all watchers."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator

import msgspec
from aiohttp import web

from kube_api_server import errors, offload
from kube_api_server.causes import forbidden_cause
from kube_api_server.http import responses, slices
from kube_api_server.http.lists import reach, selection
from kube_api_server.http.negotiation import form_of
from kube_api_server.http.representations import Representation
from kube_api_server.http.requests import RequestTarget, query_flag, query_number
from kube_api_server.storage.entries import (
    CompactedError,
    StoredEntry,
    StoreEvent,
    Watch,
    removed,
)
from kube_api_server.storage.store import ObjectStore
from kube_base.types.objects import Object

BOOKMARK_SECONDS = 60.0
DEFAULT_TIMEOUT_SECONDS = (1800, 3600)
"""Range in seconds of the random default duration of a watch, as in kube-apiserver."""

WRITE_TIMEOUT_SECONDS = 30.0
"""Timeout in seconds of a write to a watcher. Slower watchers are disconnected."""

MAX_LINES = 4096
"""Maximum number of encoded events that watchers share."""

MAX_LINES_BYTES = 32 << 20
"""Size in bytes of encoded events above which they are encoded again."""

WATCH_CHUNK_BYTES = 256 << 10
"""Size in bytes above which the lines of a watcher are written before the next ones are encoded."""

MAX_UNREAD_BYTES = 128 << 20
"""Maximum number of bytes that are being written to the watchers of one user, or of the
ServiceAccounts of one namespace. A watcher above it is disconnected."""

Initialised = Callable[[], Awaitable[None]]

INITIAL_END = "k8s.io/initial-events-end"


class WriteBudget:
    """Bytes that are being written to the watchers of each user."""

    def __init__(self) -> None:
        self._bytes: Counter[str] = Counter()

    @contextlib.contextmanager
    def hold(self, owner: str, size: int) -> Iterator[None]:
        """Count bytes while they are written. Raises TimeoutError if too many are unread."""
        if self._bytes[owner] and self._bytes[owner] + size > MAX_UNREAD_BYTES:
            raise TimeoutError(f"watchers of {owner} read too slowly")
        self._bytes[owner] += size
        try:
            yield
        finally:
            self._bytes[owner] -= size
            if not self._bytes[owner]:
                del self._bytes[owner]


class Encoded:
    """Encoded events of one store, shared by all watchers with the same representation."""

    def __init__(self) -> None:
        self._lines: dict[tuple[int, str, str, str, str, str, bool], bytes] = {}
        self._bytes = 0
        self.budget = WriteBudget()

    def line(self, kind: str, form: Representation, entry: StoredEntry, *, headed: bool) -> bytes:
        """Return the watch line with an event of type `kind` for `entry`.

        A Table includes its column definitions if `headed` is set.
        """
        return self._line(kind, form, entry.revision, lambda: entry, headed=headed)

    def deleted(
        self, form: Representation, before: StoredEntry, revision: int, *, headed: bool
    ) -> bytes:
        """Return the watch line for an object that was removed, or left the selection."""
        return self._line(
            "DELETED", form, revision, lambda: removed(before, revision), headed=headed
        )

    def _line(
        self,
        kind: str,
        form: Representation,
        revision: int,
        build: Callable[[], StoredEntry],
        *,
        headed: bool,
    ) -> bytes:
        key = (
            *(revision, kind, form.content_type, form.kind, form.rows_with, form.api_version),
            headed,
        )
        encoded = self._lines.get(key)
        if encoded is None:
            if len(self._lines) > MAX_LINES or self._bytes > MAX_LINES_BYTES:
                self._lines.clear()
                self._bytes = 0
            encoded = form.event(kind, form.encode(build(), headed=headed))
            self._lines[key] = encoded
            self._bytes += len(encoded)
        return encoded


class WatchView(msgspec.Struct):
    """Selection and representation of one watcher."""

    form: Representation
    selects: Callable[[Object], bool]
    bookmarks: bool
    encoded: Encoded
    headed: bool = True
    """True until a Table has been sent: only the first one has column definitions."""

    async def start(self, entries: list[StoredEntry], end: int) -> bytes:
        """Return the lines for existing objects, with a bookmark of revision `end` unless 0."""
        lines: list[bytes] = []

        def add(entry: StoredEntry) -> None:
            if self.selects(entry.value):
                lines.append(self._line("ADDED", entry))

        await slices.for_each(entries, add)
        if end:
            lines.append(self.bookmark(end, {INITIAL_END: "true"}))
        return b"".join(lines)

    def lines(self, events: Iterable[StoreEvent]) -> Iterable[bytes]:
        """Return the lines for changes.

        An object that enters the selection is reported as added, one that leaves it as deleted.
        """
        for event in events:
            before = event.before is not None and self.selects(event.before.value)
            now = event.now is not None and self.selects(event.now.value)
            if now and event.now is not None:
                yield self._line("MODIFIED" if before else "ADDED", event.now)
            elif before and event.before is not None:
                headed = self._take_headed()
                yield self.encoded.deleted(self.form, event.before, event.revision, headed=headed)

    def bookmark(self, revision: int, annotations: dict[str, str]) -> bytes:
        """Return a bookmark line. All changes up to `revision` have been sent."""
        metadata: Object = {"resourceVersion": str(revision), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        kind, version = self.form.served.resource.kind, self.form.api_version
        obj: Object = {"kind": kind, "apiVersion": version, "metadata": metadata}
        form = self.form
        if not form.kind:
            return form.event("BOOKMARK", form.encode_object(obj))
        if annotations and form.rows_with == "None":
            form = msgspec.structs.replace(form, rows_with="Metadata")
        entry = StoredEntry(revision, obj, b"")
        return form.event("BOOKMARK", form.encode(entry, headed=self._take_headed()))

    def _line(self, kind: str, entry: StoredEntry) -> bytes:
        return self.encoded.line(kind, self.form, entry, headed=self._take_headed())

    def _take_headed(self) -> bool:
        """Return whether the next event has column definitions, for Tables only."""
        headed, self.headed = self.headed, self.form.kind != "Table"
        return headed


async def watch_objects(
    request: web.BaseRequest,
    store: ObjectStore,
    target: RequestTarget,
    encoded: Encoded,
    stop: asyncio.Event,
    initialised: Initialised,
) -> web.StreamResponse:
    """Stream changes until disconnect, timeout or `stop`. Raises ApiError."""
    initial = _initial(request)
    view = WatchView(
        form_of(request, target.requested),
        selection(request, target),
        query_flag(request, "allowWatchBookmarks"),
        encoded,
    )
    requested = query_number(request, "resourceVersion")
    if initial or not requested:
        await store.read_fresh()
    await reach(store, requested or 0)
    seconds = query_number(request, "timeoutSeconds") or random.randint(*DEFAULT_TIMEOUT_SECONDS)  # noqa: S311
    from_now = initial or not requested
    response = web.StreamResponse(headers={"Content-Type": view.form.watch_type})
    response.enable_chunked_encoding()
    try:
        watch = store.watch(target.prefix, store.revision if from_now else requested or 0)
    except CompactedError:
        await response.prepare(request)
        await response.write(_expired(view.form, requested, store.compacted_revision))
        return response
    try:
        # No await between the watch and the list, so that no change is lost between them.
        entries = [entry for _, entry in store.list(target.prefix)] if from_now else []
        end = store.revision if initial and view.bookmarks else 0
        data = await view.start(entries, end)
        await response.prepare(request)
        async with asyncio.timeout(responses.SEND_SECONDS):
            await responses.write(response, data, WRITE_TIMEOUT_SECONDS)
        del entries, data
        await initialised()
        async for chunk in _changes(watch, view, store, seconds, stop):
            await _send(response, chunk, encoded.budget)
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
    except (ConnectionResetError, asyncio.CancelledError):
        pass
    finally:
        watch.close()
    return response


def _expired(form: Representation, requested: int | None, compacted: int) -> bytes:
    """Return the event that ends a watch whose revision is too old."""
    gone = errors.expired(f"too old resource version: {requested} ({compacted})").status()
    return form.event("ERROR", form.encode_object(gone))


async def _send(response: web.StreamResponse, chunk: bytes, budget: WriteBudget) -> None:
    with budget.hold(offload.FLOW.get(), len(chunk)):
        async with asyncio.timeout(WRITE_TIMEOUT_SECONDS):
            await response.write(chunk)


def _initial(request: web.BaseRequest) -> bool:
    """Return whether the current state must be sent first. Raises ApiError."""
    if "sendInitialEvents" not in request.query:
        return False
    if request.query.get("resourceVersionMatch") != "NotOlderThan":
        why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        cause = forbidden_cause("resourceVersionMatch", why)
        raise errors.invalid_error("ListOptions", "meta.k8s.io", "", [cause])
    return query_flag(request, "sendInitialEvents")


def _chunks(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Join lines to chunks of limited size."""
    chunk: list[bytes] = []
    size = 0
    for line in lines:
        chunk.append(line)
        size += len(line)
        if size >= WATCH_CHUNK_BYTES:
            yield b"".join(chunk)
            chunk, size = [], 0
    if chunk:
        yield b"".join(chunk)


async def _changes(
    watch: Watch, view: WatchView, store: ObjectStore, seconds: int, stop: asyncio.Event
) -> AsyncIterator[bytes]:
    """Yield the next bytes to write: changes, or a bookmark after a quiet interval."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    stopping = asyncio.ensure_future(stop.wait())
    try:
        while not watch.cut and not stop.is_set() and loop.time() < deadline:
            next_events = asyncio.ensure_future(watch.next())
            timeout = min(deadline - loop.time(), BOOKMARK_SECONDS)
            await asyncio.wait(
                {next_events, stopping}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED
            )
            if next_events.done():
                for chunk in _chunks(view.lines(next_events.result())):
                    yield chunk
                continue
            next_events.cancel()
            # A bookmark must not overtake an event: a client that resumes from it would miss the
            # event.
            if view.bookmarks and not watch.waiting and not stop.is_set():
                yield view.bookmark(store.revision, {})
    finally:
        stopping.cancel()
