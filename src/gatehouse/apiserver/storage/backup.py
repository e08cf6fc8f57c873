"""Backup and restore, and migration between engines.

A backup is a text file with a header line and one line per object. Encrypted values stay encrypted;
a restore needs the same keys. Restored objects continue at revisions far above those of the backup.
Clients that have seen later revisions therefore list again instead of missing changes.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from gatehouse.apiserver.storage.factory import FILE, directory_lock
from gatehouse.apiserver.storage.sqlite.log import Log, Row

REVISION_GAP = 1_000_000
"""Increase of revisions at a restore: more than the number of writes since the backup."""

FORMAT = "gatehouse-backup/v1"
MAX_CONCURRENT_WRITES = 64
"""Maximum number of concurrent writes to etcd."""


class TransferError(Exception):
    """An unreadable backup, or a target that is not empty."""


class Record(msgspec.Struct, frozen=True):
    """One object in its stored form."""

    key: str
    revision: int
    value: bytes


async def read(address: str) -> tuple[int, list[Record]]:
    """Return the revision and all objects of a storage. Raises UnavailableError, TransferError."""
    if address.startswith("etcd://"):
        from gatehouse.apiserver.storage.etcd import backup

        revision, items = await backup.read(address)
        return revision, [Record(*item) for item in items]
    path = Path(address) / FILE
    if not path.exists():
        raise TransferError(f"{path}: database not found")
    return await asyncio.to_thread(_read_sqlite, path)


def _read_sqlite(path: Path) -> tuple[int, list[Record]]:
    log = Log(path)
    try:
        rows = log.newest()
        revision = max([log.facts()[0], *(row.revision for row in rows)])
    finally:
        log.close()
    return revision, [Record(row.key, row.revision, row.value) for row in rows if row.value]


async def write(address: str, revision: int, records: Iterable[Record]) -> int:
    """Write objects into an empty storage. Return their number. Raises TransferError."""
    if address.startswith("etcd://"):
        from gatehouse.apiserver.storage.etcd import backup

        found = [(record.key, record.value) for record in records]
        if not await backup.write(address, revision + REVISION_GAP, found, MAX_CONCURRENT_WRITES):
            raise TransferError(f"{address} is not empty")
        return len(found)
    return await asyncio.to_thread(_write_sqlite, Path(address), revision, list(records))


def _write_sqlite(directory: Path, revision: int, records: list[Record]) -> int:
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    with directory_lock(directory):
        log = Log(directory / FILE)
        try:
            if log.newest():
                raise TransferError(f"{directory} is not empty")
            failures: list[Exception] = []
            log.on_commit = lambda _, error: failures.append(error) if error else None
            for record in sorted(records, key=lambda record: record.revision):
                row = Row(record.revision, record.key, record.revision, record.value)
                log.append(row, True)
            log.compact(revision + REVISION_GAP)
        finally:
            log.close()
        if failures:
            raise TransferError(f"{directory}: {failures[0]}")
    return len(records)


def dump(path: Path, revision: int, records: Iterable[Record]) -> None:
    """Write a backup, readable only by its owner."""
    path.touch(mode=0o600)
    with path.open("wb") as file:
        file.write(msgspec.json.encode({"format": FORMAT, "revision": revision}) + b"\n")
        for record in records:
            line: dict[str, Any] = {"key": record.key, "revision": record.revision}
            if record.value[:1] == b"{":
                line["value"] = msgspec.Raw(record.value)
            else:
                line["sealed"] = base64.b64encode(record.value).decode()
            file.write(msgspec.json.encode(line) + b"\n")


def load(path: Path) -> tuple[int, Iterator[Record]]:
    """Load a backup. Raises TransferError."""
    try:
        lines = path.read_bytes().splitlines()
        head = msgspec.json.decode(lines[0])
        if head["format"] != FORMAT:
            raise TransferError(f"{path}: backup format not supported: {head['format']}")
        return int(head["revision"]), iter([_record(line) for line in lines[1:]])
    except (OSError, IndexError, KeyError, TypeError, msgspec.DecodeError) as error:
        raise TransferError(f"{path}: not a backup: {error}") from error


class _Line(msgspec.Struct):
    key: str
    revision: int
    value: msgspec.Raw = msgspec.Raw(b"")
    sealed: str = ""


def _record(line: bytes) -> Record:
    found = msgspec.json.decode(line, type=_Line)
    value = base64.b64decode(found.sealed) if found.sealed else bytes(found.value)
    return Record(found.key, found.revision, value)
