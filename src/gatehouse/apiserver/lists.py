"""LIST and WATCH: consistent pages, exact resumption, one encoding for all watchers."""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import msgspec
from aiohttp import web

from gatehouse.apiserver import errors, selectors, tables
from gatehouse.apiserver.registry import Served
from gatehouse.apiserver.requests import Target, flag
from gatehouse.apiserver.storage.store import CompactedError, Entry, Event, Store, Watch

Object = dict[str, Any]
Test = Callable[[Object], bool]

BOOKMARK_SECONDS = 60.0
LONGEST_WATCH = (1800, 3600)
"""Seconds a watch lasts when the client does not say, as a Kubernetes API server chooses."""

INITIAL_END = "k8s.io/initial-events-end"


class Form(msgspec.Struct, frozen=True):
    """How objects are shown: as they are, as rows of a Table, or as metadata only."""

    served: Served
    api_version: str
    kind: str = ""

    def encode(self, entry: Entry) -> bytes:
        """Give one object."""
        if self.kind == "Table":
            return msgspec.json.encode(tables.table(self.served, [entry.value], _version(entry)))
        if self.kind == "PartialObjectMetadata":
            return msgspec.json.encode(_partial(entry.value))
        if entry.value["apiVersion"] != self.api_version:
            return msgspec.json.encode({**entry.value, "apiVersion": self.api_version})
        return entry.data

    def encode_list(self, entries: list[Entry], metadata: Object) -> bytes:
        """Give a list; stored bytes are joined, not encoded again."""
        if self.kind == "Table":
            values = (entry.value for entry in entries)
            return msgspec.json.encode(tables.table(self.served, values, metadata))
        kind = f"{self.kind or self.served.resource.kind}List"
        version = "meta.k8s.io/v1" if self.kind else self.api_version
        head = msgspec.json.encode({"kind": kind, "apiVersion": version, "metadata": metadata})
        return head[:-1] + b',"items":[' + b",".join(map(self.encode, entries)) + b"]}"


def form_of(request: web.Request, target: Target) -> Form:
    """Choose a form by the Accept header."""
    group = target.served.resource.group
    api_version = f"{group}/{target.version}" if group else target.version
    for offer in request.headers.get("Accept", "").split(","):
        parameters = dict(
            part.strip().partition("=")[::2] for part in offer.split(";")[1:] if "=" in part
        )
        kind = parameters.get("as", "").removesuffix("List")
        if kind in ("Table", "PartialObjectMetadata") and parameters.get("v") == "v1":
            return Form(target.served, api_version, kind)
        if offer.split(";")[0].strip() in ("application/json", "*/*") and not kind:
            break
    return Form(target.served, api_version)


def _version(entry: Entry) -> Object:
    return {"resourceVersion": str(entry.revision)}


def _partial(value: Object) -> Object:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": value["metadata"],
    }


def selection(request: web.Request) -> Test:
    """Give the test of the request's label and field selectors."""
    tests = [
        test
        for test in (
            selectors.labels(request.query.get("labelSelector", "")),
            selectors.fields(request.query.get("fieldSelector", "")),
        )
        if test is not None
    ]
    return lambda obj: all(test(obj) for test in tests)


def prefix_of(target: Target) -> str:
    """Give the prefix of the keys of a collection."""
    base = target.served.prefix
    return f"{base}{target.namespace}/" if target.namespace else base


def list_objects(request: web.Request, store: Store, target: Target) -> bytes:
    """Give a list, or a page of one."""
    chosen, form = selection(request), form_of(request, target)
    limit = _number(request, "limit") or 0
    start, version = "", store.revision
    wanted = _number(request, "resourceVersion")
    if wanted is not None and wanted > store.revision:
        message = f"Too large resource version: {wanted}, current: {store.revision}"
        raise errors.ApiError(504, "Timeout", message)
    if request.query.get("continue"):
        start, version = _continuation(request.query["continue"])
        if version < store.horizon:
            raise errors.expired("The provided continue parameter is too old")
    found: list[Entry] = []
    more, last = 0, ""
    for key, entry in store.list(prefix_of(target)):
        if key <= start or not chosen(entry.value):
            continue
        if limit and len(found) == limit:
            more += 1
            continue
        found.append(entry)
        last = key
    metadata: Object = {"resourceVersion": str(version)}
    if more:
        token = msgspec.json.encode({"v": version, "start": last})
        metadata |= {
            "continue": base64.urlsafe_b64encode(token).decode(),
            "remainingItemCount": more,
        }
    return form.encode_list(found, metadata)


def _continuation(text: str) -> tuple[str, int]:
    try:
        found = msgspec.json.decode(base64.urlsafe_b64decode(text))
        return str(found["start"]), int(found["v"])
    except (ValueError, KeyError, TypeError) as error:
        raise errors.bad_request("continue key is not valid") from error


def _number(request: web.Request, name: str) -> int | None:
    text = request.query.get(name, "")
    if not text:
        return None
    if not text.isdecimal():
        raise errors.bad_request(f"{name}: Invalid value: {text!r}")
    return int(text)


