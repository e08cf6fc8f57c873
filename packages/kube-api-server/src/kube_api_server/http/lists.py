"""LIST: pages of one snapshot.

https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from typing import Annotated

import msgspec
from aiohttp import web

from kube_api_server import errors
from kube_api_server.causes import forbidden_cause, unsupported_cause
from kube_api_server.http import responses, selectors, slices
from kube_api_server.http.negotiation import form_of
from kube_api_server.http.representations import Representation
from kube_api_server.http.requests import RequestTarget, query_flag, query_number
from kube_api_server.storage.entries import CompactedError, StoredEntry
from kube_api_server.storage.store import ObjectStore
from kube_base.types.objects import Object

Test = Callable[[Object], bool]

REACH_SECONDS, REACH_INTERVAL_SECONDS = 3.0, 0.05
"""Time to wait for a revision of the future, and the interval of looks at the newest one."""

OBJECTS_PER_SEAT, MAX_SEATS = 100, 10

_VERSION_MATCHES = ("Exact", "NotOlderThan")

_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You must "
    "start a new list without the continue parameter, or use the token in this error to go on "
    "with the newest state."
)


def selection(request: web.BaseRequest, target: RequestTarget) -> Test:
    """Return the predicate of the request's label and field selectors. Raises ApiError 400."""
    tests = [
        test
        for test in (
            selectors.parse_label_selector(request.query.get("labelSelector", "")),
            selectors.fields(request.query.get("fieldSelector", ""), target.requested),
        )
        if test is not None
    ]
    if not tests:
        return lambda _: True
    alias = target.requested.alias
    if alias is not None:
        return lambda obj: all(test(alias.from_stored(obj)) for test in tests)
    return tests[0] if len(tests) == 1 else lambda obj: all(test(obj) for test in tests)


def seats(request: web.BaseRequest, store: ObjectStore, target: RequestTarget) -> int:
    """Return the seats of a request that reads a collection: one per 100 objects, at most 10.

    The rule of kube-apiserver. A watch that resumes reads nothing. Raises ApiError 400.
    """
    count, limit = store.count(target.prefix), query_number(request, "limit", -(2**63))
    if "watch" in request.query and query_number(request, "resourceVersion"):
        count = count if query_flag(request, "sendInitialEvents") else 0
    elif (
        limit and not request.query.get("labelSelector") and not request.query.get("fieldSelector")
    ):
        count = min(count, limit)
    return min(max(-(-count // OBJECTS_PER_SEAT), 1), MAX_SEATS)


async def list_objects(
    request: web.BaseRequest, store: ObjectStore, target: RequestTarget
) -> web.Response:
    """Answer with a list, or one page of it. Raises ApiError."""
    selects, form = selection(request, target), form_of(request, target.requested, of_list=True)
    if "sendInitialEvents" in request.query:
        why = "sendInitialEvents is forbidden for list"
        raise _invalid(forbidden_cause("sendInitialEvents", why))
    # A negative limit is none, as in kube-apiserver.
    limit = max(query_number(request, "limit", -(2**63)) or 0, 0)
    token = request.query.get("continue", "")
    requested, match = (
        query_number(request, "resourceVersion"),
        request.query.get("resourceVersionMatch"),
    )
    _check_version(match, request.query.get("resourceVersion", ""), token)
    if requested != 0 or token:
        await store.read_fresh()
    start, revision = "", store.revision
    if token:
        start, token_revision = _continuation(token)
        revision = token_revision or revision
    elif requested is not None:
        await reach(store, requested)
        revision = requested if match == "Exact" else store.revision
    try:
        entries = list(store.at(target.prefix, revision))
    except CompactedError as error:
        raise _expired(start, token, revision, store) from error
    selected, more, last = await _page(entries, selects, start, limit)
    metadata: Object = {"resourceVersion": str(revision)}
    if more:
        metadata["continue"] = _token(revision, last)
        if not request.query.get("labelSelector") and not request.query.get("fieldSelector"):
            metadata["remainingItemCount"] = more
    return await list_response(form, selected, metadata)


async def reach(store: ObjectStore, revision: int) -> None:
    """Wait until readers see a revision. Raises ApiError 504."""
    if revision <= store.revision:
        return
    await store.read_fresh()
    deadline = asyncio.get_running_loop().time() + REACH_SECONDS
    while revision > store.revision:
        if asyncio.get_running_loop().time() >= deadline:
            raise errors.too_large_version(revision, store.revision)
        await asyncio.sleep(REACH_INTERVAL_SECONDS)


async def list_response(
    form: Representation, entries: list[StoredEntry], metadata: Object
) -> web.Response:
    """Build a response with a list. Stored bytes are joined without another encoding."""
    items: list[bytes] = []
    await slices.for_each(entries, lambda entry: items.append(form.encode_item(entry)))
    return responses.encoded(form, form.join(items, metadata))


async def _page(
    entries: list[tuple[str, StoredEntry]], selects: Test, start: str, limit: int
) -> tuple[list[StoredEntry], int, str]:
    selected: list[StoredEntry] = []
    more, last = 0, ""

    def take(item: tuple[str, StoredEntry]) -> None:
        nonlocal more, last
        key, entry = item
        if key <= start or not selects(entry.value):
            return
        if limit and len(selected) == limit:
            more += 1
            return
        selected.append(entry)
        last = key

    await slices.for_each(entries, take)
    return selected, more, last


def _check_version(match: str | None, version: str, token: str) -> None:
    if match is None:
        return
    forbidden = ""
    if match not in _VERSION_MATCHES:
        raise _invalid(unsupported_cause("resourceVersionMatch", match, (*_VERSION_MATCHES, "")))
    if token:
        forbidden = "resourceVersionMatch is forbidden when continue is provided"
    elif not version:
        forbidden = "resourceVersionMatch is forbidden unless resourceVersion is provided"
    elif match == "Exact" and version == "0":
        forbidden = 'resourceVersionMatch "Exact" is forbidden for resourceVersion "0"'
    if forbidden:
        raise _invalid(forbidden_cause("resourceVersionMatch", forbidden))


def _invalid(cause: errors.Cause) -> errors.StatusError:
    return errors.invalid_error("ListOptions", "meta.k8s.io", "", [cause])


def _expired(start: str, token: str, revision: int, store: ObjectStore) -> errors.StatusError:
    if not token:
        message = f"too old resource version: {revision} ({store.compacted_revision})"
        return errors.expired(message)
    error = errors.expired(_TOO_OLD)
    error.metadata = {"continue": _token(0, start)}
    return error


class _Token(msgspec.Struct):
    """A decoded continue token."""

    start: str
    """Key of the last object of the previous page."""
    rv: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    """Revision of the list; 0 for the newest."""


def _token(revision: int, last: str) -> str:
    data = msgspec.json.encode({"v": "meta.k8s.io/v1", "rv": revision, "start": last})
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _continuation(text: str) -> tuple[str, int]:
    try:
        padded = text + "=" * (-len(text) % 4)
        selected = msgspec.json.decode(base64.urlsafe_b64decode(padded))
        token = msgspec.convert(selected, _Token)
    except (ValueError, RecursionError) as error:
        raise errors.bad_request("continue key is not valid") from error
    return token.start, token.rv
