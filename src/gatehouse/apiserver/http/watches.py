"""Watches: exact resumption, bookmarks, one encoding for all watchers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import msgspec
from aiohttp import web

from gatehouse.apiserver import errors
from gatehouse.apiserver.http.lists import selection
from gatehouse.apiserver.http.negotiation import Representation, form_of
from gatehouse.apiserver.http.requests import Target, flag, number
from gatehouse.apiserver.storage.entries import (
    CompactedError,
    Entry,
    Event,
    Watch,
    removed,
)
from gatehouse.apiserver.storage.store import Store

Object = dict[str, Any]

BOOKMARK_SECONDS = 60.0
DEFAULT_TIMEOUT_SECONDS = (1800, 3600)
"""Range in seconds of the random default duration of a watch, as in kube-apiserver."""

WRITE_TIMEOUT_SECONDS = 30.0
"""Timeout in seconds of a write to a watcher. Slower watchers are disconnected."""

INITIAL_END = "k8s.io/initial-events-end"


class Encoded:
    """Encoded events of one store, shared by all watchers with the same representation."""

    def __init__(self) -> None:
        self._lines: dict[tuple[int, str, str, str, str], bytes] = {}

    def line(self, kind: str, form: Representation, entry: Entry) -> bytes:
        """Return the watch line with an event of type `kind` for `entry`."""
        key = (entry.revision, kind, form.kind, form.rows_with, form.api_version)
        encoded = self._lines.get(key)
        if encoded is None:
            if len(self._lines) > 4096:
                self._lines.clear()
            data = form.encode(entry)
            encoded = b'{"type":"' + kind.encode() + b'","object":' + data + b"}\n"
            self._lines[key] = encoded
        return encoded


class WatchView(msgspec.Struct, frozen=True):
    """Selection and representation of one watcher."""

    form: Representation
    selects: Callable[[Object], bool]
    bookmarks: bool
    encoded: Encoded

    def start(self, entries: Iterable[Entry]) -> list[bytes]:
        """Return the lines for existing objects."""
        return [
            self.encoded.line("ADDED", self.form, entry)
            for entry in entries
            if self.selects(entry.value)
        ]

    def lines(self, events: Iterable[Event]) -> Iterable[bytes]:
        """Return the lines for changes.

        An object that enters the selection is reported as added, one that leaves it as deleted.
        """
        for event in events:
            before = event.before is not None and self.selects(event.before.value)
            now = event.now is not None and self.selects(event.now.value)
            if now and event.now is not None:
                yield self.encoded.line("MODIFIED" if before else "ADDED", self.form, event.now)
            elif before and event.before is not None:
                last = removed(event.before, event.revision)
                yield self.encoded.line("DELETED", self.form, last)

    def bookmark(self, revision: int, annotations: dict[str, str]) -> bytes:
        """Return a bookmark line. All changes up to `revision` have been sent."""
        metadata: Object = {"resourceVersion": str(revision), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        kind, version = self.form.served.resource.kind, self.form.api_version
        if self.form.kind:
            kind, version = self.form.kind, "meta.k8s.io/v1"
        obj: Object = {"kind": kind, "apiVersion": version, "metadata": metadata}
        if self.form.kind == "Table":
            obj |= {"columnDefinitions": [], "rows": []}
        return b'{"type":"BOOKMARK","object":' + msgspec.json.encode(obj) + b"}\n"


async def watch_objects(
    request: web.BaseRequest, store: Store, target: Target, encoded: Encoded, stop: asyncio.Event
) -> web.StreamResponse:
    """Stream changes until disconnect, timeout or `stop`. Raises ApiError."""
    initial = _initial(request)
    view = WatchView(
        form_of(request, target.requested),
        selection(request, target),
        flag(request, "allowWatchBookmarks"),
        encoded,
    )
    requested = number(request, "resourceVersion")
    if initial or not requested:
        await store.read_fresh()
    if requested is not None and requested > store.revision:
        await store.read_fresh()
        if requested > store.revision:
            raise errors.too_large_version(requested, store.revision)
    seconds = number(request, "timeoutSeconds") or random.randint(*DEFAULT_TIMEOUT_SECONDS)  # noqa: S311
    from_now = initial or not requested
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    response.enable_chunked_encoding()
    try:
        watch = store.watch(target.prefix, store.revision if from_now else requested or 0)
    except CompactedError:
        await response.prepare(request)
        gone = errors.expired(
            f"too old resource version: {requested} ({store.compacted_revision})"
        ).status()
        line = b'{"type":"ERROR","object":' + msgspec.json.encode(gone) + b"}\n"
        await response.write(line)
        return response
    try:
        # No await between the watch and the list, so that no change is lost between them.
        lines = view.start([e for _, e in store.list(target.prefix)]) if from_now else []
        if initial and view.bookmarks:
            lines.append(view.bookmark(store.revision, {INITIAL_END: "true"}))
        await response.prepare(request)
        if lines:
            await _send(response, b"".join(lines))
        async for chunk in _changes(watch, view, store, seconds, stop):
            await _send(response, chunk)
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
    except (ConnectionResetError, asyncio.CancelledError):
        pass
    finally:
        watch.close()
    return response


async def _send(response: web.StreamResponse, chunk: bytes) -> None:
    async with asyncio.timeout(WRITE_TIMEOUT_SECONDS):
        await response.write(chunk)


def _initial(request: web.BaseRequest) -> bool:
    """Return whether the current state must be sent first. Raises ApiError."""
    if "sendInitialEvents" not in request.query:
        return False
    if request.query.get("resourceVersionMatch") != "NotOlderThan":
        message = (
            "resourceVersionMatch: Forbidden: sendInitialEvents requires setting "
            "resourceVersionMatch to NotOlderThan"
        )
        raise errors.ApiError(422, "Invalid", message)
    return flag(request, "sendInitialEvents")


async def _changes(
    watch: Watch, view: WatchView, store: Store, seconds: int, stop: asyncio.Event
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
                chunk = b"".join(view.lines(next_events.result()))
                if chunk:
                    yield chunk
                continue
            next_events.cancel()
            # A bookmark must not overtake an event: a client that resumes from it would miss the
            # event.
            if view.bookmarks and not watch.waiting and not stop.is_set():
                yield view.bookmark(store.revision, {})
    finally:
        stopping.cancel()
