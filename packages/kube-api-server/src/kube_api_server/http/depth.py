"""Limits of the nesting and the number of nodes of objects in requests.

Code behind the request handlers walks objects recursively. Half of Python's recursion limit is
reached at about 450 levels, so that this limit leaves a margin of two. The deepest definitions in
use (CustomResourceDefinitions with whole Pod templates) have about 50 levels.
"""

from __future__ import annotations

from typing import Any

from kube_api_server.errors import StatusError, bad_request

MAX_JSON_DEPTH = 200
"""Levels of mappings and lists in one document."""

MAX_NODES = 100_000
"""Keys and values in one document. The largest objects in use have about 50,000."""


def too_many(what: str) -> StatusError:
    """Build the error for a document that exceeds `MAX_NODES`."""
    return bad_request(f"{what}: more than {MAX_NODES} keys and values")


def too_deep(what: str) -> StatusError:
    """Build the error for a document that exceeds `MAX_JSON_DEPTH`."""
    return bad_request(f"{what}: nested more than {MAX_JSON_DEPTH} levels deep")


def check_depth(value: Any, what: str) -> None:
    """Raise ApiError 400 if a decoded document exceeds a limit. Does not recurse."""
    level, nodes = [value] if isinstance(value, (dict, list)) else [], 0
    for _ in range(MAX_JSON_DEPTH):
        nodes += sum(2 * len(outer) if isinstance(outer, dict) else len(outer) for outer in level)
        if nodes > MAX_NODES:
            raise too_many(what)
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return
    raise too_deep(what)
