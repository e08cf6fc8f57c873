"""Audit log: user, request, time and result of requests, as JSON lines.

Records have the form of `audit.k8s.io/v1` events at level Metadata.
"""

from __future__ import annotations

import threading
from collections import deque
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import structlog
from aiohttp import web

from gatehouse.apiserver.http.requests import Target
from gatehouse.apiserver.identity.users import User
from gatehouse.apiserver.objects import uids

log = structlog.get_logger("gatehouse.apiserver")

MAX_FILE_BYTES, MAX_FILES = 100 * 1024 * 1024, 10
"""Size in bytes at which a file is rotated, and number of files, the current one included."""

WRITE_SECONDS = 0.2
"""Interval in seconds between writes. Records are collected in between."""

READS = ("get", "list", "watch")


class Audit:
    """Writes records in a separate thread, so that no request waits for the disk."""

    def __init__(self, path: Path, *, reads: bool = False) -> None:
        self._path, self._reads = path, reads
        path.parent.mkdir(parents=True, exist_ok=True)
        self._queue: deque[bytes] = deque()
        self._closing = threading.Event()
        self._file = self._open_file()
        self._thread = threading.Thread(target=self._work, name="audit", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Write the queued records and close the file."""
        self._closing.set()
        self._thread.join()
        self._file.close()

    def _open_file(self) -> BinaryIO:
        file = self._path.open("ab")
        self._path.chmod(0o600)
        return file

    def _work(self) -> None:
        while not self._closing.wait(WRITE_SECONDS):
            self._write()
        self._write()

    def _write(self) -> None:
        lines = []
        while self._queue:
            lines.append(self._queue.popleft())
        if not lines:
            return
        try:
            self._file.write(b"".join(lines))
            self._file.flush()
            if self._file.tell() > MAX_FILE_BYTES:
                self._rotate()
        except OSError as error:
            log.critical("audit log not written", records=len(lines), error=str(error))

    def _rotate(self) -> None:
        self._file.close()
        for number in range(MAX_FILES - 1, 0, -1):
            older = self._path.with_name(f"{self._path.name}.{number}")
            newer = self._path.with_name(f"{self._path.name}.{number - 1}")
            source = newer if number > 1 else self._path
            if source.exists():
                source.replace(older)
        self._file = self._open_file()

    def record(
        self,
        request: web.BaseRequest,
        verb: str,
        user: User | None,
        acting: User | None,
        target: Target | None,
        code: int,
        reason: str,
        received: datetime,
    ) -> None:
        """Queue the record of a completed request. Successful reads are skipped unless enabled."""
        if verb in READS and not self._reads and code < 400:
            return
        event: dict[str, Any] = {
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "level": "Metadata",
            "auditID": uids.new(),
            "stage": "ResponseComplete",
            "requestURI": request.path_qs,
            "verb": verb,
            "user": user.user_info() if user else {},
            "sourceIPs": [request.remote or ""],
            "userAgent": request.headers.get("User-Agent", ""),
            "responseStatus": {"metadata": {}, "code": code},
            "requestReceivedTimestamp": _time(received),
            "stageTimestamp": _time(datetime.now(UTC)),
        }
        if acting is not None and acting is not user:
            event["impersonatedUser"] = acting.user_info()
        if target is not None:
            event["objectRef"] = _reference(target)
        if reason:
            decision = "forbid" if code == 403 else "allow"
            event["annotations"] = {
                "authorization.k8s.io/decision": decision,
                "authorization.k8s.io/reason": reason,
            }
        self._queue.append(msgspec.json.encode(event) + b"\n")


def _reference(target: Target) -> dict[str, str]:
    resource = target.served.resource
    fields = {
        "resource": resource.plural,
        "namespace": target.namespace,
        "name": target.name,
        "apiGroup": resource.group,
        "apiVersion": resource.version,
        "subresource": target.subresource,
    }
    return {key: value for key, value in fields.items() if value}


def _time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