class Encoded:
    """The bytes of one store's events, made once for all watchers that want the same form."""

    def __init__(self) -> None:
        self._lines: dict[tuple[int, str, str, str], bytes] = {}

    def line(self, kind: str, form: Form, entry: Entry) -> bytes:
        """Give the line of a watch that says ``kind`` of ``entry``."""
        key = (entry.revision, kind, form.kind, form.api_version)
        found = self._lines.get(key)
        if found is None:
            if len(self._lines) > 4096:
                self._lines.clear()
            data = form.encode(entry)
            found = b'{"type":"' + kind.encode() + b'","object":' + data + b"}\n"
            self._lines[key] = found
        return found


class View(msgspec.Struct, frozen=True):
    """What one watcher wants to see, and how."""

    form: Form
    chosen: Test
    bookmarks: bool
    encoded: Encoded

    def start(self, entries: Iterable[Entry]) -> list[bytes]:
        """Give the lines for what is there already."""
        return [
            self.encoded.line("ADDED", self.form, entry)
            for entry in entries
            if self.chosen(entry.value)
        ]

    def lines(self, events: Iterable[Event]) -> Iterable[bytes]:
        """Give the lines for changes; what moves into the selection is added, out of it deleted."""
        for event in events:
            before = event.before is not None and self.chosen(event.before.value)
            now = event.now is not None and self.chosen(event.now.value)
            if now and event.now is not None:
                yield self.encoded.line("MODIFIED" if before else "ADDED", self.form, event.now)
            elif before and event.before is not None:
                yield self.encoded.line("DELETED", self.form, _last(event, event.before))


async def watch_objects(
    request: web.Request, store: Store, target: Target, encoded: Encoded, stop: asyncio.Event
) -> web.StreamResponse:
    """Stream changes until the client leaves, the time is up, or ``stop``."""
    bookmarks = flag(request, "allowWatchBookmarks")
    view = View(form_of(request, target), selection(request), bookmarks, encoded)
    wanted = _number(request, "resourceVersion")
    initial = flag(request, "sendInitialEvents")
    seconds = _number(request, "timeoutSeconds") or random.randint(*LONGEST_WATCH)  # noqa: S311
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    response.enable_chunked_encoding()
    from_now = initial or not wanted
    prefix = prefix_of(target)
    try:
        watch = store.watch(prefix, store.revision if from_now else wanted or 0)
    except CompactedError:
        await response.prepare(request)
        gone = errors.expired(f"too old resource version: {wanted} ({store.horizon})").status()
        await response.write(_error_line(gone))
        return response
    try:
        # Nothing is awaited between the watch and the list, so that nothing falls between them.
        lines = view.start([entry for _, entry in store.list(prefix)]) if from_now else []
        if initial and bookmarks:
            lines.append(_bookmark(view.form, store.revision, {INITIAL_END: "true"}))
        await response.prepare(request)
        if lines:
            await response.write(b"".join(lines))
        async for chunk in _changes(watch, view, store, seconds, stop):
            await response.write(chunk)
    except (ConnectionResetError, asyncio.CancelledError):
        pass
    finally:
        watch.close()
    return response


async def _changes(
    watch: Watch, view: View, store: Store, seconds: int, stop: asyncio.Event
) -> AsyncIterator[bytes]:
    """Give what to write next: changes, or a bookmark when nothing happened for a while."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    stopping = asyncio.ensure_future(stop.wait())
    try:
        while not watch.cut and not stop.is_set() and loop.time() < deadline:
            coming = asyncio.ensure_future(watch.next())
            patience = min(deadline - loop.time(), BOOKMARK_SECONDS)
            await asyncio.wait(
                {coming, stopping}, timeout=patience, return_when=asyncio.FIRST_COMPLETED
            )
            if coming.done():
                chunk = b"".join(view.lines(coming.result()))
                if chunk:
                    yield chunk
                continue
            coming.cancel()
            # A bookmark must not overtake an event: whoever resumes from it would miss that.
            if view.bookmarks and not watch.waiting and not stop.is_set():
                yield _bookmark(view.form, store.revision, {})
    finally:
        stopping.cancel()


def _last(event: Event, before: Entry) -> Entry:
    """Give the last state, with the revision of its removal, so that resuming passes over it."""
    metadata = {**before.value["metadata"], "resourceVersion": str(event.revision)}
    value = {**before.value, "metadata": metadata}
    return Entry(event.revision, value, msgspec.json.encode(value))


def _bookmark(form: Form, version: int, annotations: dict[str, str]) -> bytes:
    metadata: Object = {"resourceVersion": str(version)}
    if annotations:
        metadata["annotations"] = annotations
    obj = {
        "kind": form.served.resource.kind,
        "apiVersion": form.api_version,
        "metadata": metadata,
    }
    return b'{"type":"BOOKMARK","object":' + msgspec.json.encode(obj) + b"}\n"


def _error_line(status: Object) -> bytes:
    return b'{"type":"ERROR","object":' + msgspec.json.encode(status) + b"}\n"
