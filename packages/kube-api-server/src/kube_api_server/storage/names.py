"""A storage, and the names in what it contains, which belong to the program of the server."""

from __future__ import annotations

from pathlib import Path

import msgspec


class StorageNames(msgspec.Struct, frozen=True, kw_only=True):
    """Names of files, keys and formats of a storage.

    A server or backup with other names does not find or not read what is stored.
    """

    database: str = "kube-api-server.db"
    """File of the SQLite database, in the directory of a storage."""
    etcd_prefix: str = "/kube-api-server"
    """Prefix of the keys in an etcd whose address has none."""
    etcd_password_variable: str = "KUBE_API_SERVER_ETCD_PASSWORD"  # noqa: S105 - a name only
    """Environment variable with the password of the etcd user."""
    backup_format: str = "kube-api-server-backup/v1"
    encryption_mark: str = "kube-api-server:aesgcm:"
    """Beginning of encrypted values."""
    restore_command: str = ""
    """Command that an error message proposes, before `--storage DIRECTORY --from BACKUP`."""


DEFAULT_NAMES = StorageNames()


class Storage(msgspec.Struct, frozen=True):
    """A storage. Only functions that other programs call have default names."""

    address: str
    """A directory, or the address of an etcd."""
    names: StorageNames
    keys: Path | None = None
    """File with the keys of encrypted values; None for none."""

    @property
    def directory(self) -> Path:
        """Directory of a storage that is no etcd."""
        return Path(self.address)

    @property
    def database(self) -> Path:
        """File of the SQLite database in the directory."""
        return self.directory / self.names.database
