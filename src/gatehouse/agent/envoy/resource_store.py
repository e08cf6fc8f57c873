"""What Envoy took last, on disk: one SQLite file, so that a write costs what changed."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable
from pathlib import Path

import structlog

from gatehouse.agent.envoy.resource_cache import AcceptedChange
from gatehouse.dataplane.xds.resources import Resource, ResourceSet

log = structlog.get_logger("gatehouse.agent")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS resources (
    type_url TEXT NOT NULL, name TEXT NOT NULL, version TEXT NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (type_url, name)
)
"""


class ResourceStore:
    """The file at ``path``, of one process and one thread at a time. Readable by its owner only."""

    def __init__(self, path: Path) -> None:
        """Open the file, or make it; one that cannot be read is begun anew. Raises OSError."""
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._connection, self._found = self._open()
        except sqlite3.DatabaseError as error:
            log.warning("kept resources lost", path=str(path), reason=str(error))
            for suffix in ("", "-wal", "-shm"):
                Path(f"{path}{suffix}").unlink(missing_ok=True)
            self._connection, self._found = self._open()

    def _open(self) -> tuple[sqlite3.Connection, ResourceSet]:
        # SQLite gives its other files the mode of this one, which may hold private keys.
        os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))
        self._path.chmod(0o600)
        try:
            connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        except sqlite3.OperationalError as error:
            raise OSError(f"{self._path}: {error}") from error
        # A power cut may cost the last writes, never the file.
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(_SCHEMA)
        rows = connection.execute("SELECT type_url, name, body, version FROM resources")
        return connection, ResourceSet(Resource(*row) for row in rows)

    def load(self) -> ResourceSet:
        """Give what was there when it was opened; once, since it need not stay in memory."""
        found, self._found = self._found, ResourceSet()
        return found

    def write(self, changes: Iterable[AcceptedChange]) -> None:
        """Keep changes, all or none; raises OSError."""
        gone = "DELETE FROM resources WHERE type_url = ? AND name = ?"
        new = "INSERT OR REPLACE INTO resources VALUES (?, ?, ?, ?)"
        try:
            self._connection.execute("BEGIN")
            for change in changes:
                self._connection.executemany(gone, change.gone)
                rows = ((each.type_url, each.name, each.version, each.body) for each in change.new)
                self._connection.executemany(new, rows)
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise OSError(f"{self._path}: {error}") from error

    def close(self) -> None:
        """Close the file."""
        self._connection.close()
