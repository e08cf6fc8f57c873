"""Log on disk: SQLite in WAL mode, one writer thread, batched commits."""

from __future__ import annotations

import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

BATCH = 256
"""Maximum writes per transaction. With synchronous=FULL a commit costs as much as one write."""


class Row(msgspec.Struct, frozen=True):
    """One revision of one key."""

    revision: int
    key: str
    created: int
    """Revision at which the key was last created."""
    value: bytes | None
    """None for a deletion."""


_SCHEMA = """
CREATE TABLE IF NOT EXISTS log (
    revision INTEGER PRIMARY KEY, key TEXT NOT NULL, created INTEGER NOT NULL, value BLOB
) STRICT;
CREATE INDEX IF NOT EXISTS log_key ON log (key, revision);
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT;
"""

_NEWEST = """
SELECT log.revision, log.key, log.created, log.value
FROM log JOIN (SELECT key, max(revision) AS newest FROM log GROUP BY key) AS last
ON log.key = last.key AND log.revision = last.newest
"""

_OBSOLETE = """
DELETE FROM log WHERE revision <= :target AND (
    value IS NULL
    OR revision < (SELECT max(revision) FROM log AS later
                   WHERE later.key = log.key AND later.revision <= :target)
)
"""

OnCommit = Callable[[list[Any], Exception | None], None]


class Log:
    """Append-only log. `append` must be called from one thread only.

    `on_commit` is called in the writer thread with the tokens of all writes of a transaction, in
    order, and the error if it failed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.on_commit: OnCommit = lambda _, __: None
        self._queue: queue.SimpleQueue[tuple[Row | int, Any] | None] = queue.SimpleQueue()
        connection = self._connect()
        connection.executescript(_SCHEMA)
        connection.close()
        self._thread = threading.Thread(target=self._work, name="store-writer", daemon=True)
        self._thread.start()

    def newest(self) -> list[Row]:
        """Return the newest revision of every key, tombstones included."""
        return list(self._rows(_NEWEST, ()))

    def since(self, revision: int) -> list[Row]:
        """Return every revision after `revision`, in order."""
        query = "SELECT revision, key, created, value FROM log WHERE revision > ? ORDER BY revision"
        return list(self._rows(query, (revision,)))

    def facts(self) -> tuple[int, int]:
        """Return the last revision, and the revision up to which the log was compacted."""
        connection = self._connect()
        try:
            stored = dict(connection.execute("SELECT name, value FROM facts").fetchall())
            last = connection.execute("SELECT max(revision) FROM log").fetchone()[0] or 0
        finally:
            connection.close()
        compacted = stored.get("compacted", 0)
        return max(last, compacted), compacted

    def append(self, row: Row, token: Any) -> None:
        """Write a revision. `on_commit` receives `token` when it is on disk."""
        self._queue.put((row, token))

    def compact(self, revision: int) -> None:
        """Delete revisions that were superseded at `revision`."""
        self._queue.put((revision, None))

    def close(self) -> None:
        """Complete queued writes and stop the writer thread."""
        self._queue.put(None)
        self._thread.join()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, isolation_level=None, timeout=30.0)
        connection.execute("PRAGMA journal_mode=WAL")
        # A revision that a client has seen must survive a power cut, or watches would go back.
        connection.execute("PRAGMA synchronous=FULL")
        return connection

    def _rows(self, query: str, parameters: tuple[int, ...]) -> Iterator[Row]:
        connection = self._connect()
        try:
            for row in connection.execute(query, parameters):
                yield Row(*row)
        finally:
            connection.close()

    def _work(self) -> None:
        connection = self._connect()
        closing = False
        while not closing:
            batch = [self._queue.get()]
            while len(batch) < BATCH and not self._queue.empty():
                batch.append(self._queue.get())
            closing = None in batch
            items = [item for item in batch if item is not None]
            error = self._commit(connection, items)
            tokens = [token for _, token in items if token is not None]
            if tokens or error:
                self.on_commit(tokens, error)
        connection.close()

    def _commit(
        self, connection: sqlite3.Connection, items: list[tuple[Row | int, Any]]
    ) -> Exception | None:
        try:
            connection.execute("BEGIN IMMEDIATE")
            rows = [
                (item.revision, item.key, item.created, item.value)
                for item, _ in items
                if isinstance(item, Row)
            ]
            connection.executemany("INSERT INTO log VALUES (?, ?, ?, ?)", rows)
            for item, _ in items:
                if not isinstance(item, Row):
                    connection.execute(_OBSOLETE, {"target": item})
                    connection.execute("REPLACE INTO facts VALUES ('compacted', ?)", (item,))
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            return error
        return None
