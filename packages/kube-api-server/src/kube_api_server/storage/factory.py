"""Opening of a store by its address."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import structlog

from kube_api_server.storage import encryption
from kube_api_server.storage.address import is_etcd
from kube_api_server.storage.encryption import IdentityTransformer
from kube_api_server.storage.entries import MismatchError, UnavailableError
from kube_api_server.storage.names import DEFAULT_NAMES, Storage, StorageNames
from kube_api_server.storage.sqlite.log import Log, files
from kube_api_server.storage.sqlite.store import SqliteStore
from kube_api_server.storage.store import ObjectStore
from kube_base.runtime import private_files

log = structlog.get_logger("apiserver")


async def open_store(
    address: str, keys: Path | None = None, names: StorageNames = DEFAULT_NAMES
) -> ObjectStore:
    """Open a directory (SQLite) or an etcd.

    Raises StorageAddressError, EncryptionError, UnavailableError, OSError.
    """
    storage = Storage(address, names, keys)
    cipher = encryption.open_cipher(storage)
    if is_etcd(address):
        # Imported here, so that only users of etcd load gRPC.
        from kube_api_server.storage.etcd.store import EtcdStore

        return await EtcdStore.open(storage, cipher)
    return _open_directory(storage, cipher)


def _open_directory(storage: Storage, cipher: IdentityTransformer) -> ObjectStore:
    # Two processes would assign the same revisions to different changes.
    with contextlib.ExitStack() as opened:
        opened.enter_context(directory_lock(storage))
        exposed = [path for path in files(storage.database) if private_files.restrict_file(path)]
        if exposed:
            log.warning("database was readable by other users", path=str(exposed[0]))
        log_file = Log(storage.database, storage.names.restore_command)
        opened.callback(log_file.close)
        store = SqliteStore(log_file, cipher)
        store.on_close = opened.pop_all().close
        return store


@contextlib.contextmanager
def directory_lock(storage: Storage) -> Iterator[None]:
    """Create or restrict the directory of a storage, and lock it.

    Raises UnavailableError if another process has locked it, or OSError.
    """
    private_files.make_private_dir(storage.directory, marker=storage.names.database)
    try:
        with private_files.locked(storage.directory / "lock"):
            yield
    except private_files.LockedError as error:
        raise UnavailableError(str(error)) from error


async def reencrypt(store: ObjectStore) -> None:
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
