"""Errors of documents in requests beyond the limits of nesting and number of nodes."""

from __future__ import annotations

from typing import Any

from kube_api_server.errors import StatusError, bad_request
from kube_base.types.document_limits import MAX_JSON_DEPTH, MAX_NODES


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
