"""Log on disk: SQLite in WAL mode, one writer thread, batched commits."""

from __future__ import annotations

import contextlib
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import structlog

from kube_api_server.storage.entries import StorageFullError, UnavailableError
from kube_api_server.storage.sqlite.failures import DatabaseFailures
from kube_base.runtime import private_files

log = structlog.get_logger("apiserver")

BATCH = 256
"""Maximum writes per transaction. With synchronous=FULL a commit costs as much as one write."""

BATCH_BYTES = 8 << 20
"""Size in bytes of the values of a transaction above which it gets no further writes."""

WAL_BYTES = 16 << 20
"""Size in bytes to which the -wal file is cut after its content is in the database."""


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

_SLICE = """
SELECT revision, length(value) FROM log WHERE revision > ? AND revision <= ?
ORDER BY revision LIMIT ?
"""

_SUPERSEDED = """
DELETE FROM log WHERE revision IN (
    SELECT older.revision
    FROM (SELECT key, max(revision) AS newest FROM log NOT INDEXED
          WHERE revision > :start AND revision <= :end GROUP BY key) AS last
    JOIN log AS older ON older.key = last.key AND older.revision < last.newest
)
"""

_TOMBSTONES = "DELETE FROM log WHERE revision > :start AND revision <= :end AND value IS NULL"

OnCommit = Callable[[list[Any], UnavailableError | None], None]


class _Item(msgspec.Struct, frozen=True):
    """A queued write, or a queued compaction up to a revision."""

    term: int
    row: Row | int
    token: Any


