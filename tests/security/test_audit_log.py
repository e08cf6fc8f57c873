"""Audit log: a client that fills its disk hides later requests, or stops the server.

Requests are served, records wait for space up to a limit, and no record is torn.
"""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest
from prometheus_client import Counter

from kube_api_server.http import audit as audit_log


class File:
    """Audit log that accepts `space` more bytes."""

    space = 0

    def __init__(self, path: Path) -> None:
        self.file = path.open("ab", buffering=0)

    def write(self, data: bytes) -> int:
        if not File.space:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = self.file.write(data[: File.space]) or 0
        File.space -= written
        return written

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        self.file.close()


def test_audit_records_wait_for_space_and_stay_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "audit.log"
    monkeypatch.setattr(audit_log.Audit, "_open_file", lambda self: File(self._path))
    monkeypatch.setattr(audit_log, "MAX_PENDING_BYTES", 1000)
    monkeypatch.setattr(audit_log, "WRITE_SECONDS", 3600)
    dropped = Counter("dropped", "Dropped records.", registry=None)
    audit = audit_log.Audit(path, dropped)
    records = [json.dumps({"number": number}).encode() + b"\n" for number in range(200)]
    File.space = 30
    audit._queue.extend(records)
    audit._write()
    audit._write()
    content = path.read_bytes()
    assert content == b"".join(records)[:30]
    File.space = 100_000
    audit.close()
    lines = path.read_bytes().splitlines(keepends=True)
    assert lines == records[: len(lines)]
    assert len(lines) + dropped._value.get() == len(records)
    assert 0 < len(lines) < len(records)


def test_audit_log_continues_after_a_torn_record(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_bytes(b'{"number": 0}\n{"num')
    audit = audit_log.Audit(path, Counter("dropped", "Dropped records.", registry=None))
    audit._queue.append(b'{"number": 1}\n')
    audit.close()
    assert path.read_bytes().splitlines()[-1] == b'{"number": 1}'
