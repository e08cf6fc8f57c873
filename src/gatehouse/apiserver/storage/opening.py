"""Opening a store by its address."""

from __future__ import annotations

from pathlib import Path

import msgspec
import structlog

from gatehouse.apiserver.storage import encryption
from gatehouse.apiserver.storage.encryption import Plain
from gatehouse.apiserver.storage.entries import MismatchError
from gatehouse.apiserver.storage.sqlite.log import Log
from gatehouse.apiserver.storage.sqlite.store import SqliteStore
from gatehouse.apiserver.storage.store import Store

log = structlog.get_logger("gatehouse.apiserver")

FILE = "gatehouse.db"


async def open_store(address: str, keys: Path | None = None) -> Store:
    """Open a directory (SQLite) or an etcd. Raises EncryptionError, UnavailableError, OSError."""
    cipher: Plain = encryption.load(keys) if keys is not None else Plain()
    if address.startswith("etcd://"):
        # Only who uses etcd pays for loading gRPC.
        from gatehouse.apiserver.storage.etcd.store import EtcdStore

        return await EtcdStore.open(address, cipher)
    directory = Path(address)
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    return SqliteStore(Log(directory / FILE), cipher)


async def reseal(store: Store) -> None:
    """Write anew what lies unsealed, or sealed with a key that is to go."""
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
        log.info("sealed anew", values=len(stale))
    store.stale = []
