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

from kube_api_server.storage.address import is_etcd
from kube_api_server.storage.factory import directory_lock
from kube_api_server.storage.names import DEFAULT_NAMES, Storage, StorageNames
from kube_api_server.storage.sqlite.log import Log, Row
from kube_base.runtime import private_files

REVISION_GAP = 1_000_000
"""Increase of revisions at a restore: more than the number of writes since the backup."""

MAX_CONCURRENT_WRITES = 64
"""Maximum number of concurrent writes to etcd."""


class TransferError(Exception):
    """An unreadable backup, or a target that is not empty."""


class BackupRecord(msgspec.Struct, frozen=True):
    """One object in its stored form."""

    key: str
    revision: int
    value: bytes


async def read_backup(
    address: str, names: StorageNames = DEFAULT_NAMES
) -> tuple[int, list[BackupRecord]]:
    """Return the revision and all objects of a storage.

    Raises StorageAddressError, UnavailableError, TransferError.
    """
    storage = Storage(address, names)
    if is_etcd(address):
        from kube_api_server.storage.etcd import backup

        revision, items = await backup.read_etcd(storage)
        return revision, [BackupRecord(*item) for item in items]
    if not storage.database.exists():
        raise TransferError(f"{storage.database}: database not found")
    return await asyncio.to_thread(_read_sqlite, storage)


def _read_sqlite(storage: Storage) -> tuple[int, list[BackupRecord]]:
    log = Log(storage.database, storage.names.restore_command)
    try:
        rows = log.newest()
        revision = max([log.facts()[0], *(row.revision for row in rows)])
    finally:
        log.close()
    return revision, [BackupRecord(row.key, row.revision, row.value) for row in rows if row.value]


async def restore_objects(
    address: str,
    revision: int,
    records: Iterable[BackupRecord],
    names: StorageNames = DEFAULT_NAMES,
) -> int:
    """Write objects into an empty storage. Return their number. Raises TransferError."""
    storage = Storage(address, names)
    if is_etcd(address):
        from kube_api_server.storage.etcd import backup

        entries = [(record.key, record.value) for record in records]
        if not await backup.restore_etcd(
            storage, revision + REVISION_GAP, entries, MAX_CONCURRENT_WRITES
        ):
            raise TransferError(f"{address} is not empty")
        return len(entries)
    return await asyncio.to_thread(_write_sqlite, storage, revision, list(records))


def _write_sqlite(storage: Storage, revision: int, records: list[BackupRecord]) -> int:
    with directory_lock(storage):
        log = Log(storage.database, storage.names.restore_command)
        try:
            if log.newest():
                raise TransferError(f"{storage.address} is not empty")
            failures: list[Exception] = []
            log.on_commit = lambda _, error: failures.append(error) if error else None
            for record in sorted(records, key=lambda record: record.revision):
                row = Row(record.revision, record.key, record.revision, record.value)
                log.append(row, True)
            log.compact(revision + REVISION_GAP)
        finally:
            log.close()
        if failures:
            raise TransferError(f"{storage.address}: {failures[0]}")
    return len(records)


def dump_backup(
    path: Path,
    revision: int,
    records: Iterable[BackupRecord],
    names: StorageNames = DEFAULT_NAMES,
) -> None:
    """Write a backup, readable only by its owner, or replace it. Raises OSError."""
    lines = [msgspec.json.encode({"format": names.backup_format, "revision": revision})]
    for record in records:
        line: dict[str, Any] = {"key": record.key, "revision": record.revision}
        if record.value[:1] == b"{":
            line["value"] = msgspec.Raw(record.value)
        else:
            line["sealed"] = base64.b64encode(record.value).decode()
        lines.append(msgspec.json.encode(line))
    private_files.replace_private_file(path, b"\n".join(lines) + b"\n", durable=True)


def load_backup(
    path: Path, names: StorageNames = DEFAULT_NAMES
) -> tuple[int, Iterator[BackupRecord]]:
    """Load a backup. Raises TransferError."""
    try:
        lines = path.read_bytes().splitlines()
        head = msgspec.json.decode(lines[0])
        if head["format"] != names.backup_format:
            raise TransferError(f"{path}: backup format not supported: {head['format']}")
        return int(head["revision"]), iter([_record(line) for line in lines[1:]])
    except (OSError, IndexError, KeyError, TypeError, msgspec.DecodeError) as error:
        raise TransferError(f"{path}: not a backup: {error}") from error


class _Line(msgspec.Struct):
    key: str
    revision: int
    value: msgspec.Raw = msgspec.Raw(b"")
    sealed: str = ""


def _record(line: bytes) -> BackupRecord:
    fields = msgspec.json.decode(line, type=_Line)
    value = base64.b64decode(fields.sealed) if fields.sealed else bytes(fields.value)
    return BackupRecord(fields.key, fields.revision, value)
