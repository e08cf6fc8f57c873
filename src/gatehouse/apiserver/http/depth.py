"""Limit of the nesting of objects in requests.

Code behind the request handlers walks objects recursively. Half of Python's recursion limit is
reached at about 450 levels, so that this limit leaves a margin of two. The deepest definitions in
use (CustomResourceDefinitions with whole Pod templates) have about 50 levels.
"""

from __future__ import annotations

from typing import Any

from gatehouse.apiserver.errors import ApiError, bad_request

MAX_DEPTH = 200
"""Levels of mappings and lists in one document."""


def too_deep(what: str) -> ApiError:
    """Build the error for a document that exceeds `MAX_DEPTH`."""
    return bad_request(f"{what}: nested more than {MAX_DEPTH} levels deep")


def exceeds_limit(value: Any) -> bool:
    """Return whether a decoded document has more than `MAX_DEPTH` levels. Does not recurse."""
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return False
    return True
