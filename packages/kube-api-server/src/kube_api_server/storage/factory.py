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
from kube_api_server.storage.names import DEFAULT_NAMES, StorageNames
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
    cipher: IdentityTransformer = (
        encryption.load_keys(keys, names) if keys is not None else IdentityTransformer(names)
    )
    if is_etcd(address):
        # Imported here, so that only users of etcd load gRPC.
        from kube_api_server.storage.etcd.store import EtcdStore

        return await EtcdStore.open(address, cipher, names)
    return _open_directory(Path(address), cipher, names)


def _open_directory(
    directory: Path, cipher: IdentityTransformer, names: StorageNames
) -> ObjectStore:
    database = directory / names.database
    # Two processes would assign the same revisions to different changes.
    with contextlib.ExitStack() as opened:
        opened.enter_context(directory_lock(directory, names))
        exposed = [path for path in files(database) if private_files.restrict_file(path)]
        if exposed:
            log.warning("database was readable by other users", path=str(exposed[0]))
        log_file = Log(database, names.restore_command)
        opened.callback(log_file.close)
        store = SqliteStore(log_file, cipher)
        store.on_close = opened.pop_all().close
        return store


@contextlib.contextmanager
def directory_lock(directory: Path, names: StorageNames = DEFAULT_NAMES) -> Iterator[None]:
    """Create or restrict a directory, and lock it.

    Raises UnavailableError if another process has locked it, or OSError.
    """
    private_files.make_private_dir(directory, marker=names.database)
    try:
        with private_files.locked(directory / "lock"):
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
