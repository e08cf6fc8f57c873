"""Resources that Envoy accepted last, in a SQLite file, so a write costs only what changed.

The file also has what the last update replaced, for people who look for the cause of a change.
"""

from __future__ import annotations

import math
import os
import sqlite3
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import structlog

from gatehouse.agent.envoy.resource_cache import AcceptedChange
from gatehouse.dataplane.xds.resources import ENDPOINTS_TYPE_URL, ResourceSet, XdsResource
from kube_base.runtime import private_files

log = structlog.get_logger("gatehouse.agent")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS resources (
    type_url TEXT NOT NULL, name TEXT NOT NULL, version TEXT NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (type_url, name)
);
CREATE TABLE IF NOT EXISTS replaced (
    type_url TEXT NOT NULL, name TEXT NOT NULL, version TEXT, body BLOB,
    PRIMARY KEY (type_url, name)
);
"""
"""``replaced`` has the resources of the last update as they were before it, with NULL for new ones.
"""

UPDATE_SECONDS = 2.0
"""Duration of an update: Envoy accepts the resources of different types one after the other."""


class ResourceStore:
    """The file at `path`, for one process and one thread at a time. Readable by its owner only."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Open or create the file. An unreadable one is replaced. Raises OSError."""
        self._path, self._clock = path, clock
        self._update_end = -math.inf
        self._replaces = False
        """There was a configuration before the last update."""
        private_files.make_private_dir(path.parent)
        try:
            self._connection, self._loaded = self._open()
        except sqlite3.DatabaseError as error:
            log.warning("stored resources lost", path=str(path), error=str(error))
            for suffix in ("", "-wal", "-shm"):
                Path(f"{path}{suffix}").unlink(missing_ok=True)
            self._connection, self._loaded = self._open()

    def _open(self) -> tuple[sqlite3.Connection, ResourceSet]:
        # SQLite's other files get the mode of this one, which may contain private keys.
        private_files.restrict_file(self._path)
        os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))
        for suffix in ("-wal", "-shm"):
            private_files.restrict_file(Path(f"{self._path}{suffix}"))
        try:
            connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        except sqlite3.OperationalError as error:
            raise OSError(f"{self._path}: {error}") from error
        # A power failure may lose the last writes, but never the file.
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.executescript(_SCHEMA)
        rows = connection.execute("SELECT type_url, name, body, version FROM resources")
        return connection, ResourceSet(XdsResource(*row) for row in rows)

    def load(self) -> ResourceSet:
        """Return the content at opening. Only the first call does, to free the memory."""
        loaded, self._loaded = self._loaded, ResourceSet()
        return loaded

    def write(self, changes: Iterable[AcceptedChange]) -> None:
        """Write changes in one transaction. Raises OSError."""
        delete = "DELETE FROM resources WHERE type_url = ? AND name = ?"
        insert = "INSERT OR REPLACE INTO resources VALUES (?, ?, ?, ?)"
        try:
            self._connection.execute("BEGIN")
            for change in changes:
                self._keep_replaced(change)
                self._connection.executemany(delete, change.gone)
                rows = (
                    (resource.type_url, resource.name, resource.version, resource.body)
                    for resource in change.new
                )
                self._connection.executemany(insert, rows)
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise OSError(f"{self._path}: {error}") from error

    def _keep_replaced(self, change: AcceptedChange) -> None:
        """Keep what a change replaces, until the next update.

        Endpoints are left out: they change more often than anything that a person configures.
        """
        keys = [
            key
            for key in (*change.gone, *(resource.key for resource in change.new))
            if key[0] != ENDPOINTS_TYPE_URL
        ]
        if not keys:
            return
        if (now := self._clock()) >= self._update_end:
            self._update_end = now + UPDATE_SECONDS
            self._connection.execute("DELETE FROM replaced")
            (self._replaces,) = self._connection.execute(
                "SELECT EXISTS (SELECT 1 FROM resources)"
            ).fetchone()
        if self._replaces:
            self._connection.executemany(
                "INSERT OR IGNORE INTO replaced SELECT type_url, name, version, body "
                "FROM (SELECT ? AS type_url, ? AS name) LEFT JOIN resources USING (type_url, name)",
                keys,
            )

    def close(self) -> None:
        """Close the file."""
        self._connection.close()
