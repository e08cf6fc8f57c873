"""Requests in the audit log of the cluster's API server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from cluster import layout


def requests(account: str = "", *, begun: bool = False) -> Iterator[dict[str, Any]]:
    """Yield completed requests of everyone.

    ``account``: only those of a ServiceAccount, ``namespace:name``, or of all of a namespace.
    ``begun``: those whose response has begun instead, such as watches that still run.
    """
    stage = "ResponseStarted" if begun else "ResponseComplete"
    for event in _events():
        prefix, _, user = event["user"]["username"].partition("system:serviceaccount:")
        names = (user, user.partition(":")[0])
        if event["stage"] == stage and (not account or (not prefix and account in names)):
            yield event


def _events() -> Iterator[dict[str, Any]]:
    """Yield the events of all files of the log, the oldest first."""
    path = layout.AUDIT_LOG
    # Rotated files have the time in their names.
    for file in (*sorted(path.parent.glob(f"{path.stem}-*{path.suffix}")), path):
        with file.open() as log:
            yield from map(json.loads, log)


def resource(event: dict[str, Any]) -> str:
    """Return the plural name of an event's kind, with its subresource."""
    reference = event.get("objectRef", {})
    names = (reference.get("resource", ""), reference.get("subresource", ""))
    return "/".join(filter(None, names))
