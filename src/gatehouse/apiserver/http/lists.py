"""LIST: pages of one snapshot.

https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from aiohttp import web

from gatehouse.apiserver import errors
from gatehouse.apiserver.http import selectors
from gatehouse.apiserver.http.negotiation import form_of
from gatehouse.apiserver.http.requests import Target, number
from gatehouse.apiserver.storage.entries import CompactedError, Entry
from gatehouse.apiserver.storage.store import Store

Object = dict[str, Any]
Test = Callable[[Object], bool]

_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You must "
    "start a new list without the continue parameter, or use the token in this error to go on "
    "with the newest state."
)


def selection(request: web.BaseRequest, target: Target) -> Test:
    """Return the predicate of the request's label and field selectors. Raises ApiError 400."""
    tests = [
        test
        for test in (
            selectors.labels(request.query.get("labelSelector", "")),
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


async def list_objects(request: web.BaseRequest, store: Store, target: Target) -> bytes:
    """Return an encoded list, or one page of it. Raises ApiError."""
    selects, form = selection(request, target), form_of(request, target.requested)
    limit, token = number(request, "limit") or 0, request.query.get("continue", "")
    requested, match = number(request, "resourceVersion"), request.query.get("resourceVersionMatch")
    _check_version(match, request.query.get("resourceVersion", ""), token)
    if requested != 0 or token:
        await store.read_fresh()
    start, revision = "", store.revision
    if token:
        start, token_revision = _continuation(token)
        revision = token_revision or revision
    elif requested is not None:
        if requested > store.revision:
            await store.read_fresh()
            if requested > store.revision:
                raise errors.too_large_version(requested, store.revision)
        revision = requested if match == "Exact" else store.revision
    try:
        entries = store.at(target.prefix, revision)
        selected, more, last = _page(entries, selects, start, limit)
    except CompactedError as error:
        raise _expired(start, token, revision, store) from error
    metadata: Object = {"resourceVersion": str(revision)}
    if more:
        metadata["continue"] = _token(revision, last)
        if not request.query.get("labelSelector") and not request.query.get("fieldSelector"):
            metadata["remainingItemCount"] = more
    return form.encode_list(selected, metadata)


def _page(entries: Any, selects: Test, start: str, limit: int) -> tuple[list[Entry], int, str]:
    selected: list[Entry] = []
    more, last = 0, ""
    for key, entry in entries:
        if key <= start or not selects(entry.value):
            continue
        if limit and len(selected) == limit:
            more += 1
            continue
        selected.append(entry)
        last = key
    return selected, more, last


def _check_version(match: str | None, version: str, token: str) -> None:
    if match is None:
        return
    forbidden = ""
    if match not in ("Exact", "NotOlderThan"):
        message = f'Unsupported value: "{match}": supported values: "Exact", "NotOlderThan", ""'
        raise _invalid("FieldValueNotSupported", message)
    if token:
        forbidden = "resourceVersionMatch is forbidden when continue is provided"
    elif not version:
        forbidden = "resourceVersionMatch is forbidden unless resourceVersion is provided"
    elif match == "Exact" and version == "0":
        forbidden = 'resourceVersionMatch "Exact" is forbidden for resourceVersion "0"'
    if forbidden:
        raise _invalid("FieldValueForbidden", f"Forbidden: {forbidden}")


def _invalid(reason: str, message: str) -> errors.ApiError:
    cause = errors.Cause(reason, message, "resourceVersionMatch")
    return errors.invalid("ListOptions", "meta.k8s.io", "", [cause])


def _expired(start: str, token: str, revision: int, store: Store) -> errors.ApiError:
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
    data = msgspec.json.encode({"v": "gatehouse/v1", "rv": revision, "start": last})
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _continuation(text: str) -> tuple[str, int]:
    try:
        padded = text + "=" * (-len(text) % 4)
        selected = msgspec.json.decode(base64.urlsafe_b64decode(padded))
        token = msgspec.convert(selected, _Token)
    except (ValueError, RecursionError) as error:
        raise errors.bad_request("continue key is not valid") from error
    return token.start, token.rv
