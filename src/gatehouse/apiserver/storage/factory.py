"""Opening of a store by its address."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

import msgspec
import structlog

from gatehouse.apiserver.storage import encryption
from gatehouse.apiserver.storage.encryption import IdentityTransformer
from gatehouse.apiserver.storage.entries import MismatchError, UnavailableError
from gatehouse.apiserver.storage.sqlite.log import Log
from gatehouse.apiserver.storage.sqlite.store import SqliteStore
from gatehouse.apiserver.storage.store import Store

log = structlog.get_logger("gatehouse.apiserver")

FILE = "gatehouse.db"


async def open_store(address: str, keys: Path | None = None) -> Store:
    """Open a directory (SQLite) or an etcd. Raises EncryptionError, UnavailableError, OSError."""
    cipher: IdentityTransformer = (
        encryption.load(keys) if keys is not None else IdentityTransformer()
    )
    if address.startswith("etcd://"):
        # Imported here, so that only users of etcd load gRPC.
        from gatehouse.apiserver.storage.etcd.store import EtcdStore

        return await EtcdStore.open(address, cipher)
    return _open_directory(Path(address), cipher)


def _open_directory(directory: Path, cipher: IdentityTransformer) -> Store:
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Two processes would assign the same revisions to different changes.
    with contextlib.ExitStack() as opened:
        opened.enter_context(directory_lock(directory))
        log_file = Log(directory / FILE)
        return SqliteStore(log_file, cipher, on_close=opened.pop_all().close)


@contextlib.contextmanager
def directory_lock(directory: Path) -> Iterator[None]:
    """Lock a directory. Raises UnavailableError if another process has locked it."""
    with (directory / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UnavailableError(f"{directory} is in use by another process") from error
        yield


async def reencrypt(store: Store) -> None:
    """Encrypt values that are in plain text or under an old key with the first key."""
    stale = store.stale
    for key in stale:
        entry = store.latest(key)
        if entry is None:
            continue
        try:
            await store.put(key, msgspec.json.decode(entry.data), entry.revision)
        except MismatchError:
            continue
    if stale:
        log.info("values encrypted with the first key", values=len(stale))
    store.stale = []
