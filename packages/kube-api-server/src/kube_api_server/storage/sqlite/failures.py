"""Errors of SQLite, by what follows from them.

After a lack of space nothing of a transaction is on disk, so the process continues and later writes
may succeed. After any other I/O error the content of the file is unknown: the kernel may drop data
whose write failed, and report success of a later fsync. The process must then exit and read the
file again. Databases like PostgreSQL do the same.
"""

from __future__ import annotations

import contextlib
import errno
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

from kube_api_server.storage.entries import (
    DamagedStorageError,
    StorageFullError,
    UnavailableError,
)

PROBE_BYTES = 64 * 1024
"""Size of a file that is written to find out whether space is left: two regions of a -shm file."""

_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_FAILED_WRITES = frozenset(
    {
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_IOERR_SHMOPEN,
        sqlite3.SQLITE_IOERR_SHMSIZE,
        sqlite3.SQLITE_IOERR_WRITE,
    }
)
"""Errors that SQLite also reports for an exceeded quota, and for a -shm file without space."""


class DatabaseFailures:
    """Errors of one database. `restore_command` is that of :class:`StorageNames`."""

    def __init__(self, path: Path, restore_command: str) -> None:
        self._path, self._restore_command = path, restore_command

    def translated(self, error: sqlite3.Error) -> UnavailableError:
        """Return the error of a storage for an error of SQLite."""
        code, directory = getattr(error, "sqlite_errorcode", 0), self._path.parent
        if code & 0xFF in _DAMAGE:
            return self.damaged(str(error))
        if code & 0xFF == sqlite3.SQLITE_FULL or (code in _FAILED_WRITES and _is_full(directory)):
            return StorageFullError(f"no space left in {directory}")
        return UnavailableError(f"{self._path}: {error}")

    def damaged(self, problem: str) -> DamagedStorageError:
        """Return the error of a database that cannot be read."""
        path, command = self._path, self._restore_command
        remedy = f"{command} --storage {path.parent} --from BACKUP" if command else ""
        return DamagedStorageError(
            f"{path}: {problem}. Move {path.name}* to another directory, then restore a backup"
            + (f": {remedy}" if remedy else "")
        )

    @contextlib.contextmanager
    def translation(self) -> Iterator[None]:
        """Raise errors of SQLite as UnavailableError, StorageFullError or DamagedStorageError."""
        try:
            yield
        except sqlite3.Error as error:
            raise self.translated(error) from error


def _is_full(directory: Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
            written = file.write(bytes(PROBE_BYTES))
    except OSError as error:
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return written < PROBE_BYTES
