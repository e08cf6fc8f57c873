"""The audit log: who asked for what, when, and what came of it, as lines of JSON.

Records have the form of ``audit.k8s.io/v1`` events at level Metadata.
"""

from __future__ import annotations

import logging
import logging.handlers
import queue
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from gatehouse.apiserver.http.requests import Target
from gatehouse.apiserver.identity.users import User

MOST_BYTES, FILES = 100 * 1024 * 1024, 10
"""A file is put aside when it is full; this many are kept."""

READS = ("get", "list", "watch")


class Audit:
    """Writes records in a thread of its own, so that no request waits for the disk."""

    def __init__(self, path: Path, *, reads: bool = False) -> None:
        self._reads = reads
        path.parent.mkdir(parents=True, exist_ok=True)
        handler = logging.handlers.RotatingFileHandler(
            path, maxBytes=MOST_BYTES, backupCount=FILES, encoding="utf-8"
        )
        handler.setFormatter(logging.Formatter("%(message)s"))
        path.chmod(0o600)
        waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._front = logging.handlers.QueueHandler(waiting)  # type: ignore[arg-type]
        self._listener = logging.handlers.QueueListener(waiting, handler)  # type: ignore[arg-type]
        self._listener.start()
        self._handler = handler

    def close(self) -> None:
        """Write what is waiting, and end."""
        self._listener.stop()
        self._handler.close()

    def record(
        self,
        request: web.Request,
        verb: str,
        user: User | None,
        acting: User | None,
        target: Target | None,
        code: int,
        reason: str,
        received: datetime,
    ) -> None:
        """Write what came of a request."""
        if verb in READS and not self._reads and code < 400:
            return
        event: dict[str, Any] = {
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "level": "Metadata",
            "auditID": str(uuid.uuid4()),
            "stage": "ResponseComplete",
            "requestURI": request.path_qs,
            "verb": verb,
            "user": user.shown() if user else {},
            "sourceIPs": [request.remote or ""],
            "userAgent": request.headers.get("User-Agent", ""),
            "responseStatus": {"metadata": {}, "code": code},
            "requestReceivedTimestamp": _time(received),
            "stageTimestamp": _time(datetime.now(UTC)),
        }
        if acting is not None and acting is not user:
            event["impersonatedUser"] = acting.shown()
        if target is not None:
            event["objectRef"] = _reference(target)
        if reason:
            decision = "forbid" if code == 403 else "allow"
            event["annotations"] = {
                "authorization.k8s.io/decision": decision,
                "authorization.k8s.io/reason": reason,
            }
        line = msgspec.json.encode(event).decode()
        self._front.emit(logging.LogRecord("audit", logging.INFO, "", 0, line, None, None))


def _reference(target: Target) -> dict[str, str]:
    resource = target.served.resource
    found = {
        "resource": resource.plural,
        "namespace": target.namespace,
        "name": target.name,
        "apiGroup": resource.group,
        "apiVersion": resource.version,
        "subresource": target.subresource,
    }
    return {key: value for key, value in found.items() if value}


def _time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
