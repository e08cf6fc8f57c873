"""`gatehouse apiserver` as operators use it: serve, backup, restore, migration, errors."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fakes.patience import SECONDS
from fakes.process import ApiServer, Etcd
from gatehouse.apis import resources
from gatehouse.kube import client as kube

pytestmark = pytest.mark.process


def gatehouse(*words: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "gatehouse", "apiserver", *words)
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)


def done(*words: str) -> str:
    answer = gatehouse(*words)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def refused(*words: str) -> str:
    answer = gatehouse(*words)
    assert answer.returncode != 0
    assert "Traceback" not in answer.stderr
    return answer.stderr


@asynccontextmanager
async def running(server: ApiServer) -> AsyncIterator[kube.Client]:
    server.start()
    try:
        async with kube.Client.from_kubeconfig(server.kubeconfig) as client:
            yield client
    finally:
        server.stop()


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    if Etcd.binary() is None:
        pytest.skip("no etcd on this machine")
    server = Etcd(tmp_path / "etcd")
    server.start()
    yield server
    server.stop()


def secret(name: str) -> dict[str, object]:
    metadata = {"name": name, "namespace": "default"}
    return {"metadata": metadata, "stringData": {"password": "hunter2"}}


@pytest.mark.long
async def test_backup_of_a_running_server_is_restored(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(done("generate-encryption-key"))
    keys.chmod(0o600)
    server = ApiServer(tmp_path / "a", "--encryption-key-file", str(keys))
    backup = tmp_path / "backup"
    async with running(server) as client:
        created = await client.create(resources.SECRETS, secret("s"))
        rejection = done("backup", "--storage", server.storage, "--to", str(backup))
        assert "objects of revision" in rejection
        await client.create(resources.SECRETS, secret("later"))
    # Secrets are encrypted in the backup as they were in the storage.
    assert b"hunter2" not in backup.read_bytes()
    assert b"aHVudGVyMg" not in backup.read_bytes()

    other = ApiServer(tmp_path / "b", "--encryption-key-file", str(keys))
    done("restore", "--storage", other.storage, "--from", str(backup))
    async with running(other) as client:
        restored = await client.get(resources.SECRETS, "s", "default")
        assert restored["data"] == {"password": "aHVudGVyMg=="}
        assert restored["metadata"]["uid"] == created["metadata"]["uid"]
        with pytest.raises(kube.NotFound):
            await client.get(resources.SECRETS, "later", "default")
        # Watchers of the old server have to list again: revisions continue far ahead.
        changed = await client.create(resources.SECRETS, secret("new"))
        assert int(changed["metadata"]["resourceVersion"]) > int(
            created["metadata"]["resourceVersion"]
        )
    rejection = refused("restore", "--storage", other.storage, "--from", str(backup))
    assert "not empty" in rejection


@pytest.mark.long
async def test_migrate_copies_objects_from_sqlite_to_etcd(tmp_path: Path, etcd: Etcd) -> None:
    server = ApiServer(tmp_path / "a")
    async with running(server) as client:
        created = await client.create(resources.SECRETS, secret("s"))
        token, _ = await client.create_token("default", "default", [], 600)
    target = f"etcd://{etcd.address}/gatehouse"
    assert "objects copied" in done("migrate", "--from", server.storage, "--to", target)
    moved = ApiServer(tmp_path / "a", storage=target)
    async with running(moved) as client:
        copied = await client.get(resources.SECRETS, "s", "default")
        assert copied["metadata"]["uid"] == created["metadata"]["uid"]
        # Signing keys are migrated too: earlier tokens stay valid.
        assert (await client.review_token(token, [])).authenticated
    assert "not empty" in refused("migrate", "--from", server.storage, "--to", target)


async def test_concurrent_patches_of_one_object_succeed(tmp_path: Path, etcd: Etcd) -> None:
    server = ApiServer(tmp_path / "a", storage=f"etcd://{etcd.address}/gatehouse")
    async with running(server) as client:
        empty = {"metadata": {"name": "c", "namespace": "default"}}
        await client.create(resources.CONFIG_MAPS, empty)
        changes = [{"data": {str(number): "x"}} for number in range(50)]
        await asyncio.gather(
            *(client.patch(resources.CONFIG_MAPS, "c", change, "default") for change in changes)
        )
        result = await client.get(resources.CONFIG_MAPS, "c", "default")
        assert len(result["data"]) == 50


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            (),
            "--storage, --tls-cert-file, --tls-private-key-file and --client-ca-file are required",
        ),
        (("backup", "--storage", "/nowhere/at/all", "--to", "x"), "/nowhere/at/all"),
        (("restore", "--storage", "{}/new", "--from", "{}/none"), "{}/none"),
        (("migrate", "--from", "{}/none", "--to", "{}/new"), "{}/none"),
        (("migrate", "--from", "etcd://127.0.0.1:1/x", "--to", "{}/new"), "127.0.0.1:1"),
        (("backup", "--storage", "etcd://", "--to", "x"), "etcd://"),
    ],
)
def test_failed_command_prints_reason(
    tmp_path: Path, words: tuple[str, ...], expected: str
) -> None:
    rejection = refused(*(word.format(tmp_path) for word in words))
    assert expected.format(tmp_path) in rejection


def test_invalid_backup_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(os.urandom(100))
    rejection = refused(
        "restore", "--storage", str(tmp_path / "new"), "--from", str(tmp_path / "b")
    )
    assert str(tmp_path / "b") in rejection


def test_restore_into_a_running_database_is_rejected(tmp_path: Path) -> None:
    server = ApiServer(tmp_path / "a")
    server.start()
    try:
        backup = tmp_path / "backup"
        done("backup", "--storage", server.storage, "--to", str(backup))
        rejection = refused("restore", "--storage", server.storage, "--from", str(backup))
        assert server.storage in rejection
    finally:
        server.stop()
