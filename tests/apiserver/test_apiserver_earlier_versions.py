"""Storages and backups of earlier versions of Gatehouse, whose names must not change."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from gatehouse.apiserver_extension.extension import OWN_NAMES, STORAGE_NAMES
from kube_api_server.storage import encryption, factory
from kube_api_server.storage.encryption import EncryptionError
from kube_api_server.storage.etcd.address import parse_etcd_address

BACKUP = """\
{"format":"gatehouse-backup/v1","revision":7}
{"key":"/core/configmaps/default/a","revision":3,"value":{"metadata":{"name":"a"}}}
"""


def test_names_are_those_of_earlier_versions() -> None:
    assert msgspec.structs.asdict(STORAGE_NAMES) == {
        "database": "gatehouse.db",
        "etcd_prefix": "/gatehouse",
        "etcd_password_variable": "GATEHOUSE_ETCD_PASSWORD",
        "backup_format": "gatehouse-backup/v1",
        "encryption_mark": "gatehouse:aesgcm:",
        "restore_command": "gatehouse apiserver restore",
    }
    assert (OWN_NAMES.storage, OWN_NAMES.metrics) == (STORAGE_NAMES, "gatehouse_apiserver")


def restore(backup: Path, storage: Path) -> None:
    words = ("apiserver", "restore", "--storage", str(storage), "--from", str(backup))
    command = [sys.executable, "-m", "gatehouse", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"1 objects restored into {storage}\n")
    with sqlite3.connect(storage / "gatehouse.db") as database:
        assert database.execute("SELECT key FROM log").fetchall() == [
            ("/core/configmaps/default/a",)
        ]


async def test_backup_is_restored_and_the_database_opened(tmp_path: Path) -> None:
    backup, storage = tmp_path / "backup", tmp_path / "storage"
    backup.write_text(BACKUP)
    restore(backup, storage)
    store = await factory.open_store(str(storage), names=STORAGE_NAMES)
    try:
        assert [key for key, _ in store.list("/core/configmaps/")] == ["/core/configmaps/default/a"]
    finally:
        await store.close()


def test_encrypted_value_is_decrypted(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(encryption.generate_key())
    key = "/core/secrets/default/s"
    cipher = encryption.load_keys(tmp_path / "keys", STORAGE_NAMES)
    sealed = cipher.encrypt(key, b"{}")
    assert sealed.startswith(b"gatehouse:aesgcm:")
    assert cipher.decrypt(key, sealed) == b"{}"
    # A server without keys does not take the ciphertext for a value.
    with pytest.raises(EncryptionError, match="no key file"):
        encryption.IdentityTransformer(STORAGE_NAMES).decrypt(key, sealed)


def test_etcd_has_the_prefix_and_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEHOUSE_ETCD_PASSWORD", "sesame")
    parsed = parse_etcd_address("etcd://host?user=root", STORAGE_NAMES)
    assert (parsed.prefix, parsed.user, parsed.password) == ("/gatehouse", "root", "sesame")