class Log:
    """Append-only log. `append` must be called from one thread only.

    `on_commit` is called in the writer thread with the tokens of all writes of a transaction, in
    order, and the error if it failed. After an error the log discards writes, which may depend on
    those that failed, until the caller has called `resume`.
    """

    def __init__(self, path: Path, restore_command: str = "") -> None:
        """Open or create the database. Raises UnavailableError, OSError.

        `restore_command` is for the message about a damaged one.
        """
        self.path = path
        self.failures = DatabaseFailures(path, restore_command)
        self.on_commit: OnCommit = lambda _, __: None
        self._queue: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._term = 0
        with self.failures.translation():
            self._create_if_missing()
            # In use until the thread ends: closing the last connection would remove the -wal file.
            connection = self._connect(path)
        self._compacted = self._target = self.facts()[1]
        """Revisions up to which the log is, and must be, compacted. For the writer thread only."""
        self._thread = threading.Thread(
            target=self._work, args=(connection,), name="store-writer", daemon=True
        )
        self._thread.start()

    def _create_if_missing(self) -> None:
        """Create the database unless it exists. Raises DamagedStorageError, OSError."""
        present = [path for path in files(self.path) if path.exists()]
        if self.path in present:
            if not self.path.stat().st_size:
                raise self.failures.damaged("the file is empty")
            return
        if present:
            raise self.failures.damaged(f"the file is missing, but not {present[0].name}")
        # An interrupted creation must not leave an empty file.
        staged = self.path.with_name(f".{self.path.name}")
        staged.unlink(missing_ok=True)
        private_files.write_private_file(staged, b"")
        connection = self._connect(staged)
        connection.executescript(_SCHEMA)
        connection.close()
        staged.rename(self.path)
        _sync(self.path.parent)

    def newest(self) -> list[Row]:
        """Return the newest row of every key, also of deleted ones. Raises UnavailableError."""
        return list(self._rows(_NEWEST, ()))

    def since(self, revision: int) -> list[Row]:
        """Return every revision after `revision`, in order. Raises UnavailableError."""
        query = "SELECT revision, key, created, value FROM log WHERE revision > ? ORDER BY revision"
        return list(self._rows(query, (revision,)))

    def facts(self) -> tuple[int, int]:
        """Return the last revision, and the revision up to which the log was compacted.

        Raises UnavailableError.
        """
        with self.failures.translation(), contextlib.closing(self._connect()) as connection:
            stored = dict(connection.execute("SELECT name, value FROM facts").fetchall())
            last = connection.execute("SELECT max(revision) FROM log").fetchone()[0] or 0
        compacted = stored.get("compacted", 0)
        return max(last, compacted), compacted

    def append(self, row: Row, token: Any) -> None:
        """Write a revision. `on_commit` receives `token` when it is on disk."""
        self._queue.put(_Item(self._term, row, token))

    def compact(self, revision: int) -> None:
        """Delete revisions that were superseded at `revision`, in slices between the writes."""
        self._queue.put(_Item(self._term, revision, None))

    def resume(self) -> None:
        """Accept writes again. All writes that `append` has queued by now are discarded."""
        self._term += 1

    def close(self) -> None:
        """Complete queued writes and stop the writer thread."""
        self._queue.put(None)
        self._thread.join()

    def _connect(self, path: Path | None = None) -> sqlite3.Connection:
        connection = sqlite3.connect(
            path or self.path, isolation_level=None, timeout=30.0, check_same_thread=False
        )
        connection.execute("PRAGMA journal_mode=WAL")
        # A revision that a client has seen must survive a power cut, or watches would go back.
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute(f"PRAGMA journal_size_limit={WAL_BYTES}")
        return connection

    def _rows(self, query: str, parameters: tuple[int, ...]) -> Iterator[Row]:
        with self.failures.translation(), contextlib.closing(self._connect()) as connection:
            for row in connection.execute(query, parameters):
                yield Row(*row)

    def _work(self, connection: sqlite3.Connection) -> None:
        failed_term = -1
        closing = False
        while not closing or self._compacted < self._target:
            batch = self._next_batch()
            closing |= None in batch
            items = [item for item in batch if item is not None and item.term > failed_term]
            error = self._commit(connection, items)
            if error is not None:
                failed_term = items[-1].term
            tokens = [item.token for item in items if item.token is not None]
            if tokens or error:
                self.on_commit(tokens, error)
            if self._compacted < self._target and error is None:
                error = self._compact_slice(connection)
                if error is not None:
                    self.on_commit([], error)
        connection.close()

    def _next_batch(self) -> list[_Item | None]:
        """Return queued items. Wait for one unless there is something to compact."""
        batch: list[_Item | None] = []
        size = 0
        if self._compacted >= self._target:
            batch.append(self._queue.get())
        while len(batch) < BATCH and size < BATCH_BYTES and not self._queue.empty():
            item = self._queue.get()
            batch.append(item)
            if item is not None and isinstance(item.row, Row):
                size += len(item.row.value or b"")
        return batch

    def _commit(
        self, connection: sqlite3.Connection, items: list[_Item]
    ) -> UnavailableError | None:
        rows = [
            (item.row.revision, item.row.key, item.row.created, item.row.value)
            for item in items
            if isinstance(item.row, Row)
        ]
        compactions = [item.row for item in items if isinstance(item.row, int)]
        self._target = max((self._target, *compactions))
        try:
            if rows:
                with _transaction(connection):
                    connection.executemany("INSERT INTO log VALUES (?, ?, ?, ?)", rows)
        except sqlite3.Error as error:
            return self.failures.translated(error)
        return None

    def _compact_slice(self, connection: sqlite3.Connection) -> UnavailableError | None:
        """Compact the next revisions, about as many as one transaction writes.

        A transaction of its own, which needs space. Without space, the next compaction does it.
        """
        try:
            end = self._slice_end(connection)
            with _transaction(connection):
                limits = {"start": self._compacted, "end": end}
                connection.execute(_SUPERSEDED, limits)
                connection.execute(_TOMBSTONES, limits)
                connection.execute("REPLACE INTO facts VALUES ('compacted', ?)", (end,))
        except sqlite3.Error as error:
            failure = self.failures.translated(error)
            log.warning("storage not compacted", revision=self._target, error=str(failure))
            self._target = self._compacted
            return None if isinstance(failure, StorageFullError) else failure
        self._compacted = end
        if end == self._target:
            log.info("storage compacted", revision=end)
        return None

    def _slice_end(self, connection: sqlite3.Connection) -> int:
        """Return the last revision of the next slice."""
        size = 0
        rows = connection.execute(_SLICE, (self._compacted, self._target, BATCH)).fetchall()
        for revision, length in rows:
            size += length or 0
            if size >= BATCH_BYTES:
                return int(revision)
        return int(rows[-1][0]) if len(rows) == BATCH else self._target


def files(path: Path) -> list[Path]:
    """Return the paths of the files of a database."""
    return [Path(f"{path}{suffix}") for suffix in ("", "-wal", "-shm")]


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except sqlite3.Error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
