"""Audit log: user, request, time and result of requests, as JSON lines.

Records have the form of `audit.k8s.io/v1` events at level Metadata.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from typing import Any

import msgspec
import structlog
from aiohttp import web
from prometheus_client import Counter

from kube_api_server.http.requests import RequestTarget
from kube_api_server.identity.users import User
from kube_api_server.objects import uids
from kube_base.runtime import private_files

log = structlog.get_logger("apiserver")

MAX_FILE_BYTES, MAX_FILES = 100 * 1024 * 1024, 10
"""Size in bytes at which a file is rotated, and number of files, the current one included."""

MAX_PENDING_BYTES = 16 * 1024 * 1024
"""Maximum size in bytes of the records that wait for the disk."""

WRITE_SECONDS = 0.2
"""Interval in seconds between writes. Records are collected in between."""

READS = ("get", "list", "watch")


class Audit:
    """Writes records in a separate thread, so that no request waits for the disk.

    Requests are served while the log cannot be written, for example on a full disk. Records of up
    to `MAX_PENDING_BYTES` wait for the disk. `dropped` counts the others.
    """

    def __init__(self, path: Path, dropped: Counter, *, reads: bool = False) -> None:
        """Open the file. Raises OSError."""
        self._path, self._reads, self._dropped = path, reads, dropped
        if not path.parent.is_dir():
            private_files.make_private_dir(path.parent)
        for number in range(1, MAX_FILES):
            private_files.restrict_file(self._rotated(number))
        self._queue: deque[bytes] = deque()
        self._pending = b""
        """Records, or the rest of one, that are not on disk yet."""
        self._error = ""
        self._closing = threading.Event()
        self._file: FileIO | None = self._open_file()
        self._thread = threading.Thread(target=self._work, name="audit", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Write the queued records and close the file."""
        self._closing.set()
        self._thread.join()
        if self._file is not None:
            self._file.close()

    def _open_file(self) -> FileIO:
        private_files.restrict_file(self._path)
        file = FileIO(os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600), "a+")
        if file.seekable() and (size := file.seek(0, os.SEEK_END)):
            file.seek(size - 1)
            if file.read(1) != b"\n" and not self._pending:
                # The end of a process that had no space for the rest of a record.
                self._pending = b"\n"
        return file

    def _work(self) -> None:
        while not self._closing.wait(WRITE_SECONDS):
            self._write()
        self._write()

    def _write(self) -> None:
        lines, size = [self._pending], len(self._pending)
        while self._queue:
            line = self._queue.popleft()
            if size + len(line) > MAX_PENDING_BYTES:
                self._dropped.inc()
                continue
            lines.append(line)
            size += len(line)
        self._pending = b"".join(lines)
        try:
            self._write_pending()
        except OSError as error:
            if not self._error:
                log.critical("audit log not written", path=str(self._path), error=str(error))
            self._error = str(error)
        else:
            if self._error:
                log.warning("audit log written again", path=str(self._path))
            self._error = ""

    def _write_pending(self) -> None:
        if self._file is None:
            self._file = self._open_file()
        while self._pending:
            self._pending = self._pending[self._file.write(self._pending) :]
        if self._file.seekable() and self._file.tell() > MAX_FILE_BYTES:
            self._file.close()
            self._file = None
            self._rotate()
            self._file = self._open_file()

    def _rotate(self) -> None:
        for number in range(MAX_FILES - 1, 0, -1):
            source = self._rotated(number - 1) if number > 1 else self._path
            if source.exists():
                source.replace(self._rotated(number))

    def _rotated(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

    def record(
        self,
        request: web.BaseRequest,
        verb: str,
        user: User | None,
        acting: User | None,
        target: RequestTarget | None,
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


def _reference(target: RequestTarget) -> dict[str, str]:
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
